// A random history: an account that is published to, delivers, fails, replays and is read, while it moves, and while
// the move is killed again and again.

import { setTimeout as sleep } from "node:timers/promises";
import type pg from "pg";
import { expect } from "vitest";
import { inTransaction } from "../../src/base/database/transaction.ts";
import { COMMAND_LINE } from "../../src/base/model/audit.ts";
import { wholeAccount } from "../../src/base/model/reader.ts";
import type { MovePart } from "../../src/cells/move.ts";
import { moveAccount } from "../../src/cells/move-account.ts";
import { setEndpoint } from "../../src/delivery/endpoint-sql.ts";
import { findFeedPlaces } from "../../src/feed/feed-sql.ts";
import { createReplay } from "../../src/log/replays-sql.ts";
import { Chance } from "../simulation/chance.ts";
import { countRows, publishMany, rowsOf } from "../support/installation.ts";
import type { TestAccount } from "../support/sealpost-api.ts";
import type { WorkingCell, World } from "./world.ts";

const FEED_RETENTION_MS = 7 * 86_400_000;
const textOf = (id: string) => `{"id":"${id}","status":"succeeded"}`;

export class History {
  readonly #world: World;
  readonly #chance: Chance;
  readonly #path: string;
  /** Which analysis was answered with which delivery, by a publication that has committed. */
  readonly #published = new Map<string, string>();
  readonly #read: string[] = [];
  #account!: TestAccount;
  #analyses = 0;
  #isPublishing = true;
  #isReading = true;
  #hasMoved = false;
  #hasFailed = false;
  kills = 0;

  constructor(world: World, seed: number) {
    this.#world = world;
    this.#chance = new Chance(seed);
    this.#path = `/history-${seed}`;
  }

