// HAProxy as docs/haproxy/ sets it up, with this machine's addresses.
import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { untilFinished } from "./child-processes.ts";
import { freePort } from "./ports.ts";
import { program } from "./programs.ts";
import { patience } from "./time-limits.ts";

const FOLDER = fileURLToPath(new URL("../../docs/haproxy/", import.meta.url));
const POLL_MS = 50;
const READY_WITHIN_MS = 10_000;

export type HaproxyWish = {
  /** The URL of each cell's `serve`; null: there is no second cell. */
  readonly cells: { readonly c1: string; readonly c2: string | null };
  /** The contents of the maps that are not made by hand. */
  readonly keysMap: string;
  readonly accountsMap: string;
};

export type RunningHaproxy = {
  readonly pid: number;
  readonly url: string;
  /** Its configuration, with its maps beside it. */
  readonly file: string;
  stop(): Promise<void>;
};

/** Resolves when it passes requests on. */
export async function startHaproxy({ cells, keysMap, accountsMap }: HaproxyWish): Promise<RunningHaproxy> {
  const folder = mkdtempSync(join(tmpdir(), "sealpost-haproxy-"));
  const port = await freePort();
  const file = join(folder, "haproxy.cfg");
  writeFileSync(file, configurationFor(folder, port, cells));
  writeFileSync(join(folder, "keys.map"), keysMap);
  writeFileSync(join(folder, "accounts.map"), accountsMap);
  for (const name of ["hosts.map", "brands.map"]) {
    writeFileSync(join(folder, name), readFileSync(`${FOLDER}${name}`));
  }
  const child = spawn(program("haproxy"), ["-db", "-f", file], { stdio: ["ignore", "ignore", "pipe"] });
  const finished = untilFinished(child);
  const url = `http://127.0.0.1:${port}`;
  const failed = finished.then(({ stderr }) => Promise.reject(new Error(`HAProxy has ended: ${stderr}`)));
  failed.catch(() => undefined);
  await Promise.race([untilUp(url), failed]);
  return {
    pid: child.pid!,
    url,
    file,
    stop: async () => {
      child.kill("SIGTERM");
      await finished;
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

function configurationFor(folder: string, port: number, { c1, c2 }: HaproxyWish["cells"]): string {
  const text = readFileSync(`${FOLDER}haproxy.cfg`, "utf8")
    .replaceAll("/etc/haproxy/sealpost/", `${folder}/`)
    .replace(/bind 127\.0\.0\.1:\d+/, `bind 127.0.0.1:${port}`)
    .replaceAll(/10\.0\.1\.1\d:8080/g, new URL(c1).host);
  return c2 === null
    ? text.replaceAll(/^backend \w+_c2\n(?:.+\n)*/gm, "")
    : text.replaceAll(/10\.0\.2\.1\d:8080/g, new URL(c2).host);
}

async function untilUp(url: string): Promise<void> {
  const giveUpAtMs = performance.now() + patience(READY_WITHIN_MS);
  for (;;) {
    const isUp = await fetch(`${url}/healthz`).then(
      ({ ok }) => ok,
      () => false,
    );
    if (isUp) return;
    if (performance.now() > giveUpAtMs) throw new Error("HAProxy passes no requests on.");
    await wait(POLL_MS);
  }
}
