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

const PER_SECOND = 900;
const WARM_UP_MS = 5_000;
const DURATION_MS = 20_000;
/** Of four: without, with, with, without, so that a machine that slows down slows both down. */
const ROUNDS = 2;
const RUNS = 50;
const DOCUMENTS = 50;
const TEXT = Buffer.from("What a document of a few pages says, and says again. ".repeat(100));
const LOOK_EVERY_MS = 100;

type Found = Pick<Timed, "p50Ms" | "p99OfSecondMs"> & { readonly ended: number };

export const runs: BenchCase<Bench> = {
  name: "runs",
  says:
    `What ${RUNS} workflow runs of ${DOCUMENTS} documents each, which go on all the time, cost webhooks at ` +
    `${PER_SECOND} a second.`,
  run: async (bench, tell) => {
    const without: Found[] = [];
    const beside: Found[] = [];
    for (let round = 0; round < ROUNDS; round++) {
      without.push(await measure(bench, tell, false));
      beside.push(await measure(bench, tell, true));
      beside.push(await measure(bench, tell, true));
      without.push(await measure(bench, tell, false));
    }
    const share = (figure: keyof Found) => median(beside, figure) / median(without, figure);
    return [
      { name: "p50 without", value: median(without, "p50Ms"), unit: "ms" },
      { name: "p50 beside runs", value: median(beside, "p50Ms"), unit: "ms" },
      { name: "p50, beside ÷ without", value: share("p50Ms"), unit: "", goal: { atMost: 1.2 } },
      { name: "p99 of the median second, without", value: median(without, "p99OfSecondMs"), unit: "ms" },
      { name: "p99 of the median second, beside", value: median(beside, "p99OfSecondMs"), unit: "ms" },
      { name: "p99, beside ÷ without", value: share("p99OfSecondMs"), unit: "" },
      { name: "runs ended meanwhile", value: median(beside, "ended"), unit: "" },
    ] satisfies Figure[];
  },
};

async function measure(bench: Bench, tell: (line: string) => void, hasRuns: boolean): Promise<Found> {
  const stateDir = await mkdtemp(join(tmpdir(), "sealpost-bench-runs-"));
  const database = await bench.server.createDatabase();
  const env = { STATE_DIR: stateDir };
  const api = await bench.startApi(database, env);
  const dispatcher = await bench.startDispatcher(database, { inFlightMax: bench.inFlightMax ?? 1_000, env });
  const publisher = bench.startPublisher(database);
  await bench.behave({ isTiming: true });
  const stopping = new AbortController();
  const going = hasRuns ? keepRunning(database, api.url, stopping.signal) : Promise.resolve(0);
  const timed = await timeStream(bench, publisher, {
    accountIds: bench.server.accountIds,
    perSecond: PER_SECOND,
    batch: 1,
    warmUpMs: WARM_UP_MS,
    durationMs: DURATION_MS * bench.scale,
  });
  stopping.abort();
  const ended = await going;
  await publisher.stop();
  await Promise.all([dispatcher.stop(), api.stop()]);
  for (const line of dispatcher.lines) tell(line);
  await database.drop();
  await rm(stateDir, { recursive: true });
  tell(`${hasRuns ? `beside ${ended} runs` : "without runs"}: p50 ${timed.p50Ms} ms`);
  return { ...timed, ended };
}

/** Of an account without an endpoint: what the runs publish goes nowhere. Returns how many have ended. */
async function keepRunning({ pool }: BenchDatabase, url: string, signal: AbortSignal): Promise<number> {
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
  const count =
    "count(*) filter (where completed_at is null)::integer as going, count(*)::integer as started";
  for (;;) {
    const { rows } = await pool.query<{ going: number; started: number }>(
      `/* bench */ select ${count} from workspace.runs`,
    );
    const { going, started } = rows[0]!;
    if (signal.aborted) return started - going;
    for (let n = going; n < RUNS; n++) await ask("POST", `/v1/workflows/${id}/runs`);
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
