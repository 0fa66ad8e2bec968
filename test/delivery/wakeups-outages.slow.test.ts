// How wake-ups outlive a database or a network that says nothing any more.
import { EventEmitter, once } from "node:events";
import { describe, it } from "vitest";
import { createWakeupQueue } from "../../src/base/database/graphile-worker.ts";
import { createWakeups, type WakeupsOptions } from "../../src/delivery/wakeups.ts";
import { createTestDatabase } from "../support/database.ts";
import { type DatabaseProxy, startDatabaseProxy } from "../support/database-proxy.ts";
import { insertAccount, publish } from "../support/installation.ts";

type Line = DatabaseProxy & {
  /** Publishes an analysis, not by the line. Returns the id of the delivery. */
  publish(): Promise<string>;
};

/** Wakes by a line that can be cut, with what `options` makes of it, while `play` goes on. */
async function withWakeups(
  options: (line: Line) => Pick<WakeupsOptions, "wake" | "onRunnerEnded">,
  play: (line: Line) => Promise<void>,
): Promise<void> {
  const database = await createTestDatabase();
  const accountId = await insertAccount(database.pool, "https://receiver.example.com/");
  const proxy = await startDatabaseProxy(database.url);
  let published = 0;
  const line: Line = {
    ...proxy,
    publish: () => publish(database.pool, accountId, `{"id":"a-${published++}","status":"succeeded"}`),
  };
  const queue = createWakeupQueue({
    databaseUrl: proxy.url,
    connectionsMax: 4,
    applicationName: "test wakeups",
    onError: () => undefined,
  });
  const wakeups = createWakeups({ ...options(line), queue, random: Math.random });
  wakeups.start();
  await play(line);
  await wakeups.stop();
  await queue.pool.end();
  await proxy.close();
  await database.drop();
}

describe.concurrent("wake-ups go on", () => {
  it("after a database that stood still in the middle of everything", async ({ expect }) => {
    const woken = new Set<string>();
    const ended = Promise.withResolvers<void>();
    const options = (line: Line) => ({
      wake: async (waiting: readonly { readonly deliveryId: string }[]) => {
        // From here on nothing arrives: neither that the jobs are done, nor the next look, nor an end to the listening.
        if (woken.size === 0) line.hold();
        for (const { deliveryId } of waiting) woken.add(deliveryId);
        // Each is done at another moment, so that more connections are asked for than there are.
        await new Promise((resolve) => setTimeout(resolve, 40 * woken.size));
      },
      onRunnerEnded: () => {
        line.letGo();
        ended.resolve();
      },
    });
    await withWakeups(options, async (line) => {
      const before = 6;
      for (let n = 0; n < before; n++) await line.publish();
      await ended.promise;
      // What the old runner's last look finds now is the promoter's to wake again, so it may take more than one.
      const publishAndCount = async () => {
        await line.publish();
        return woken.size;
      };
      await expect.poll(publishAndCount, { interval: 200 }).toBeGreaterThan(before);
    });
  });

  it("after a network that forgot its connections", async () => {
    const woken = new EventEmitter();
    const options = () => ({
      wake: async (waiting: readonly { readonly deliveryId: string }[]) => {
        for (const { deliveryId } of waiting) woken.emit(deliveryId);
      },
      onRunnerEnded: () => undefined,
    });
    await withWakeups(options, async (line) => {
      for (let times = 0; times < 2; times++) {
        await once(woken, await line.publish());
        line.forget();
      }
    });
  });
});
