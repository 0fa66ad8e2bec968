// From the version before to the working copy, while analyses are published and delivered. The schema, the tenants
// and the deliveries that the new code meets were made by the old release's own processes.
import { deepEqual, equal, ok } from "node:assert/strict";
import pg from "pg";
import { describe, expect, test } from "vitest";
import { readMigrationNames } from "../../src/base/database/migrate.ts";
import { tryToLockTable } from "../../src/base/database/table-lock.ts";
import { AREAS } from "../../src/base/model/areas.ts";
import type { Verdict } from "../faults/harness/checker.ts";
import { inWords } from "../faults/harness/figures.ts";
import { countsOf, expectSafe, type Figures, until } from "../faults/harness/scenario.ts";
import { isComplaint } from "../support/child-processes.ts";
import type { SealpostProcess } from "../support/sealpost-process.ts";
import { patience } from "../support/time-limits.ts";
import { type ApiReply, call } from "./api-call.ts";
import { type Api, answerOf, Installation, type Tenant } from "./installation.ts";
import { OldWorld } from "./old-world.ts";

/** How many more attempts a dispatcher makes until it counts as taking part. */
const ATTEMPTS = 15;

describe.concurrent("from the version before to this one, under load", { timeout: patience(180_000) }, () => {
  test("old and new work side by side, then the old are ended with SIGTERM", async () => {
    await inOldWorld(async (world) => {
      const { installation, api: oldApi, dispatcher: oldDispatcher, tenant, down, pipeline } = world;
      const states = await world.reachEveryState();
      world.startLoad();
      const countUnderWay = await migrateTwiceAtOnce(installation);

      const newApi = await installation.serve("new");
      pipeline.apis = [oldApi.url, newApi.url];
      // Asked for at the new API, done by the old dispatcher, which alone is there.
      await world.rotateSecretAt(newApi);
      await world.holdAt(newApi);
      const replay = await world.replayAt(newApi, "down");

      const newDispatcher = await installation.dispatch("new");
      await Promise.all([oldDispatcher, newDispatcher].map(makesAttempts));
      await expectSameReads(oldApi, newApi, tenant, replay, down);
      await world.expectSameReplies(newApi);
      await world.expectSameReplies(oldApi);

      await endsWell(oldDispatcher);
      await world.replayAt(oldApi, "silent");
      await endsWell(oldApi.process);
      await makesAttempts(newDispatcher);
      const verdict = await endUndisturbed(world);
      deepEqual([oldApi.process, oldDispatcher, newApi.process, newDispatcher].flatMap(warningsOf), []);
      const attempts = await countUnderWay();
      ok(attempts > 0);
      tell("upgraded", world, verdict, { "under way": attempts, "states before": JSON.stringify(states) });
    });
  });

  test("processes follow each other as the chart's pods, and no answer is a 5xx but 503 with Retry-After", async () => {
    await inOldWorld(async (world) => {
      const { installation, tenant, pipeline } = world;
      await installation.setEndpoint(tenant, "/");
      const apis = [world.api, await installation.serve("old")];
      const dispatchers = [world.dispatcher, await installation.dispatch("old")];
      pipeline.apis = apis.map(({ url }) => url);
      world.startLoad();
      await installation.run("new", "migrate");

      // None less than before, and one more while it is started. Two things are harder than they are there: what ends
      // is still asked first, and it is told to end without a pause before.
      const rollApis = async () => {
        for (const old of apis) {
          const { url } = await installation.serve("new");
          pipeline.apis = [old.url, ...pipeline.apis.filter((other) => other !== old.url), url];
          await endsWell(old.process);
          pipeline.apis = pipeline.apis.slice(1);
        }
      };
      const rollDispatchers = async () => {
        const started: SealpostProcess[] = [];
        for (const old of dispatchers) {
          started.push(await installation.dispatch("new"));
          await endsWell(old);
        }
        await Promise.all(started.map(makesAttempts));
      };
      await Promise.all([rollApis(), rollDispatchers()]);
      const verdict = await endUndisturbed(world);
      tell("rolled", world, verdict, { "answered 503 with Retry-After": pipeline.sentAway });
    });
  });

  test("the old are killed -9, and the old code is put back on the new schema", async () => {
    await inOldWorld(async (world) => {
      const { installation, api: oldApi, dispatcher: oldDispatcher, tenant, down, pipeline } = world;
      await world.reachEveryState();
      world.startLoad();
      await installation.run("new", "migrate");
      const [newApi, newDispatcher] = await Promise.all([
        installation.serve("new"),
        installation.dispatch("new"),
      ]);
      pipeline.apis = [oldApi.url, newApi.url];
      await Promise.all([oldDispatcher, newDispatcher].map(makesAttempts));

      let inFlight = 0;
      await until(async () => {
        inFlight = await installation.cluster.countLeased();
        return inFlight > 0;
      });
      await Promise.all([oldDispatcher.kill(), oldApi.process.kill()]);
      await makesAttempts(newDispatcher);

      deepEqual(await installation.run("old", "migrate"), { applied: [] });
      const [oldApiAgain, oldDispatcherAgain] = await Promise.all([
        installation.serve("old"),
        installation.dispatch("old"),
      ]);
      pipeline.apis = [newApi.url, oldApiAgain.url];
      await world.rotateSecretAt(newApi);
      const replay = await world.replayAt(newApi, "down");
      await expectSameReads(oldApiAgain, newApi, tenant, replay, down);
      await world.expectSameReplies(oldApiAgain);
      await Promise.all([newDispatcher, newApi.process].map(endsWell));
      await world.replayAt(oldApiAgain, "silent");
      await makesAttempts(oldDispatcherAgain);
      await world.endLoad();
      await installation.drain();

      const verdict = await installation.cluster.check(pipeline.publications);
      expectSafe(verdict);
      const { duplicated, interrupted, unanswered, atOnceMax, succeeded } = verdict;
      equal(succeeded, pipeline.publications.length);
      equal(atOnceMax, 1);
      const explained = `${duplicated} duplicates of ${interrupted} interrupted attempts, ${unanswered} unanswered`;
      ok(duplicated <= interrupted, explained);
      tell("put back", world, verdict, { "in flight when killed": inFlight });
    });
  });
});

