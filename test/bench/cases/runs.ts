import { createHash, randomUUID } from "node:crypto";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import { createApiKey } from "../../../src/app/create-api-key.ts";
import { readConfig } from "../../../src/config/read-config.ts";
import { scopes } from "../../../src/model/api-keys.ts";
import { createAccount } from "../../../src/store/accounts.ts";
import { insertUser } from "../../../src/store/users.ts";
import type { Bench } from "../bench.ts";
import type { BenchDatabase } from "../database.ts";
import { type BenchCase, type Figure, percentile } from "../figures.ts";
import { SECRETS_KEY } from "../processes/dispatcher.ts";
import { type Timed, timeStream } from "../timed.ts";

/** The first is what two cores just carry; with the second they have room. */
const RATES = [900, 450];
const WARM_UP_MS = 5_000;
const DURATION_MS = 20_000;
/** Of four: without, with, with, without, so that a machine that slows down slows both down. */
const ROUNDS = 2;
const RUNS = 50;
const DOCUMENTS = 50;
const TEXT = Buffer.from("What a document of a few pages says, and says again. ".repeat(100));
const LOOK_EVERY_MS = 100;

type Found = Pick<Timed, "p50Ms" | "p99OfSecondMs"> & { readonly items: number };

export const runs: BenchCase<Bench> = {
  name: "runs",
  says:
    `What ${RUNS} workflow runs of ${DOCUMENTS} documents each, which go on all the time, cost webhooks at ` +
    `${RATES.join(" and ")} a second.`,
  run: async (bench, tell) => {
    const figures: Figure[] = [];
    for (const perSecond of RATES) figures.push(...(await compare(bench, tell, perSecond)));
    return figures;
  },
};

async function compare(bench: Bench, tell: (line: string) => void, perSecond: number): Promise<Figure[]> {
  const without: Found[] = [];
  const beside: Found[] = [];
  for (let round = 0; round < ROUNDS; round++) {
    without.push(await measure(bench, tell, perSecond, false));
    beside.push(await measure(bench, tell, perSecond, true));
    beside.push(await measure(bench, tell, perSecond, true));
    without.push(await measure(bench, tell, perSecond, false));
  }
  const share = (figure: keyof Found) => median(beside, figure) / median(without, figure);
  const at = `at ${perSecond}/s`;
  return [
    { name: `${at}: p50 without`, value: median(without, "p50Ms"), unit: "ms" },
    { name: `${at}: p50 beside runs`, value: median(beside, "p50Ms"), unit: "ms" },
    { name: `${at}: p50, beside ÷ without`, value: share("p50Ms"), unit: "", goal: { atMost: 1.2 } },
    { name: `${at}: p99 of the median second, without`, value: median(without, "p99OfSecondMs"), unit: "ms" },
    { name: `${at}: p99 of the median second, beside`, value: median(beside, "p99OfSecondMs"), unit: "ms" },
    { name: `${at}: p99, beside ÷ without`, value: share("p99OfSecondMs"), unit: "" },
    {
      name: `${at}: items that the runs' nodes handed on meanwhile`,
      value: median(beside, "items"),
      unit: "",
    },
  ];
}

async function measure(
  bench: Bench,
  tell: (line: string) => void,
  perSecond: number,
  hasRuns: boolean,
): Promise<Found> {
  const stateDir = await mkdtemp(join(tmpdir(), "sealpost-bench-runs-"));
  const database = await bench.server.createDatabase();
  const env = { STATE_DIR: stateDir };
  const api = await bench.startApi(database, env);
  const dispatcher = await bench.startDispatcher(database, { inFlightMax: bench.inFlightMax ?? 1_000, env });
  const publisher = bench.startPublisher(database);
  await bench.behave({ isTiming: true });
  const stopping = new AbortController();
  // Made beforehand in either case: what it costs is no run's.
  const start = await prepareRuns(database, api.url);
  const going = hasRuns ? keepRunning(database, start, stopping.signal) : Promise.resolve(0);
  const timed = await timeStream(bench, publisher, {
    accountIds: bench.server.accountIds,
    perSecond,
    batch: 1,
    warmUpMs: WARM_UP_MS,
    durationMs: DURATION_MS * bench.scale,
  });
  stopping.abort();
  const items = await going;
  await publisher.stop();
  await Promise.all([dispatcher.stop(), api.stop()]);
  for (const line of dispatcher.lines) tell(line);
  await database.drop();
  await rm(stateDir, { recursive: true });
  if (hasRuns && items === 0) throw new Error("No node has handed anything on: nothing was measured.");
  tell(`${perSecond}/s ${hasRuns ? `beside runs, ${items} items` : "without runs"}: p50 ${timed.p50Ms} ms`);
  return { ...timed, items };
}

