// An installation as the version before has left it: tenants, deliveries in every state, a pipeline that goes on.
import { deepEqual, equal } from "node:assert/strict";
import { until } from "../faults/harness/scenario.ts";
import type { SealpostProcess } from "../faults/harness/sealpost-process.ts";
import { type ApiCall, type ApiReply, call } from "./api-call.ts";
import type { Api, Installation, Tenant } from "./installation.ts";
import type { Pipeline } from "./pipeline.ts";

/** Enough to go on for 12 s. */
const REPLAYED = 60;
const REPLAYED_PER_SECOND = 5;
const OVERLAP_SECONDS = 3_600;

/** A write, and how it was answered. */
export type Done = { readonly asked: ApiCall; readonly reply: ApiReply };

export class OldWorld {
  readonly installation: Installation;
  readonly api: Api;
  readonly dispatcher: SealpostProcess;
  /** Has an endpoint, and a pipeline that goes on publishing for it. */
  readonly steady: Tenant;
  readonly pipeline: Pipeline;
  /** Its endpoint came late: it has abandoned deliveries, and replays them. */
  readonly #late: Tenant;
  /** Deliveries to these rooms. */
  readonly down: string[] = [];
  readonly silent: string[] = [];
  readonly #done: Done[] = [];
  readonly #ending = new AbortController();
  #load: Promise<void> = Promise.resolve();

  private constructor(
    installation: Installation,
    tenants: readonly [Tenant, Tenant],
    api: Api,
    dispatcher: SealpostProcess,
  ) {
    this.installation = installation;
    [this.steady, this.#late] = tenants;
    this.api = api;
    this.dispatcher = dispatcher;
    this.pipeline = installation.createPipeline(this.steady);
    this.pipeline.apis = [api.url];
  }

  /** Everything by the old code: the schema, the tenants, the processes. */
  static async found(installation: Installation): Promise<OldWorld> {
    await installation.run("old", "migrate");
    const [tenants, api, dispatcher] = await Promise.all([
      Promise.all([installation.createTenant("steady"), installation.createTenant("late")]),
      installation.serve("old"),
      installation.dispatch("old"),
    ]);
    const endpoint = ["--account", tenants[0].accountId, "--url", installation.cluster.receiver.url("/")];
    await installation.run("old", "endpoint", "set", ...endpoint);
    return new OldWorld(installation, tenants, api, dispatcher);
  }

  /** Resolves with how many deliveries stand where, when none of the states is empty. */
  async reachEveryState(): Promise<Readonly<Record<string, number>>> {
    const { installation, pipeline } = this;
    await this.#publishTo("down", 6);
    await this.#publishTo("silent", 4);
    for (let n = 0; n < 5; n++) await pipeline.publishByApi();
    const { accountId } = this.#late;
    await pipeline.publishBatch(REPLAYED, { accountId, webhookUrl: null });
    await until(async () => (await installation.countStates()).due_later! > 0);

    await this.#publishTo("down", 6);
    await this.#publishTo("silent", 4);
    await this.#write(this.api, this.#late, "PUT", "/v1/webhooks/endpoint", {
      url: installation.cluster.receiver.url("/late"),
    });
    const replay = { filter: { status: "abandoned" }, rate_per_second: REPLAYED_PER_SECOND };
    await this.#write(this.api, this.#late, "POST", "/v1/webhooks/replays", replay);
    let states: Readonly<Record<string, number>> = {};
    await until(async () => {
      states = await installation.countStates();
      return Object.values(states).every((count) => count > 0);
    }).catch((error) => {
      throw new Error(`not in every state: ${JSON.stringify(states)}`, { cause: error });
    });
    return states;
  }

  /** Goes on until it is ended. */
  startLoad(): void {
    this.#load = this.pipeline.run(this.#ending.signal);
    this.#load.catch(() => undefined);
  }

  /** Rejects when anything was refused on the way. */
  async endLoad(): Promise<void> {
    this.#ending.abort();
    await this.#load;
  }

  /** Everything that failed there is started again, and arrives. */
  async replayAt(api: Api, room: "down" | "silent"): Promise<void> {
    await this.installation.mend(room);
    const filter = { status: "failed", target_host: new URL(this.installation.urlOf(room)).hostname };
    const asked = { filter, rate_per_second: 100 };
    await this.#write(api, this.steady, "POST", "/v1/webhooks/replays", asked);
    await this.installation.untilSucceeded(this[room]);
  }

  /** Resolves when a webhook has come that the old and the new secret have signed. */
  async rotateSecretAt(api: Api): Promise<void> {
    const { receiver } = this.installation.cluster;
    const path = "/v1/webhooks/signing-secret/rotate";
    const body = { overlap_seconds: OVERLAP_SECONDS };
    const reply = await this.#write(api, this.steady, "POST", path, body);
    await this.installation.cluster.knowSecret(JSON.parse(reply.text).signing_secret);
    await receiver.waitFor(1, ({ signatures }) => signatures === 2);
  }

  /** The same again, under the same idempotency keys: the same answers. */
  async expectSameReplies(api: Api): Promise<void> {
    for (const { asked, reply } of [...this.#done, ...this.pipeline.calls.slice(0, 5)])
      deepEqual(await call(api.url, asked), reply, `${asked.method} ${asked.path} again`);
  }

  async #publishTo(room: "down" | "silent", count: number): Promise<void> {
    const webhookUrl = this.installation.urlOf(room);
    this[room].push(...(await this.pipeline.publishBatch(count, { webhookUrl })));
  }

  async #write(api: Api, { apiKey }: Tenant, method: "POST" | "PUT", path: string, body: unknown) {
    const idempotencyKey = `write-${this.#done.length}`;
    const asked = { method, path, apiKey, body: JSON.stringify(body), idempotencyKey };
    const reply = await call(api.url, asked);
    equal(Math.floor(reply.status / 100), 2, `${method} ${path}: ${reply.text}`);
    this.#done.push({ asked, reply });
    return reply;
  }

  async close(): Promise<void> {
    await this.endLoad().catch(() => undefined);
    await this.pipeline.close();
  }
}
