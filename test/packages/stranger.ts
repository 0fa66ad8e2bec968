// What somebody has who installs a package for another language: programs of their own, in an empty project.
import { spawn } from "node:child_process";
import { fileURLToPath } from "node:url";
import { sharedAuthority } from "../support/certificates.ts";
import { codeOf, Running } from "../support/child-processes.ts";
import { runSealpost } from "../support/command.ts";
import { targetsEnv } from "../support/dispatching.ts";
import { freePort } from "../support/ports.ts";
import { startTlsFront } from "../support/tls-front.ts";

const SECRET = "whsec_YSByZWNlaXZlciBpbiBhbm90aGVyIGxhbmd1YWdlIQ";

export const REPOSITORY = fileURLToPath(new URL("../../", import.meta.url));

/** What `receiver check` reports of a program that says `listening` and serves HTTP at the port of its environment. */
export async function checkReceiver(
  command: string,
  argsAt: (port: number) => readonly string[],
  env: Readonly<Record<string, string>> = {},
): Promise<Record<string, unknown>> {
  const port = await freePort();
  const child = spawn(command, argsAt(port), {
    env: { PATH: process.env.PATH, PORT: String(port), SIGNING_SECRET: SECRET, ...env },
    stdio: ["ignore", "pipe", "pipe"],
  });
  const running = new Running(child, codeOf(child));
  const front = await startTlsFront(["localhost"], port);
  try {
    await running.waitForLine(({ msg }) => /^listening/.test(String(msg)));
    const { caPem } = await sharedAuthority();
    const checked = await runSealpost(
      ["receiver", "check", "--url", `https://localhost:${front.port}/webhooks`, "--json"],
      { env: { SEALPOST_SECRET: SECRET, ...targetsEnv([{ port: front.port, caPem }]) } },
    );
    return { code: checked.code, ...JSON.parse(checked.stdout) };
  } finally {
    child.kill("SIGKILL");
    await running.finished;
    await front.close();
  }
}

/** Of a report: a receiver that does everything right, and answers challenges. */
export const RIGHT = { code: 0, verdict: "right", faults: [], answers_challenge: true };
