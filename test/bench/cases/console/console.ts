import { setTimeout as wait } from "node:timers/promises";
import { gzipSync } from "node:zlib";
import { openConsole } from "../../../../src/app/console-sessions.ts";
import { findProgram } from "../../../support/programs.ts";
import type { SealpostProcess } from "../../../support/sealpost-process.ts";
import type { Bench } from "../../bench.ts";
import type { BenchDatabase } from "../../database.ts";
import { type BenchCase, type Figure, median, percentile } from "../../figures.ts";
import { takeSnapshot } from "../../measuring/snapshot.ts";
import { countSeeded, seedLog } from "../../seeding.ts";
import { timeStream } from "../../timed.ts";
import { loadPages } from "./page-loads.ts";
import { enterViewers, type Viewers } from "./viewers.ts";

const DELIVERIES = 2_000_000;
const DAYS = 20;
const DELIVERED_PER_SECOND = 900;
const BATCH = 10;
const WARM_UP_MS = 5_000;
const ANSWERING_MS = 15_000;
/** Idle connections are closed by then: what a server process has taken goes with it, and would be missing. */
const AT_REST_MS = 12_000;
const WATCHING_MS = 30_000;
const PAGE_LOADS = 10;
const VIEWERS = 100;
/** As the console's script does while a page is visible. */
const REFRESH_MS = 5_000;

const GOALS = { answerMs: 100, paintMs: 400, shift: 0, requests: 4, pageKb: 16, corePercent: 5 };

export const consolePages: BenchCase<Bench> = {
  name: "console",
  says:
    "2,000,000 deliveries of 20 days, all of one account, while 900 a second are delivered: its console's pages, " +
    "asked one after the other by two viewers; its first page in Chromium; and 100 viewers who leave it open.",
  run: async (bench, tell) => {
    const database = await bench.server.createDatabase();
    const [accountId = ""] = bench.server.accountIds;
    await seedLog(database.pool, [accountId], {
      firstDaysAgo: 1,
      days: DAYS,
      deliveries: DELIVERIES * bench.scale,
      largeAccountId: accountId,
      body: null,
    });
    await countSeeded(database.pool, DAYS + 1);
    tell("the log is filled");
    const dispatcher = await bench.startDispatcher(database, { inFlightMax: bench.inFlightMax ?? 256 });
    const api = await bench.startApi(database);
    const publisher = bench.startPublisher(database);
    const viewers = await enterViewers(database, api, accountId, VIEWERS);
    await bench.behave({ isTiming: true });
    const watched = {
      database,
      dispatcherPids: [dispatcher.pid],
      apiPid: api.pid,
      receiverPid: bench.receiverPid,
    };
    const figures: Figure[] = [];
    const timed = await timeStream(
      bench,
      publisher,
      {
        accountIds: bench.server.accountIds,
        perSecond: DELIVERED_PER_SECOND,
        batch: BATCH,
        warmUpMs: WARM_UP_MS,
        durationMs: 0,
      },
      async () => {
        figures.push(...(await answers(viewers, await findSeeded(database), ANSWERING_MS * bench.scale)));
        figures.push(...(await paints(database, api, accountId, tell)));
        const serveShare = () => shareOfServe({ ...watched, publisherPid: null }, WATCHING_MS * bench.scale);
        await wait(AT_REST_MS);
        const before = await serveShare();
        const [share, refreshes] = await leaveOpen(viewers, serveShare);
        figures.push(
          {
            name: `${VIEWERS} open viewers: of a core`,
            value: (share - before) * 100,
            unit: "%",
            goal: { atMost: GOALS.corePercent },
          },
          { name: "without them", value: before * 100, unit: "%" },
          { name: "refreshes meanwhile", value: refreshes.count, unit: "" },
          { name: "of them unchanged", value: refreshes.unchanged, unit: "" },
        );
      },
    );
    await viewers.close();
    await publisher.stop();
    await api.stop();
    await dispatcher.kill();
    await database.drop();
    return [...figures, { name: "deliveries meanwhile: p99", value: timed.p99Ms, unit: "ms" }];
  },
};

/** One among millions. */
async function findSeeded({ pool }: BenchDatabase): Promise<string> {
  const { rows } = await pool.query<{ id: string }>(
    "/* bench */ select delivery_id as id from sealpost.analyses offset 1000 limit 1",
  );
  return rows[0]!.id;
}

