import { setTimeout as wait } from "node:timers/promises";
import { createKeys } from "../../keys.ts";
import type { Via } from "../../processes/publish-calls.ts";
import type { Published } from "../../processes/publisher-process.ts";
import { openWorkspace, publishWorkflow } from "../../workspace.ts";
import type { Flood, Ground, PreparedFlood } from "./flood.ts";

/** Connections, each with one request at a time: well below what `serve` takes from one address. */
const REQUESTS_IN_FLIGHT = 128;

/** One account publishes over HTTP as fast as `serve` answers, to the rate limit and beyond it. */
export const httpPublishes: Flood = {
  name: "flood of HTTP publishes",
  prepare: async (ground) => {
    const { bench, database } = ground;
    const api = await bench.startDefaultApi(database);
    const apiKeys = await createKeys(database, ground.accountIds.slice(0, 1));
    const via: Via = { kind: "http", url: api.url, apiKeys, whenLimited: "counted" };
    return ahead(ground, via, ["published by it", "answered 429"], async () => void (await api.stop()));
  },
};

/** Before the flood, by eights: more than `serve` does at a time. */
const RUNS_BEFORE = 16;
/** A `serve` is seldom new: so many accounts' logs have been read, each so often. */
const READERS = 4;
const READS = 500;

/** Somebody who knows the URL of a hook posts to it as fast as `serve` answers, to its limits and beyond. */
export const hookPosts: Flood = {
  name: "flood of a hook",
  prepare: async (ground) => {
    const { bench, database, stateDir } = ground;
    const api = await bench.startDefaultApi(database, { STATE_DIR: stateDir });
    const ask = await openWorkspace(database.pool, api.url);
    const workflowId = await publishWorkflow(ask, "hook_trigger", 1);
    const { url } = await ask("POST", `/v1/workflows/${workflowId}/hook`);
    const hookPath = new URL(String(url)).pathname;
    // The process for steps is started by the first run of all.
    for (let n = 0; n < RUNS_BEFORE; n += 8)
      await Promise.all(Array.from({ length: 8 }, () => ask("POST", hookPath)));
    const unfinished = "/* bench */ select from workspace.runs where completed_at is null limit 1";
    while ((await database.pool.query(unfinished)).rowCount !== 0) await wait(100);
    const keys = await createKeys(database, ground.accountIds.slice(0, READERS));
    await Promise.all([...keys.values()].map((key) => readLog(api.url, key)));
    const via: Via = { kind: "http", url: api.url, apiKeys: new Map(), whenLimited: "counted", hookPath };
    return ahead(
      ground,
      via,
      ["runs begun by it", "answered 429 or 409"],
      async () => void (await api.stop()),
    );
  },
};

async function readLog(url: string, key: string): Promise<void> {
  for (let n = 0; n < READS; n++) {
    const headers = { authorization: `Bearer ${key}` };
    const answer = await fetch(new URL("/v1/webhooks/deliveries", url), { headers });
    await answer.arrayBuffer();
    if (!answer.ok) throw new Error(`The log was answered ${answer.status}.`);
  }
}

/** The first of the accounts publishes as fast as it goes. @param names of what was taken, and of what was refused */
function ahead(
  { publisher, accountIds }: Ground,
  via: Via,
  names: readonly [taken: string, refused: string],
  close: () => Promise<void>,
): PreparedFlood {
  return {
    start: () =>
      publisher.ask("publishAhead", {
        accountIds: accountIds.slice(0, 1),
        batch: 1,
        clients: REQUESTS_IN_FLIGHT,
        aheadMax: Number.MAX_SAFE_INTEGER,
        total: null,
        via,
      }),
    stop: async () => {
      const { published, refused } = await publisher.ask<Published>("stop");
      await close();
      return [
        { name: names[0], value: published, unit: "" },
        { name: names[1], value: refused, unit: "" },
      ];
    },
  };
}