type StartRun = () => Promise<unknown>;

/** Of an account without an endpoint: what the runs publish goes nowhere. */
async function prepareRuns({ pool }: BenchDatabase, url: string): Promise<StartRun> {
  const ask = await openWorkspace(pool, url);
  const space_id = (await ask("POST", "/v1/spaces", { name: "bench" })).id;
  const type = "text/plain";
  for (let n = 0; n < DOCUMENTS; n++) {
    const file = { space_id, file_name: `${n}.txt`, content_type: type, file_size: TEXT.length };
    const { id } = await ask("POST", "/v1/documents", file);
    await ask("PUT", `/v1/documents/${id}/content`, TEXT);
  }
  const { id } = await ask("POST", "/v1/workflows", { space_id });
  const node = (kind: string) => ({ id: kind, kind, name: kind, parameters: {} });
  const definition = {
    nodes: [node("manual_trigger"), node("documents"), node("analyze")],
    edges: [
      { from: "manual_trigger", to: "documents" },
      { from: "documents", to: "analyze" },
    ],
  };
  await ask("PUT", `/v1/workflows/${id}/draft`, { revision: 1, definition });
  await ask("POST", `/v1/workflows/${id}/publish`);
  return () => ask("POST", `/v1/workflows/${id}/runs`);
}

/** Returns how many items the runs' nodes have handed on. */
async function keepRunning({ pool }: BenchDatabase, start: StartRun, signal: AbortSignal): Promise<number> {
  for (;;) {
    const { rows } = await pool.query<{ going: number; items: number }>(
      `/* bench */ select count(*) filter (where completed_at is null)::integer as going,
         coalesce(sum(item_count), 0)::integer as items
       from workspace.runs`,
    );
    const { going, items } = rows[0]!;
    if (signal.aborted) return items;
    for (let n = going; n < RUNS; n++) await start();
    await wait(LOOK_EVERY_MS);
  }
}

type Ask = (method: string, path: string, body?: object) => Promise<Record<string, unknown>>;

async function openWorkspace(pool: BenchDatabase["pool"], url: string): Promise<Ask> {
  const { accountId } = await createAccount(pool, "runs", SECRETS_KEY);
  const person = { accountId, idpUserId: "bench", email: "bench@example.com", name: "Bench", imageUrl: null };
  const { id: userId } = (await insertUser(pool, person))!;
  const asked = { accountId, userId, name: null, scopes, expiresInSeconds: null };
  const { apiKey } = await createApiKey(pool, readConfig({}), asked);
  return async (method, path, body = {}) => {
    const isFile = Buffer.isBuffer(body);
    const answer = await fetch(new URL(path, url), {
      method,
      headers: {
        authorization: `Bearer ${apiKey}`,
        "idempotency-key": randomUUID(),
        "content-type": isFile ? "text/plain" : "application/json",
        ...(isFile && {
          "content-digest": `sha-256=:${createHash("sha256").update(body).digest("base64")}:`,
        }),
      },
      body: isFile ? new Uint8Array(body) : JSON.stringify(body),
    });
    const told = (await answer.json()) as Record<string, unknown>;
    if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${JSON.stringify(told)}`);
    return told;
  };
}

function median(found: readonly Found[], figure: keyof Found): number {
  return percentile(
    found.map((one) => one[figure]),
    0.5,
  );
}
