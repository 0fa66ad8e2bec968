// An installation as the version before left it: a tenant, deliveries in every state, a pipeline that goes on.
import { deepEqual, equal } from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { until } from "../faults/harness/scenario.ts";
import type { SealpostProcess } from "../support/sealpost-process.ts";
import { type ApiCall, type ApiReply, call } from "./api-call.ts";
import { type Api, type Installation, PATIENCE_MS, type Tenant } from "./installation.ts";
import type { Pipeline } from "./pipeline.ts";

/** Enough to go on for 12 s. */
const REPLAYED = 60;
const REPLAYED_PER_SECOND = 5;
const OVERLAP_SECONDS = 3_600;

/** A write, and how it was answered. */
type Done = { readonly asked: ApiCall; readonly reply: ApiReply };

export class OldWorld {
  readonly installation: Installation;
  readonly api: Api;
  readonly dispatcher: SealpostProcess;
  readonly tenant: Tenant;
  readonly pipeline: Pipeline;
  /** Deliveries to these rooms. */
  readonly down: string[] = [];
  readonly silent: string[] = [];
  readonly #done: Done[] = [];
  readonly #ending = new AbortController();
  #load: Promise<void> = Promise.resolve();

  private constructor(installation: Installation, tenant: Tenant, api: Api, dispatcher: SealpostProcess) {
    this.installation = installation;
    this.tenant = tenant;
    this.api = api;
    this.dispatcher = dispatcher;
    this.pipeline = installation.createPipeline(tenant);
    this.pipeline.apis = [api.url];
  }

  /** Everything by the old code: the schema, the tenant, the processes. */
  static async found(installation: Installation): Promise<OldWorld> {
    await installation.run("old", "migrate");
    const [tenant, api, dispatcher] = await Promise.all([
      installation.createTenant(),
      installation.serve("old"),
      installation.dispatch("old"),
    ]);
    return new OldWorld(installation, tenant, api, dispatcher);
  }

  /** Resolves with how many deliveries stand where, when none of the states is empty. */
  async reachEveryState(): Promise<Readonly<Record<string, number>>> {
    const { installation, pipeline, api } = this;
    await this.#publishTo("down", 6);
    await this.#publishTo("silent", 4);
    // Abandoned, as there is no endpoint yet.
    await pipeline.publishBatch(REPLAYED, null);
    await installation.setEndpoint(this.tenant, "/first");
    await this.#write(api, "PUT", "/v1/webhooks/endpoint", { url: installation.cluster.receiver.url("/") });
    for (let n = 0; n < 5; n++) await pipeline.publishByApi(null);
    await until(async () => (await installation.countStates()).due_later! > 0, PATIENCE_MS);

    await this.#publishTo("down", 6);
    await this.#publishTo("silent", 4);
    const asked = { filter: { status: "abandoned" }, rate_per_second: REPLAYED_PER_SECOND };
    await this.#write(api, "POST", "/v1/webhooks/replays", asked);
    let states: Readonly<Record<string, number>> = {};
    await until(async () => {
      states = await installation.countStates();
      return Object.values(states).every((count) => count > 0);
    }, PATIENCE_MS).catch((error) => {
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

  /** What failed there, some of it for good by now, is started again and arrives. Returns the replay's path. */
  async replayAt(api: Api, room: "down" | "silent"): Promise<string> {
    await this.installation.mend(room);
    // A replay matches nothing that has not failed yet, and an attempt from before the mend may be the last of its run.
    await this.installation.untilNoFirstAttempt(this[room]);
    const filter = { target_host: new URL(this.installation.urlOf(room)).hostname };
    const path = "/v1/webhooks/replays";
    const { text } = await this.#write(api, "POST", path, { filter, rate_per_second: 100 });
    await this.installation.untilSucceeded(this[room]);
    const asked = {
      method: "GET",
      path: `${path}/${JSON.parse(text).id}`,
      apiKey: this.tenant.apiKey,
    } as const;
    const isDone = async () => JSON.parse((await call(api.url, asked)).text).status === "done";
    await until(isDone, PATIENCE_MS);
    return asked.path;
  }

  /** Resolves when a webhook has come that the old and the new secret have signed. */
  async rotateSecretAt(api: Api): Promise<void> {
    const { receiver } = this.installation.cluster;
    const path = "/v1/webhooks/signing-secret/rotate";
    const body = { overlap_seconds: OVERLAP_SECONDS };
    const reply = await this.#write(api, "POST", path, body);
    await this.installation.cluster.knowSecret(JSON.parse(reply.text).signing_secret);
    await receiver.waitFor(1, ({ signatures }) => signatures === 2, PATIENCE_MS);
  }

  /**
   * While the endpoint is paused at this API nothing of it is posted, whichever version dispatches; then all of it is.
   */
  async holdAt(api: Api): Promise<void> {
    const { pool, receiver } = this.installation.cluster;
    const { accountId, apiKey } = this.tenant;
    const change = async (what: "pause" | "resume") => {
      const path = `/v1/webhooks/endpoint/${what}`;
      const reply = await call(api.url, { method: "POST", path, apiKey, idempotencyKey: randomUUID() });
      equal(reply.status, 200, reply.text);
    };
    const inFlight = `select from sealpost.open_deliveries
      where lease_until > now() and account_id = $1 and lane = sealpost.lane($1, null)`;
    await change("pause");
    await until(async () => (await pool.query(inFlight, [accountId])).rowCount === 0, PATIENCE_MS);
    const held = await this.pipeline.publishBatch(20, null);
    // Others' are posted meanwhile, by the dispatcher that would have posted these.
    const elsewhere = await this.pipeline.publishBatch(5, this.installation.urlOf("slow"));
    await this.installation.untilSucceeded(elsewhere);
    const early = receiver.arrivals.filter(({ deliveryId }) => held.includes(deliveryId));
    equal(early.length, 0, "nothing arrives while the endpoint is paused");
    await change("resume");
    await this.installation.untilSucceeded(held);
  }

  /** The same again, under the same idempotency keys: the same answers. */
  async expectSameReplies(api: Api): Promise<void> {
    for (const { asked, reply } of [...this.#done, ...this.pipeline.calls.slice(0, 5)])
      deepEqual(await call(api.url, asked), reply, `${asked.method} ${asked.path} again`);
  }

  async #publishTo(room: "down" | "silent", count: number): Promise<void> {
    this[room].push(...(await this.pipeline.publishBatch(count, this.installation.urlOf(room))));
  }

  async #write(api: Api, method: "POST" | "PUT", path: string, body: unknown): Promise<ApiReply> {
    const { apiKey } = this.tenant;
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
