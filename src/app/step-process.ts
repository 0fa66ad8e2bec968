import { execFileSync } from "node:child_process";
import { setPriority } from "node:os";
import { fileURLToPath } from "node:url";
import type { Logger } from "pino";
import { abortableDelay } from "../schedule/backoff.ts";
import type { ProcessContext } from "./process-context.ts";
import { type ChildEvent, supervise } from "./supervisor.ts";

/** A tenth of what a process without it gets when the machine is full: webhooks come first, and runs go on. */
const NICENESS = 19;
/** How soon the first work is noticed. From then on there is a process that looks by itself. */
const LOOK_EVERY_MS = 200;
/** Steps are given back within milliseconds. */
const GRACE_MS = 5_000;

const mainFile = fileURLToPath(new URL("../main.ts", import.meta.url));

export type StepProcessOptions = {
  readonly context: ProcessContext;
  readonly log: Logger;
  /** Whether there is work for it. */
  readonly isWanted: () => Promise<boolean>;
  readonly onMessage: (message: unknown) => void;
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
    const code = await supervise({
      children: [{ name: "steps", file: mainFile, args: ["dispatch", "--area-steps"], env: context.env }],
      shutdown: stopping.signal,
      onEvent: (event) => tell(options, event),
      graceMs: GRACE_MS,
      random: context.random,
    });
    if (code !== 0) log.error({ code }, "the steps' process cannot be started: runs stand still");
  });
  return {
    stop: async () => {
      stopping.abort();
      await running;
    },
  };
}

/** Lowers this process's priority, where the system lets it. */
export function giveWay(): void {
  try {
    setPriority(NICENESS);
    execFileSync("chrt", ["--all-tasks", "--idle", "--pid", "0", String(process.pid)]);
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
      log.info({ steps_pid: event.pid }, "the steps' process started");
      break;
    case "ended":
      if (event.restartInMs === null) {
        log.info({ how: event.how }, "the steps' process ended");
      } else {
        onDeath();
        const { how, restartInMs: restart_in_ms } = event;
        log.warn({ how, restart_in_ms }, "the steps' process died; starting it again");
      }
      break;
    default:
      throw new Error(`An event of unknown kind: ${JSON.stringify(event satisfies never)}`);
  }
}
