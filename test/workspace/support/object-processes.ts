// Processes of their own that use an object store.
import { type ChildProcess, spawn } from "node:child_process";
import { fileURLToPath } from "node:url";
import { untilFinished } from "../../support/child-processes.ts";
import type { StoreAddress } from "./object-stores.ts";

const folder = fileURLToPath(new URL("../objects/processes/", import.meta.url));

export function startObjectProcess(name: string, address: StoreAddress, ...args: string[]): ChildProcess {
  const all = [`${folder}${name}.ts`, JSON.stringify(address), ...args];
  return spawn(process.execPath, all, { stdio: ["ignore", "pipe", "pipe"] });
}

export type LargeObjectFigures = {
  readonly putMegabytesPerSecond: number;
  readonly getMegabytesPerSecond: number;
  readonly grownBytes: number;
};

/** Puts and gets an object of `sizeBytes`, and checks that it is the same. */
export async function measureLargeObject(
  address: StoreAddress,
  sizeBytes: number,
): Promise<LargeObjectFigures> {
  const { code, stdout, stderr } = await untilFinished(
    startObjectProcess("large-object", address, String(sizeBytes)),
  );
  if (code !== 0) throw new Error(stderr);
  return JSON.parse(stdout) as LargeObjectFigures;
}