async function inOldWorld(play: (world: OldWorld) => Promise<void>): Promise<void> {
  const installation = await Installation.create();
  let world: OldWorld | null = null;
  try {
    world = await OldWorld.found(installation);
    await play(world);
  } catch (error) {
    throw new Error(`${String(error)}\n${installation.cluster.troubles()}`, { cause: error });
  } finally {
    await world?.close();
    await installation.close();
  }
}

/**
 * Both wait for their turn while another seems to migrate; then one does, and the other finds nothing to do.
 * Returns what counts the attempts that were under way when it could begin; to be asked when they have ended.
 */
async function migrateTwiceAtOnce(installation: Installation): Promise<() => Promise<number>> {
  const { pool, databaseUrl } = installation.cluster;
  const before = new Set((await appliedTo(pool)).map(({ name }) => name));
  const other = new pg.Client({ connectionString: databaseUrl });
  await other.connect();
  // The lock that every migration takes, once somebody has made it.
  await other.query("create table if not exists sealpost.migration_lock ()");
  equal(await tryToLockTable(other, "migration_lock"), true);
  const [one, two] = [installation.spawn("new", "migrate"), installation.spawn("new", "migrate")];
  await until(() => [one, two].every(({ errors }) => errors.includes("waiting for it")));
  await until(async () => (await installation.cluster.countLeased()) > 0);
  const { rows } = await other.query("select clock_timestamp() as at");
  await other.end();
  const answers = await Promise.all([answerOf(one), answerOf(two)]);

  const names = await readMigrationNames(AREAS);
  deepEqual(
    (await appliedTo(pool)).map(({ name }) => name),
    names,
  );
  const expected = names.filter((name) => !before.has(name));
  deepEqual(answers.flatMap(({ applied }) => applied).sort(), expected);
  // The new version has posted nothing yet, and the old one proves nobody.
  const proven = await pool.query("select from sealpost.receivers where proven_at is not null");
  ok(proven.rowCount! > 0, "who has succeeded is proven by then");
  return async () => {
    const underWay = "select from sealpost.attempts where started_at < $1 and ended_at > $1";
    return (await pool.query(underWay, [rows[0].at])).rowCount!;
  };
}

async function appliedTo(pool: pg.Pool): Promise<{ name: string }[]> {
  return (await pool.query<{ name: string }>("select name from sealpost.migrations order by name")).rows;
}

