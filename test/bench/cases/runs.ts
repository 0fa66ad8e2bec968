import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import type { Bench } from "../bench.ts";
import type { BenchDatabase } from "../database.ts";
import { type BenchCase, type Figure, median } from "../figures.ts";
import { type Timed, timeStream } from "../timed.ts";
import { openWorkspace, publishWorkflow } from "../workspace.ts";

/** The first is what two cores just carry; with the second they have room. */
const RATES = [900, 450];
const WARM_UP_MS = 5_000;
const DURATION_MS = 20_000;
/** Odd: one of them is in the middle. What comes first in a pair alternates. */
const PAIRS = 5;
const RUNS = 50;
const DOCUMENTS = 50;
const LOOK_EVERY_MS = 100;

/** Runs that go on before the first webhook is timed, that begin when it is, or none. */
type Beside = "runs" | "beginnings" | "nothing";

type Found = Pick<Timed, "p50Ms" | "p99OfSecondMs" | "p99OfWorstSecondMs"> & { readonly items: number };
type Pair = { readonly without: Found; readonly beside: Found };

export const runs: BenchCase<Bench> = {
  name: "runs",
  says:
    `What ${RUNS} workflow runs of ${DOCUMENTS} documents each, which go on all the time, cost webhooks at ` +
    `${RATES.join(" and ")} a second, and what it costs when all of them begin at once.`,
  run: async (bench, tell) => {
    // The first of all is slower, whatever it is of.
    await measure(bench, tell, RATES[0]!, "nothing");
    const figures: Figure[] = [];
    for (const perSecond of RATES) figures.push(...(await compare(bench, tell, perSecond)));
    return figures;
  },
};

async function compare(bench: Bench, tell: (line: string) => void, perSecond: number): Promise<Figure[]> {
  const ask = (beside: Beside) => measure(bench, tell, perSecond, beside);
  const pairs: Pair[] = [];
  for (let n = 0; n < PAIRS; n++) {
    const first = await ask(n % 2 === 0 ? "nothing" : "runs");
    const second = await ask(n % 2 === 0 ? "runs" : "nothing");
    pairs.push(n % 2 === 0 ? { without: first, beside: second } : { without: second, beside: first });
  }
  const begun = await ask("beginnings");
  const share = (figure: keyof Found) => pairs.map(({ without, beside }) => beside[figure] / without[figure]);
  const value = (kind: keyof Pair, figure: keyof Found) => median(pairs.map((pair) => pair[kind][figure]));
  const ratios = share("p50Ms");
  const p99 = "p99OfSecondMs";
  const at = `at ${perSecond}/s`;
  return [
    { name: `${at}: p50 without`, value: value("without", "p50Ms"), unit: "ms" },
    { name: `${at}: p50 beside runs`, value: value("beside", "p50Ms"), unit: "ms" },
    {
      name: `${at}: p50, beside ÷ without, median pair`,
      value: median(ratios),
      unit: "",
      goal: { atMost: 1.2 },
    },
    { name: `${at}: the same, best pair`, value: Math.min(...ratios), unit: "" },
    { name: `${at}: the same, worst pair`, value: Math.max(...ratios), unit: "" },
    { name: `${at}: p99 of the median second, without`, value: value("without", p99), unit: "ms" },
    { name: `${at}: p99 of the median second, beside`, value: value("beside", p99), unit: "ms" },
    { name: `${at}: p99, beside ÷ without, median pair`, value: median(share(p99)), unit: "" },
    { name: `${at}: items that nodes handed on meanwhile`, value: value("beside", "items"), unit: "" },
    { name: `${at}: p50 when all runs begin at once`, value: begun.p50Ms, unit: "ms" },
    { name: `${at}: p99 of the worst second then`, value: begun.p99OfWorstSecondMs, unit: "ms" },
    {
      name: `${at}: p99 of the worst second, without`,
      value: value("without", "p99OfWorstSecondMs"),
      unit: "ms",
    },
  ];
}

async function measure(
  bench: Bench,
  tell: (line: string) => void,
  perSecond: number,
  beside: Beside,
): Promise<Found> {
  const stateDir = await mkdtemp(join(tmpdir(), "sealpost-bench-runs-"));
  const database = await bench.server.createDatabase();
  const env = { STATE_DIR: stateDir };
  const api = await bench.startApi(database, env);
  const dispatcher = await bench.startDispatcher(database, { inFlightMax: bench.inFlightMax ?? 1_000, env });
  const publisher = bench.startPublisher(database);
  await bench.behave({ isTiming: true });
  const stopping = new AbortController();
  // Made beforehand in any case: what it costs is no run's.
  const start = await prepareRuns(database, api.url);
  const begin = () => keepRunning(database, start, stopping.signal);
  let going = beside === "runs" ? await begin() : null;
  const stream = {
    accountIds: bench.server.accountIds,
    perSecond,
    batch: 1,
    warmUpMs: WARM_UP_MS,
    durationMs: DURATION_MS * bench.scale,
  };
  const timed = await timeStream(bench, publisher, stream, async () => {
    if (beside === "beginnings") going = await begin();
  });
  stopping.abort();
  const items = (await going?.ended) ?? 0;
  await publisher.stop();
  await Promise.all([dispatcher.stop(), api.stop()]);
  for (const line of dispatcher.texts) tell(line);
  await database.drop();
  await rm(stateDir, { recursive: true });
  if (beside === "runs" && items === 0) {
    throw new Error("No node has handed anything on: nothing was measured.");
  }
  tell(`${perSecond}/s beside ${beside}: p50 ${timed.p50Ms.toFixed(1)} ms, ${items} items`);
  return { ...timed, items };
}

type StartRun = () => Promise<unknown>;

/** Of an account without an endpoint: what the runs publish goes nowhere. */
async function prepareRuns({ pool }: BenchDatabase, url: string): Promise<StartRun> {
  const ask = await openWorkspace(pool, url);
  const id = await publishWorkflow(ask, "manual_trigger", DOCUMENTS);
  return () => ask("POST", `/v1/workflows/${id}/runs`);
}

type Going = {
  /** How many items the runs' nodes have handed on from when they were all going to when it was called off. */
  readonly ended: Promise<number>;
};

/** Resolves when all of them go on, and keeps as many going until it is called off. */
async function keepRunning({ pool }: BenchDatabase, start: StartRun, signal: AbortSignal): Promise<Going> {
  const look = async () => {
    const { rows } = await pool.query<{ going: number; items: number }>(
      `/* bench */ select count(*) filter (where completed_at is null)::integer as going,
         coalesce(sum(item_count), 0)::integer as items
       from workspace.runs`,
    );
    return rows[0]!;
  };
  const keep = async () => {
    const { going, items } = await look();
    for (let n = going; n < RUNS; n++) await start();
    return items;
  };
  let before = 0;
  while (before === 0) {
    before = await keep();
    await wait(LOOK_EVERY_MS);
  }
  const untilCalledOff = async () => {
    for (;;) {
      await wait(LOOK_EVERY_MS);
      if (signal.aborted) return (await look()).items - before;
      await keep();
    }
  };
  return { ended: untilCalledOff() };
}
