import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Via } from "../../processes/publish-calls.ts";
import type { Published } from "../../processes/publisher-process.ts";
import { openWorkspace, publishWorkflow } from "../../workspace.ts";
import type { Flood } from "./flood.ts";

const REQUESTS_IN_FLIGHT = 128;

/** Somebody who knows the URL of a hook posts to it as fast as `serve` answers, to its limits and beyond. */
export const hookPosts: Flood = {
  name: "flood of a hook",
  prepare: async ({ bench, database, publisher, accountIds }) => {
    const stateDir = await mkdtemp(join(tmpdir(), "sealpost-bench-hook-"));
    const api = await bench.startDefaultApi(database, { STATE_DIR: stateDir });
    const ask = await openWorkspace(database.pool, api.url);
    const workflowId = await publishWorkflow(ask, "hook_trigger", 1);
    const { url } = await ask("POST", `/v1/workflows/${workflowId}/hook`);
    const hookPath = new URL(String(url)).pathname;
    const via: Via = { kind: "http", url: api.url, apiKeys: new Map(), whenLimited: "counted", hookPath };
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
        await api.stop();
        await rm(stateDir, { recursive: true });
        return [
          { name: "runs begun by it", value: published, unit: "" },
          { name: "answered 429 or 409", value: refused, unit: "" },
        ];
      },
    };
  },
};