/** Resolves when it has made some more attempts, from now on. */
async function makesAttempts(process: SealpostProcess): Promise<void> {
  const before = new Set(process.lines);
  let left = ATTEMPTS;
  await process.waitForLine((line) => line.msg === "attempt" && !before.has(line) && --left === 0);
}

/** All that was published has arrived, once. */
async function endUndisturbed(world: OldWorld): Promise<Verdict> {
  const { installation, pipeline } = world;
  await world.endLoad();
  await installation.drain();
  const verdict = await installation.cluster.check(pipeline.publications);
  expectSafe(verdict);
  const { duplicated, interrupted, atOnceMax, succeeded } = verdict;
  deepEqual(
    { duplicated, interrupted, atOnceMax, succeeded },
    { duplicated: 0, interrupted: 0, atOnceMax: 1, succeeded: pipeline.publications.length },
  );
  return verdict;
}

async function endsWell(process: SealpostProcess): Promise<void> {
  equal(await process.stop(), 0);
}

/** What it complained of, the announcement of unsafe settings apart. */
function warningsOf({ errors, lines }: SealpostProcess): string[] {
  const warnings = lines.filter(isComplaint);
  return [...(errors === "" ? [] : [errors]), ...warnings.map((line) => JSON.stringify(line))];
}

/**
 * Whatever the old one answers, the new one answers too; it may have more to say, other words for what is meant for
 * people, and a duration of interrupted attempts is what only the old one tells. The replay (its path) and the
 * deliveries, all to one host, have ended.
 */
async function expectSameReads(
  oldApi: Api,
  newApi: Api,
  tenant: Tenant,
  replay: string,
  deliveryIds: readonly string[],
): Promise<void> {
  const { apiKey } = tenant;
  const read = (api: Api, path: string) => call(api.url, { method: "GET", path, apiKey });
  const expectSame = async (path: string): Promise<Record<string, unknown>> => {
    const [said, alsoSaid] = await Promise.all([read(oldApi, path), read(newApi, path)]);
    equal(said.status, 200, `${path}: ${said.text}`);
    equal(alsoSaid.status, 200, `${path}: ${alsoSaid.text}`);
    expect(parse(alsoSaid), path).toMatchObject(withoutProse(parse(said)) as object);
    return parse(said);
  };
  await expectSame("/v1/webhooks/endpoint");
  await expectSame("/v1/webhooks/signing-secret");
  equal((await expectSame(replay)).status, "done");

  const list = "/v1/webhooks/deliveries?target_host=down.localhost&status=succeeded&limit=5";
  const listed = new Set<unknown>();
  // A page's cursor is the one API's, and both go on from there.
  for (let cursor: unknown = ""; cursor !== null; ) {
    const page = await expectSame(`${list}${cursor && `&cursor=${cursor}`}`);
    for (const { id } of page.items as { id: string }[]) listed.add(id);
    cursor = page.next_cursor;
  }
  deepEqual(listed, new Set(deliveryIds));

  for (const id of deliveryIds) {
    const { analysis_id, attempts, attempts_count } = await expectSame(`/v1/webhooks/deliveries/${id}`);
    equal((attempts as unknown[]).length, attempts_count);
    const path = `/v1/analyses/${analysis_id}`;
    deepEqual(await read(oldApi, path), await read(newApi, path));
  }
}

const parse = ({ text }: ApiReply) => JSON.parse(text) as Record<string, unknown>;

function withoutProse(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withoutProse);
  if (typeof value !== "object" || value === null) return value;
  const wasInterrupted = (value as { outcome?: unknown }).outcome === "interrupted";
  const left = ["explanation", "error_message", ...(wasInterrupted ? ["duration_ms", "target_url"] : [])];
  const members = Object.entries(value).filter(([name]) => !left.includes(name));
  return Object.fromEntries(members.map(([name, member]) => [name, withoutProse(member)]));
}

function tell(name: string, { pipeline }: OldWorld, verdict: Verdict, figures: Figures): void {
  const { rolledBack, slowestMs } = pipeline;
  const told = { ...countsOf(verdict), "rolled back": rolledBack, "slowest publish ms": slowestMs };
  console.log(inWords(name, { ...told, ...figures }));
}
