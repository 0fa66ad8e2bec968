// Pausing and resuming with real dispatchers and a receiver.
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { findEndpoint, pauseEndpoint, resumeEndpoint } from "../../src/delivery/endpoint-sql.ts";
import { attemptRows, deliveryRow } from "../support/delivery-rows.ts";
import { startTestDispatcher, type TestDispatcher, targetsEnv } from "../support/dispatching.ts";
import { countRows, createTestAccount, publish, publishMany } from "../support/installation.ts";
import { openDatabase } from "../support/open.ts";
import { type Receiver, startReceiver } from "../support/receiver.ts";
import { type SealpostProcess, startProcess } from "../support/sealpost-process.ts";
import { patience } from "../support/time-limits.ts";

const database = await openDatabase();
let receiver: Receiver;
let accountId: string;
let serial = 0;
const dispatchers: TestDispatcher[] = [];
const processes: SealpostProcess[] = [];

beforeEach(async () => {
  receiver = await startReceiver();
  ({ accountId } = await createTestAccount(database, receiver.url("/in").href));
});
afterEach(async () => {
  for (const dispatcher of dispatchers.splice(0)) await dispatcher.stop();
  for (const one of processes.splice(0)) await one.kill();
  await receiver.close();
});

function start(env: Record<string, string> = {}, more = {}): TestDispatcher {
  const dispatcher = startTestDispatcher(database, [receiver], env, more);
  dispatchers.push(dispatcher);
  return dispatcher;
}
const pauseNow = () => pauseEndpoint(database.pool, accountId);
const resume = () => resumeEndpoint(database.pool, accountId);
const analysis = () => `{"id":"h-${++serial}","status":"succeeded"}`;
const publishSome = async (count: number) => {
  const ids: string[] = [];
  for (let n = 0; n < count; n++) ids.push(await publish(database.pool, accountId, analysis()));
  return ids;
};
const idOf = ({ body }: { readonly body: Buffer }) => (JSON.parse(body.toString()) as { id: string }).id;
const arrived = () => receiver.requests.map(idOf);

describe("a paused endpoint", () => {
  it("gets nothing, and after the resume everything, oldest first, once", async () => {
    start({}, { laneInFlightMax: 1 });
    await publishSome(1);
    await receiver.waitForRequests(1);
    await pauseNow();
    const held = await publishSome(50);
    // What another account publishes afterwards arrives: nothing was only late.
    const beside = await createTestAccount(database, receiver.url("/beside").href);
    await publish(database.pool, beside.accountId, analysis());
    await receiver.waitForRequests(2);
    expect(receiver.requests.map(({ path }) => path)).toEqual(["/in", "/beside"]);
    expect(await findEndpoint(database.pool, accountId)).toMatchObject({ held: 50 });

    await resume();
    await receiver.waitForRequests(52);
    expect(arrived().slice(2)).toEqual(held);
    expect(await findEndpoint(database.pool, accountId)).toMatchObject({ held: 0, paused_at: null });
  });

  it("gets no retry of what was in flight; after the resume the run goes on", async () => {
    await receiver.close();
    let answer: () => void = () => undefined;
    const answered = new Promise<void>((resolve) => {
      answer = resolve;
    });
    receiver = await startReceiver({
      handler: async () => {
        if (receiver.requests.length > 1) return {};
        await answered;
        return { status: 503 };
      },
    });
    ({ accountId } = await createTestAccount(database, receiver.url("/in").href));
    const dispatcher = start({ RETRY_WINDOW_SECONDS: "60" });
    const [id] = await publishSome(1);
    await receiver.waitForRequests(1);
    await pauseNow();
    answer();
    await dispatcher.waitForAttempts(1);
    // Due after some ten milliseconds, and held by then.
    await untilHeld(1);
    expect(await deliveryRow(database.pool, id!)).toMatchObject({ status: "failed", attempts_count: 1 });

    await resume();
    await dispatcher.waitForAttempts(2);
    expect(await attemptRows(database.pool, id!)).toMatchObject([
      { run: 1, number: 1, status_code: 503 },
      { run: 1, number: 2, status_code: 200 },
    ]);
    expect(arrived()).toEqual([id, id]);
  });

  it(
    "loses nothing and repeats nothing while dispatchers are killed around pauses and resumes",
    async () => {
      await receiver.close();
      receiver = await startReceiver({ handler: () => ({ delayMs: 5 }) });
      ({ accountId } = await createTestAccount(database, receiver.url("/in").href));
      const env = {
        DATABASE_URL: database.url,
        ...targetsEnv([receiver]),
        ATTEMPT_DEADLINE_MS: String(patience(1_000)),
      };
      const launch = async () => {
        const one = await startProcess("dispatch", env);
        processes.push(one);
        return one;
      };
      const ids: string[] = [];
      const some = async () => {
        const texts = Array.from({ length: 40 }, analysis);
        ids.push(
          ...(await publishMany(
            database.pool,
            texts.map(() => accountId),
            texts,
            texts.map(() => null),
          )),
        );
      };
      const kill = async (one: SealpostProcess) => {
        processes.splice(processes.indexOf(one), 1);
        await one.kill();
      };

      const [first] = await Promise.all([launch(), launch()]);
      await some();
      await receiver.waitForRequests(5);
      await pauseNow();
      await kill(first);
      await some();
      await resume();
      await receiver.waitForRequests(45);
      await pauseNow();
      await some();
      await Promise.all(processes.map(kill));
      await resume();
      await pauseNow();
      await launch();
      await some();
      await resume();
      await untilEnded(ids.length);
      const attempts = (await Promise.all(ids.map((id) => attemptRows(database.pool, id)))).flat();
      const others = attempts.filter(({ outcome }) => outcome !== "succeeded").length;
      expect(new Set(arrived())).toEqual(new Set(ids));
      // Only what was in flight in a process that was killed came again.
      expect(arrived().length - ids.length).toBeLessThanOrEqual(others);
      expect(attempts.filter(({ outcome }) => outcome === "succeeded")).toHaveLength(ids.length);
      expect(await countRows(database.pool, "held_deliveries")).toBe(0);
    },
    patience(120_000),
  );
});

async function untilHeld(count: number): Promise<void> {
  while ((await findEndpoint(database.pool, accountId))!.held! < count);
}

async function untilEnded(count: number): Promise<void> {
  const ended = { account_id: accountId, status: "succeeded" };
  while ((await countRows(database.pool, "deliveries", ended)) < count);
}
