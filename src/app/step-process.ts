import { setPriority } from "node:os";
import { fileURLToPath } from "node:url";
import type { Logger } from "pino";
import { abortableDelay } from "../base/model/backoff.ts";
import type { ProcessContext } from "./process-context.ts";
import { type ChildEvent, supervise } from "./supervisor.ts";

/** Webhooks come first. At 19, the most there is, a busy machine left a step no time even to be given back. */
const NICENESS = 10;
/** How often it is told what the dispatcher does. */
const TELL_EVERY_MS = 500;
/** How soon the very first run is noticed. From then on there is a process that looks by itself. */
const LOOK_EVERY_MS = 3_000;
/** Steps are given back within milliseconds, unless the machine is busy. */
const GRACE_MS = 10_000;

const mainFile = fileURLToPath(new URL("../main.ts", import.meta.url));

export type StepProcessOptions = {
  readonly context: ProcessContext;
  readonly log: Logger;
  /** Whether there is work for it. */
  readonly isWanted: () => Promise<boolean>;
  readonly onMessage: (message: unknown) => void;
  /** Attempts that the dispatcher has made so far. */
  readonly countAttempts: () => number;
  /** It has ended, though nobody asked it to. */
  readonly onDeath: () => void;
};

/**
 * Keeps a process running for what areas compute: a text of a megabyte would hold up a dispatcher's webhooks for half a
 * second. Who has no such work has no such process. It ends with this one.
 */
export function keepStepProcess(options: StepProcessOptions): { stop(): Promise<void> } {
  const { context, log } = options;
  const stopping = new AbortController();
  const running = untilWanted(options, stopping.signal).then(async () => {
    if (stopping.signal.aborted) return;
    let send: SendNews = () => undefined;
    let pid: number | null = null;
    // What it is at is given back within its grace, beside whatever else is at work. Only root may raise a priority.
    stopping.signal.addEventListener("abort", () => pid !== null && changePriority(pid, 0));
    using _ = telling(options.countAttempts, (news) => send(news));
    const code = await supervise({
      children: [{ name: "steps", file: mainFile, args: ["dispatch", "--area-steps"], env: context.env }],
      shutdown: stopping.signal,
      onEvent: (event) => {
        if (event.kind === "started") {
          pid = event.pid;
          changePriority(pid, NICENESS);
          send = event.send;
        } else if (event.kind === "ended") {
          // The number may be another process's by now.
          pid = null;
        }
        tell(options, event);
      },
      graceMs: GRACE_MS,
      random: context.random,
    });
    if (code !== 0) log.error({ code }, "the step process cannot be started: runs make no progress");
  });
  return {
    stop: async () => {
      stopping.abort();
      await running;
    },
  };
}

/** What the steps' process is told. */
export type DispatcherNews = { readonly attemptsPerSecond: number };

type SendNews = (news: DispatcherNews) => void;

/** Tells again and again, until it is disposed of. */
function telling(countAttempts: () => number, send: SendNews): Disposable {
  let before = { count: countAttempts(), atMs: performance.now() };
  const timer = setInterval(() => {
    const now = { count: countAttempts(), atMs: performance.now() };
    send({ attemptsPerSecond: ((now.count - before.count) * 1_000) / (now.atMs - before.atMs) });
    before = now;
  }, TELL_EVERY_MS);
  return { [Symbol.dispose]: () => clearInterval(timer) };
}

/** Where the system lets it. As soon as the process is there: threads begin with the priority of who starts them. */
function changePriority(pid: number, niceness: number): void {
  try {
    setPriority(pid, niceness);
  } catch {
    // It works all the same.
  }
}

async function untilWanted({ isWanted, log }: StepProcessOptions, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    try {
      if (await isWanted()) return;
    } catch (err) {
      if (!signal.aborted) log.warn({ err }, "runs: an error of the database; trying again");
    }
    await abortableDelay(LOOK_EVERY_MS, signal);
  }
}

function tell({ log, onMessage, onDeath }: StepProcessOptions, event: ChildEvent): void {
  switch (event.kind) {
    case "message":
      onMessage(event.message);
      break;
    case "started":
      log.info({ steps_pid: event.pid }, "the step process started");
      break;
    case "ended":
      if (event.restartInMs === null) {
        log.info({ how: event.how }, "the step process ended");
      } else {
        onDeath();
        const { how, restartInMs: restart_in_ms } = event;
        log.warn({ how, restart_in_ms }, "the step process died; starting it again");
      }
      break;
    default:
      throw new Error(`An event of unknown kind: ${JSON.stringify(event satisfies never)}`);
  }
}
