import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import type { HostileBehaviour } from "./hostile-receiver.ts";

export type HostileReceivers = {
  readonly caPem: string;
  readonly ports: Readonly<Record<HostileBehaviour, number>>;
  url(behaviour: HostileBehaviour, host?: string): URL;
  /** How many bytes of requests each has got so far, decrypted. */
  requestBytes(): Promise<Record<HostileBehaviour, number>>;
  close(): Promise<void>;
};

/** Starts one receiver per hostile behaviour, all in one separate process. */
export async function startHostileReceivers(): Promise<HostileReceivers> {
  const child: ChildProcess = fork(new URL("./hostile-receiver-process.ts", import.meta.url), {
    execArgv: [],
  });
  const [{ caPem, ports }] = await once(child, "message");
  return {
    caPem,
    ports,
    url: (behaviour, host = "localhost") => new URL(`https://${host}:${ports[behaviour]}/hooks`),
    async requestBytes() {
      const answered = once(child, "message");
      child.send("counts");
      const [counts] = await answered;
      return counts;
    },
    async close() {
      const exited = once(child, "exit");
      child.disconnect();
      await exited;
    },
  };
}