  async play(): Promise<void> {
    const { source, receiver, failing } = this.#world;
    this.#account = await source.api.newAccount();
    const { accountId } = this.#account;
    await this.#abandonSome();
    failing.set(this.#path, () => this.#chance.isTrue(0.4));
    await setEndpoint(source.database.pool, accountId, receiver.url(this.#path).href);
    await this.#beginReplay();
    const publishing = [
      this.#publishBySql(),
      this.#publishBySql(),
      this.#publishByHttp(),
      this.#publishByHttp(),
    ];
    const reading = this.#readFeed();
    try {
      await sleep(this.#chance.between(0, 500));
      await this.#move();
      this.#hasMoved = true;
      await sleep(this.#chance.between(0, 300));
      this.#isPublishing = false;
      await Promise.all(publishing);
      failing.delete(this.#path);
      await this.#untilDelivered();
      this.#isReading = false;
      await reading;
    } catch (error) {
      this.#hasFailed = true;
      await Promise.allSettled([...publishing, reading]);
      throw error;
    }
    await this.#judge();
  }

  /** For the bulk replay: published while there is no endpoint. */
  async #abandonSome(): Promise<void> {
    const ids = Array.from({ length: this.#chance.between(1, 40) }, () => this.#newId());
    const { accountId } = this.#account;
    const deliveryIds = await publishMany(
      this.#world.source.database.pool,
      ids.map(() => accountId),
      ids.map(textOf),
      ids.map(() => null),
    );
    for (const [n, id] of ids.entries()) this.#published.set(id, deliveryIds[n]!);
  }

  async #beginReplay(): Promise<void> {
    await inTransaction(this.#world.source.database.pool, (tx) =>
      createReplay(tx, wholeAccount(this.#account.accountId), {
        filter: { status: ["abandoned"] },
        ratePerSecond: this.#chance.pick([5, 20, 100]),
        expectedMatched: null,
        note: null,
        createdBy: COMMAND_LINE,
        analysisRetentionMs: FEED_RETENTION_MS,
        limits: { runningMax: 5, waitingMax: 1_000 },
      }),
    );
  }

  #newId(): string {
    return `a-${++this.#analyses}`;
  }

  /** A new one, or one that was published before or is just being published. */
  #anyId(): string {
    return this.#analyses > 0 && this.#chance.isTrue(0.3)
      ? `a-${this.#chance.between(1, this.#analyses)}`
      : this.#newId();
  }

  #answered(id: string, deliveryId: string): void {
    const before = this.#published.get(id);
    if (before !== undefined && before !== deliveryId) {
      throw new Error(`${id} was answered as ${before}, and then as ${deliveryId}`);
    }
    this.#published.set(id, deliveryId);
  }

  /** A pipeline: its transactions may be long, read an old state, or come to nothing. */
  async #publishBySql(): Promise<void> {
    let here: WorkingCell = this.#world.source;
    while (this.#isPublishing && !this.#hasFailed) {
      const id = this.#anyId();
      for (let isDone = false; !isDone && !this.#hasFailed; ) {
        const outcome = await this.#publishOnce(here.database.pool, id);
        isDone = outcome === "done";
        if (outcome === "SP007") here = this.#world.target;
        // Not there yet.
        if (outcome === "SP001") await sleep(10);
      }
      await sleep(this.#chance.between(0, 30));
    }
  }

  async #publishOnce(pool: pg.Pool, id: string): Promise<"done" | "SP001" | "SP007"> {
    const client = await pool.connect();
    try {
      await client.query(`begin isolation level ${this.#chance.pick(["read committed", "repeatable read"])}`);
      if (this.#chance.isTrue(0.3)) await client.query("select 1");
      if (this.#chance.isTrue(0.2)) await sleep(this.#chance.between(0, 100));
      const { rows } = await client.query<{ id: string }>("select sealpost.publish_analysis($1, $2) as id", [
        this.#account.accountId,
        textOf(id),
      ]);
      if (this.#chance.isTrue(0.3)) await sleep(this.#chance.between(0, 100));
      const isKept = !this.#chance.isTrue(0.1);
      await client.query(isKept ? "commit" : "rollback");
      if (isKept) this.#answered(id, rows[0]!.id);
      return "done";
    } catch (error) {
      await client.query("rollback");
      const { code } = error as { code: string };
      if (code === "SP001" || code === "SP007") return code;
      // Two repeatable reads published the same: the pipeline runs its transaction again, or not.
      if (code === "40001") return "done";
      throw error;
    } finally {
      client.release();
    }
  }

  /** A client that goes where it is told, with the same Idempotency-Key. */
  async #publishByHttp(): Promise<void> {
    let here = this.#world.source;
    while (this.#isPublishing && !this.#hasFailed) {
      const id = this.#anyId();
      for (let isDone = false; !isDone && !this.#hasFailed; ) {
        const answer = await here.api.ask("POST", "/v1/analyses", {
          key: this.#account.key,
          body: `{"analysis":${textOf(id)}}`,
          idempotencyKey: id,
        });
        isDone = answer.status === 202;
        if (isDone) this.#answered(id, String(answer.body.delivery_id));
        else if (answer.body.code === "account_moved") here = this.#world.target;
        // Not there yet; or somebody is just publishing it.
        else if (answer.status !== 401 && answer.status !== 409 && answer.status !== 503)
          throw new Error(`${answer.status} ${JSON.stringify(answer.body)}`);
        if (!isDone) await sleep(10);
      }
      await sleep(this.#chance.between(0, 30));
    }
  }

  /** Reads the source for as long as it likes, and goes on at the target with the same cursor. */
  async #readFeed(): Promise<void> {
    let here = this.#world.source;
    let cursor = 0;
    for (let isLast = false; !isLast && !this.#hasFailed; ) {
      isLast = !this.#isReading;
      const { accountId } = this.#account;
      const found = await findFeedPlaces(
        here.database.pool,
        wholeAccount(accountId),
        cursor,
        FEED_RETENTION_MS,
        5,
      );
      this.#read.push(...found.places.map(({ deliveryId }) => deliveryId));
      const isEnd = found.places.length < 5;
      cursor = isEnd ? Math.max(found.newest, cursor) : found.places.at(-1)!.position;
      isLast &&= isEnd && here === this.#world.target;
      if (this.#hasMoved && this.#chance.isTrue(0.1)) here = this.#world.target;
      await sleep(20);
    }
  }

  /** Killed by a throw where it tells of its progress, or anywhere by the end of its connections. */
  async #move(): Promise<void> {
    const { cells } = this.#world;
    for (let killsLeft = this.#chance.between(0, 8); ; killsLeft--) {
      const killAfter = killsLeft > 0 ? this.#chance.below(12) : Number.POSITIVE_INFINITY;
      const cutAfterMs = this.#chance.between(0, 300);
      const isCut = killsLeft > 0 && this.#chance.isTrue(0.5);
      let told = 0;
      const onProgress = (_part: MovePart, _detail: string | null) => {
        if (!isCut && told++ === killAfter) throw new Error("killed");
      };
      const moving = new AbortController();
      const cutting = isCut ? this.#cut(cutAfterMs, moving.signal) : Promise.resolve();
      try {
        await moveAccount(cells.move(this.#account.accountId, { onProgress }));
        return;
      } catch (error) {
        // A connection that was cut may show only in the next run.
        if (!/^Error: killed$|terminat|EPIPE|ECONNRESET|not queryable/.test(String(error))) throw error;
        this.kills++;
      } finally {
        moving.abort();
        await cutting;
      }
    }
  }

  /** Again and again: one that is idle just then is replaced, and nobody notices. */
  async #cut(afterMs: number, signal: AbortSignal): Promise<void> {
    await sleep(afterMs);
    while (!signal.aborted) {
      for (const { pool } of [this.#world.cells.source, this.#world.cells.target]) {
        await pool.query(
          `select pg_terminate_backend(pid) from pg_stat_activity
           where application_name = 'test move' and datname = current_database()`,
        );
      }
      await sleep(5);
    }
  }

  async #untilDelivered(): Promise<void> {
    const { pool } = this.#world.target.database;
    const where = { account_id: this.#account.accountId };
    await expect.poll(() => countRows(pool, "open_deliveries", where)).toBe(0);
    await expect
      .poll(() => countRows(pool, "replays", { ...where, status: ["running", "delivering"] }))
      .toBe(0);
    await expect.poll(() => countRows(pool, "open_deliveries", where)).toBe(0);
  }

  async #judge(): Promise<void> {
    const { source, target, receiver } = this.#world;
    const where = { account_id: this.#account.accountId };
    const logged = await rowsOf(target.database.pool, "deliveries", where);
    const deliveryIds = logged.map(({ id }) => id as string).sort();
    // Nothing is lost, no analysis has two deliveries, and nothing came to be that nobody published.
    expect(new Map(logged.map(({ analysis_id, id }) => [analysis_id, id]))).toEqual(this.#published);
    expect(deliveryIds).toEqual([...this.#published.values()].sort());
    expect(await countRows(target.database.pool, "analyses", where)).toBe(logged.length);
    expect(await countRows(target.database.pool, "bodies", where)).toBe(logged.length);

    // Every POST is in the target's log, from whichever side it went; each delivery arrived once.
    const posts = receiver.requests.filter(({ path }) => path === this.#path);
    const postsOf = Object.groupBy(posts, ({ body }) => JSON.parse(body.toString()).id as string);
    const attempts = await rowsOf(target.database.pool, "attempts", where);
    const attemptsOf = Object.groupBy(attempts, ({ delivery_id }) => delivery_id as string);
    for (const { id, status, attempts_count } of logged) {
      expect(status, id).toBe("succeeded");
      expect(attemptsOf[id]?.length, id).toBe(attempts_count);
      expect(postsOf[id]?.length, id).toBe(attempts_count);
      expect(
        attemptsOf[id]?.filter(({ outcome }) => outcome === "succeeded"),
        id,
      ).toHaveLength(1);
    }
    expect(Object.keys(postsOf).sort()).toEqual(deliveryIds);
    expect([...this.#read].sort()).toEqual(deliveryIds);

    // The source refuses, and has nothing to do.
    expect(await countRows(source.database.pool, "open_deliveries", where)).toBe(0);
    await expect(
      source.database.pool.query("select sealpost.publish_analysis($1, $2)", [
        where.account_id,
        textOf("a-1"),
      ]),
    ).rejects.toMatchObject({ code: "SP007" });
    for (const [id, deliveryId] of [...this.#published].slice(0, 3)) {
      const again = await target.api.ask("POST", "/v1/analyses", {
        key: this.#account.key,
        body: `{"analysis":${textOf(id)}}`,
        idempotencyKey: id,
      });
      expect([again.status, again.body.delivery_id]).toEqual([202, deliveryId]);
    }
  }
}
