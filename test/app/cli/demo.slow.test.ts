import { once } from "node:events";
import { existsSync, watch } from "node:fs";
import { createServer } from "node:net";
import { afterEach, describe, expect, test } from "vitest";
import type { LogLine } from "../../support/child-processes.ts";
import { createTestDatabase } from "../../support/database.ts";
import { countRows } from "../../support/installation.ts";
import { SealpostProcess } from "../../support/sealpost-process.ts";
import { patience, slowness } from "../../support/time-limits.ts";

type DemoEvent = LogLine;

let running: SealpostProcess | null = null;

afterEach(async () => void (await running?.stop()));

function startDemo(args: readonly string[] = [], env: Record<string, string> = {}) {
  const demo = new SealpostProcess(["demo", "--json", ...args], env);
  running = demo;
  const until = (isWanted: (one: DemoEvent) => boolean) => demo.waitForLine(isWanted, 120_000);
  const folder = async () => String((await until(startedAt("database"))).text);
  return { demo, until, folder };
}

const startedAt = (step: string) => (one: DemoEvent) => one.event === "started" && one.step === step;

/** The demo gives itself 80 s, and on a machine that is slow enough it says that they are over. */
const wasTooSlow = (events: readonly DemoEvent[]) =>
  slowness() > 3 && events.some(({ reason }) => String(reason).includes("the machine may be too busy"));
const TOO_SLOW = "the machine is too slow now for the demo's own time limit";

describe("the demo", { timeout: patience(120_000) }, () => {
  test("with --use-server uses a temporary database, and leaves none behind", async ({ skip }) => {
    const database = await createTestDatabase();
    const { demo } = startDemo(["--use-server"], { DATABASE_URL: database.url });
    const demos = "select datname from pg_database where datname like 'sealpost\\_demo\\_%'";
    const { code } = await demo.finished;
    const events = demo.lines;
    expect((await database.pool.query(demos)).rows).toEqual([]);
    skip(wasTooSlow(events), TOO_SLOW);
    expect(code, JSON.stringify(events)).toBe(0);
    expect(await countRows(database.pool, "deliveries")).toBe(0);
    await database.drop();
  });

  test("delivers, retries, abandons, replays and refuses; stays with --stay; leaves nothing behind", async ({
    skip,
  }) => {
    const { demo, until, folder } = startDemo(["--stay"]);
    const path = await folder();
    expect(existsSync(path)).toBe(true);
    const { url, api_key } = await until(({ event }) => event === "staying").catch((error: unknown) => {
      skip(wasTooSlow(demo.lines), TOO_SLOW);
      throw error;
    });
    const events = demo.lines;
    expect(events).toContainEqual({ event: "verdict", is_right: true });
    const headers = { authorization: `Bearer ${api_key}` };
    const response = await fetch(`${url}/v1/webhooks/deliveries`, { headers });
    expect(await response.json()).toMatchObject({ total: 6 });

    const attempts = events.filter(({ event }) => event === "attempt");
    const outcomesOf = (analysisId: string) =>
      attempts.filter((one) => one.analysis_id === analysisId).map((one) => one.status_code);
    expect(outcomesOf("invoice-1001")).toEqual([204]);
    expect(outcomesOf("report-1004")).toEqual([503, 503, 204]);
    expect(outcomesOf("statement-1005")).toEqual([...Array(8).fill(500), 204]);
    expect(outcomesOf("draft-1006")).toEqual([]);
    expect(events.find(({ event }) => event === "replayed")).toMatchObject({ status: 202 });
    expect(events.find(({ event }) => event === "forgery")).toMatchObject({ status: 400 });

    const nodes = events.filter(({ event }) => event === "node_ended");
    expect(nodes.map(({ node_name, status, items }) => [node_name, status, items])).toEqual([
      ["Start", "SUCCEEDED", 1],
      ["Documents", "SUCCEEDED", 3],
      ["Analysis", "SUCCEEDED", 3],
    ]);
    expect(outcomesOf(String(nodes[0]?.run_id))).toEqual([204]);

    await demo.stop("SIGINT");
    expect(await demo.finished).toMatchObject({ code: 0, stderr: "" });
    expect(existsSync(path)).toBe(false);
  });

  test("ends early on SIGTERM, and says so", async () => {
    const { demo, until, folder } = startDemo();
    await until(({ event }) => event === "published");
    expect(await demo.stop()).toBe(1);
    expect(demo.lines.at(-1)).toEqual({ event: "ended" });
    expect(existsSync(await folder())).toBe(false);
  });

  test("killed, it leaves no process and no folder behind", async () => {
    const { demo, until, folder } = startDemo();
    await until(startedAt("api"));
    const path = await folder();
    // Its children hold the other end of the same output: it closes when the last of them has ended.
    await demo.stop("SIGKILL");
    await untilGone(path);
  });

  test("says what is wrong when the service does not start", async () => {
    const other = createServer();
    await once(other.listen(0, "127.0.0.1"), "listening");
    const { port } = other.address() as { port: number };
    const { demo } = startDemo([], { PORT: `${port}` });
    expect((await demo.finished).code).toBe(1);
    const failed = demo.lines.find(({ event }) => event === "failed");
    expect(failed?.reason).toContain(
      `The API cannot listen on HOST 127.0.0.1, PORT ${port} (EADDRINUSE): another`,
    );
    other.close();
  });
});

async function untilGone(path: string): Promise<void> {
  const watcher = watch("/tmp");
  try {
    while (existsSync(path)) await once(watcher, "change");
  } finally {
    watcher.close();
  }
}