/** Two viewers who open every page in turn. */
async function answers({ base, open }: Viewers, seededId: string, durationMs: number): Promise<Figure[]> {
  const { text } = await open(0, `${base}/deliveries`);
  const delivery = /\/deliveries\/[0-9a-f-]{36}/.exec(text)?.[0];
  const paths: Readonly<Record<string, string>> = {
    "first page": "/deliveries",
    "needs attention": "/deliveries?status=failed&status=abandoned",
    "error code": "/deliveries?error_code=connect_timeout",
    "target host": "/deliveries?target_host=h7.example.com",
    "a delivery": delivery ?? "/deliveries",
    replays: "/replays",
    endpoint: "/endpoint",
    ...Object.fromEntries(
      Object.entries({
        "a delivery's id": seededId,
        "an analysis's id": `seeded-${seededId}`,
        "the beginning of all of them": "seeded-",
        "a host": "h7.example.com",
        "the beginning of a host": "h7",
        "what nothing is called": "nobody",
      }).map(([name, text]) => [`search for ${name}`, `/deliveries?q=${text}`]),
    ),
  };
  const tookMs = new Map(Object.keys(paths).map((name) => [name, [] as number[]]));
  const endsAtMs = performance.now() + durationMs;
  const look = async (viewer: number) => {
    do {
      for (const [name, path] of Object.entries(paths)) {
        const startedAtMs = performance.now();
        await open(viewer, base + path);
        tookMs.get(name)?.push(performance.now() - startedAtMs);
      }
    } while (performance.now() < endsAtMs);
  };
  await Promise.all([look(0), look(1)]);
  const goal = { atMost: GOALS.answerMs };
  return [
    ...[...tookMs].map(([name, times]) => ({
      name: `${name}: p95`,
      value: percentile(times, 0.95),
      unit: "ms",
      goal,
    })),
    {
      name: "first page, gzip",
      value: gzipSync(text, { level: 9 }).length / 1_000,
      unit: "KB",
      goal: { atMost: GOALS.pageKb },
    },
  ];
}

async function paints(
  { pool }: BenchDatabase,
  { url }: SealpostProcess,
  accountId: string,
  tell: (line: string) => void,
): Promise<Figure[]> {
  if (findProgram("chromium") === null) {
    tell(
      "there is no Chromium (Debian's package chromium): what a browser makes of the page is not measured",
    );
    return [];
  }
  const link = await openConsole(pool, accountId, { publicUrl: url, linkSeconds: 60 });
  const loads = await loadPages(link.url, PAGE_LOADS);
  const paintsMs = loads.map(({ largestPaintMs }) => largestPaintMs);
  return [
    {
      name: "largest paint, median",
      value: median(paintsMs),
      unit: "ms",
      goal: { atMost: GOALS.paintMs },
    },
    { name: "largest paint, longest", value: Math.max(...paintsMs), unit: "ms" },
    {
      name: "layout shift",
      value: Math.max(...loads.map(({ shift }) => shift)),
      unit: "",
      goal: { atMost: GOALS.shift },
    },
    {
      name: "requests",
      value: Math.max(...loads.map(({ requests }) => requests)),
      unit: "",
      goal: { atMost: GOALS.requests },
    },
  ];
}

/** What `serve` and its part of PostgreSQL take of one core, on average over that time. */
async function shareOfServe(
  watched: Parameters<typeof takeSnapshot>[0],
  durationMs: number,
): Promise<number> {
  const first = await takeSnapshot(watched);
  await wait(durationMs);
  const last = await takeSnapshot(watched);
  const spent = ["serve", "PostgreSQL: sealpost serve"].map(
    (name) => (last.cpu.get(name) ?? 0) - (first.cpu.get(name) ?? 0),
  );
  return spent.reduce((sum, each) => sum + each, 0) / ((last.atMs - first.atMs) * 1_000);
}

/** Every viewer asks for his page again at his own beat, until `meanwhile` is over. */
async function leaveOpen<Result>(
  { base, refresh }: Viewers,
  meanwhile: () => Promise<Result>,
): Promise<[Result, { count: number; unchanged: number }]> {
  const refreshes = { count: 0, unchanged: 0 };
  const ending = new AbortController();
  const stay = async (viewer: number) => {
    let tag: string | null = null;
    await wait((viewer / VIEWERS) * REFRESH_MS, null, { signal: ending.signal });
    for (;;) {
      const opened: Awaited<ReturnType<Viewers["refresh"]>> = await refresh(
        viewer,
        `${base}/deliveries`,
        tag,
      );
      refreshes.count += 1;
      if (opened.status === 304) refreshes.unchanged += 1;
      tag = opened.tag;
      await wait(REFRESH_MS, null, { signal: ending.signal });
    }
  };
  const staying = Array.from({ length: VIEWERS }, (_, viewer) =>
    stay(viewer).catch((error: unknown) => {
      if (!ending.signal.aborted) throw error;
    }),
  );
  const result = await Promise.race([meanwhile(), Promise.all(staying) as Promise<never>]);
  ending.abort();
  await Promise.all(staying);
  return [result, refreshes];
}
