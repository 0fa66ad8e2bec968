// A real Prometheus (from Debian's package), scraping every second and queried through its API.
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import { freePort } from "./ports.ts";
import { program } from "./programs.ts";
import { patience } from "./time-limits.ts";

export type Sample = { readonly metric: Readonly<Record<string, string>>; readonly value: number };

export type AlertingRule = { readonly name: string; readonly query: string; readonly health: string };

export type Prometheus = {
  /** An instant query, now. @throws what Prometheus says of an expression that it does not take */
  query(expression: string): Promise<readonly Sample[]>;
  rules(): Promise<readonly AlertingRule[]>;
  /** Asks until `isDone` says so; the last answer is in the error when it takes over `timeoutMs`. */
  until<T>(ask: () => Promise<T>, isDone: (answer: T) => boolean, timeoutMs: number): Promise<T>;
  close(): Promise<void>;
};

const POLL_MS = 250;

/** `jobs`: scrape targets (`host:port`) by job name. */
export async function startPrometheus(
  jobs: Readonly<Record<string, readonly string[]>>,
  ruleFile: string,
): Promise<Prometheus> {
  const folder = mkdtempSync(join(tmpdir(), "sealpost-prometheus-"));
  const config = {
    global: { scrape_interval: "1s", scrape_timeout: "1s", evaluation_interval: "1s" },
    rule_files: [ruleFile],
    scrape_configs: Object.entries(jobs).map(([job_name, targets]) => ({
      job_name,
      static_configs: [{ targets }],
    })),
  };
  // JSON is YAML.
  writeFileSync(join(folder, "prometheus.yml"), JSON.stringify(config));
  const port = await freePort();
  const child = spawn(
    program("prometheus"),
    [
      `--config.file=${join(folder, "prometheus.yml")}`,
      `--storage.tsdb.path=${join(folder, "data")}`,
      `--web.listen-address=127.0.0.1:${port}`,
    ],
    { stdio: ["ignore", "ignore", "pipe"] },
  );
  let said = "";
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    said += text;
  });
  const exited = once(child, "exit");
  const base = `http://127.0.0.1:${port}`;

  async function ask(path: string): Promise<Record<string, unknown>> {
    const response = await fetch(`${base}${path}`);
    const answer = (await response.json()) as { status: string; error?: string; data: unknown };
    if (answer.status !== "success") throw new Error(answer.error);
    return answer.data as Record<string, unknown>;
  }
  async function until<T>(asked: () => Promise<T>, isDone: (answer: T) => boolean, timeoutMs: number) {
    const startedAt = performance.now();
    for (;;) {
      const answer = await asked();
      if (isDone(answer)) return answer;
      if (performance.now() - startedAt > patience(timeoutMs)) {
        throw new Error(`after ${patience(timeoutMs)} ms Prometheus still says ${JSON.stringify(answer)}`);
      }
      await wait(POLL_MS);
    }
  }
  const isReady = async () => {
    if (child.exitCode !== null) throw new Error(`Prometheus has ended: ${said}`);
    return await fetch(`${base}/-/ready`).then(
      ({ ok }) => ok,
      () => false,
    );
  };
  await until(isReady, Boolean, 20_000);

  return {
    query: async (expression) => {
      const data = await ask(`/api/v1/query?query=${encodeURIComponent(expression)}`);
      const result = data.result as { metric: Record<string, string>; value: [number, string] }[];
      return result.map(({ metric, value }) => ({ metric, value: Number(value[1]) }));
    },
    rules: async () => {
      const data = await ask("/api/v1/rules?type=alert");
      return (data.groups as { rules: AlertingRule[] }[]).flatMap(({ rules }) => rules);
    },
    until,
    close: async () => {
      child.kill("SIGTERM");
      await exited;
      rmSync(folder, { recursive: true });
    },
  };
}

/** Runs promtool and returns its output, whether it succeeded or not. */
export function runPromtool(args: readonly string[], input = ""): { ok: boolean; output: string } {
  try {
    return {
      ok: true,
      output: execFileSync(program("promtool"), args, { encoding: "utf8", stdio: "pipe", input }),
    };
  } catch (error) {
    const { stdout, stderr } = error as { stdout: string; stderr: string };
    return { ok: false, output: stdout + stderr };
  }
}
