// The harness's side of the receiver: a log of everything that arrived there.
import { type ChildProcess, fork } from "node:child_process";
import { EventEmitter, once } from "node:events";
import { patience, patientSignal } from "../../support/time-limits.ts";
import type { Arrival, Behaviour, FromReceiver, ToReceiver } from "./arrival.ts";

export class ReceiverProcess {
  readonly #child: ChildProcess;
  readonly #events = new EventEmitter().setMaxListeners(100);
  readonly port: number;
  readonly caPem: string;
  /** In order of arrival. */
  readonly arrivals: Arrival[] = [];

  private constructor(child: ChildProcess, port: number, caPem: string) {
    this.#child = child;
    this.port = port;
    this.caPem = caPem;
    child.on("message", (message: FromReceiver) => this.#hear(message));
  }

  static async start(): Promise<ReceiverProcess> {
    const child = fork(new URL("../processes/receiver.ts", import.meta.url), { execArgv: [] });
    const [message] = (await once(child, "message")) as [FromReceiver];
    if (message.kind !== "listening") throw new Error("The receiver began with something else.");
    return new ReceiverProcess(child, message.port, message.caPem);
  }

  url(path: string, host = "localhost"): string {
    return `https://${host}:${this.port}${path}`;
  }

  /** What its names are lifted by. */
  get unsafeAllowed(): string {
    return ["localhost", "127.0.0.1", "*.localhost"].map((host) => `${host}:${this.port}`).join(",");
  }

  /** Arrivals signed with any of these count as signed. */
  knowSecrets(secrets: readonly string[]): Promise<void> {
    return this.#order({ kind: "secrets", secrets });
  }

  behave(path: string, behaviour: Behaviour): Promise<void> {
    return this.#order({ kind: "behave", path, behaviour });
  }

  /** What all paths do until it is null again. */
  makeTrouble(trouble: Behaviour | null): Promise<void> {
    return this.#order({ kind: "trouble", trouble });
  }

  /** Resolves with the first `count` arrivals that are wanted, from now on or before. */
  async waitFor(
    count: number,
    isWanted: (arrival: Arrival) => boolean = () => true,
    timeoutMs = 30_000,
  ): Promise<Arrival[]> {
    const signal = patientSignal(timeoutMs);
    for (;;) {
      const found = this.arrivals.filter(isWanted);
      if (found.length >= count) return found.slice(0, count);
      await once(this.#events, "news", { signal }).catch(() => {
        throw new Error(`${found.length} of ${count} arrivals after ${patience(timeoutMs)} ms`);
      });
    }
  }

  async close(): Promise<void> {
    const exited = once(this.#child, "exit");
    this.#child.disconnect();
    await exited;
  }

  async #order(message: ToReceiver): Promise<void> {
    const done = once(this.#events, "done");
    this.#child.send(message);
    await done;
  }

  #hear(message: FromReceiver): void {
    if (message.kind === "done") this.#events.emit("done");
    if (message.kind === "arrived") this.arrivals[message.nth] = message.arrival;
    if (message.kind === "answered") {
      const { status, atMs } = message;
      this.arrivals[message.nth]!.answer = { status, atMs };
    }
    this.#events.emit("news");
  }
}
