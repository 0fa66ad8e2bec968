// Plays traces of the specification against the real SQL: two databases as two cells, asked with the specification's
// clock, which must hold after every step what the specification says.
import { deepEqual, equal, ok, rejects } from "node:assert/strict";
import type pg from "pg";
import { createDispatchPool, createMovePool } from "../../src/base/database/pools.ts";
import type { Cell } from "../../src/cells/move.ts";
import { type ClaimInput, claimDeliveries, recoverInterrupted } from "../../src/delivery/claim-sql.ts";
import { advanceHolds, pauseEndpoint, resumeEndpoint } from "../../src/delivery/endpoint-sql.ts";
import { promoteDue } from "../../src/delivery/promote-sql.ts";
import { type Recording, recordOutcomes } from "../../src/delivery/record-sql.ts";
import { decideAfterAttempt, decideBeforeAttempt } from "../../src/delivery/schedule/life.ts";
import { redefine } from "../support/broken-twins.ts";
import { insertAccount, SECRETS_KEY } from "../support/installation.ts";
import type { Spec, Value } from "./quint.ts";
import { RealMoves } from "./real-moves.ts";
import { readState, stateOf, tokenOf } from "./real-state.ts";
import type { Step } from "./searches.ts";

const TICK_MS = 15_000;
const DAY_MS = 86_400_000;
const URL_OF_ENDPOINT = "https://receiver.example.com/";
/** The functions that ask for the time themselves. */
const WITH_A_CLOCK = ["pause_endpoint", "park_deliveries", "unpark_deliveries"];

/** A guard of the real SQL, and what is changed to take it out. */
export type SqlGuard = {
  readonly name: string;
  /** It takes a move to miss it. */
  readonly moves?: true;
  readonly changes: readonly {
    /** The function that has it, or the statement's name. */
    readonly of: string;
    readonly text: string;
    readonly without: string;
  }[];
};

type RealCell = { readonly dispatch: pg.Pool; readonly mover: Cell };

const killed = () => new Error("killed");

export class RealSql {
  readonly #cells: Readonly<Record<string, RealCell>>;
  /** Before now, as the move's process reads the real clock; of a day that has its partitions. */
  readonly #epochMs = Math.floor(Date.now() / DAY_MS) * DAY_MS - DAY_MS / 2;

  private constructor(a: RealCell, b: RealCell) {
    this.#cells = { a, b };
  }

  /** Of two migrated databases with nothing in them. `without`: a guard that is taken out. */
  static async open(urls: readonly [string, string], without: SqlGuard | null = null): Promise<RealSql> {
    const cells: RealCell[] = [];
    for (const databaseUrl of urls) {
      const options = { databaseUrl, connectionsMax: 3, onError: () => undefined };
      const dispatch = createDispatchPool({ ...options, applicationName: "spec dispatch" });
      const pool = createMovePool({ ...options, applicationName: "spec move" });
      await pool.query(`create table public.clock (at timestamptz); insert into public.clock default values;
        create function public.clock() returns timestamptz language sql as 'select at from public.clock'`);
      for (const name of WITH_A_CLOCK) {
        await redefine(pool, name, (text) =>
          text.replaceAll(/\b(?:now|clock_timestamp)\(\)/g, "public.clock()"),
        );
      }
      if (without !== null) await takeOut(pool, dispatch, without);
      cells.push({ dispatch, mover: { pool, secretsKey: SECRETS_KEY } });
    }
    return new RealSql(cells[0]!, cells[1]!);
  }

  async close(): Promise<void> {
    for (const { dispatch, mover } of Object.values(this.#cells)) {
      await dispatch.end();
      await mover.pool.end();
    }
  }

  /** Returns how many steps were compared. Throws where the two part. */
  async play(spec: Spec, steps: Iterable<Step>): Promise<number> {
    const trace = new Trace(this.#cells, spec, this.#epochMs);
    await trace.begin();
    const taken: string[] = [];
    try {
      for (const step of steps) {
        taken.push(`${step.action} ${JSON.stringify(step.picks)}`);
        await trace.take(step);
        await trace.compare(step.state);
      }
      await trace.end(spec.state);
    } catch (cause) {
      throw new Error(`PostgreSQL and the specification part after ${taken.join(", ")}`, { cause });
    } finally {
      await trace.clear();
    }
    return taken.length;
  }
}

/** From functions, and from statements on their way. */
async function takeOut(pool: pg.Pool, dispatch: pg.Pool, { changes }: SqlGuard): Promise<void> {
  for (const { of, text, without } of changes) {
    let isFound = false;
    const change = (before: string) => {
      isFound ||= before.includes(text);
      return before.replaceAll(text, without);
    };
    await redefine(pool, of, change);
    if (isFound) continue;
    const query = dispatch.query.bind(dispatch) as (asked: Value, ...more: Value[]) => Value;
    Object.assign(dispatch, {
      query: (asked: Value, ...more: Value[]) => {
        if (!asked.name?.startsWith(of)) return query(asked, ...more);
        const changed = change(asked.text);
        if (!isFound) throw new Error(`${of} has no ${text}`);
        return query({ ...asked, text: changed }, ...more);
      },
    });
  }
}

class Trace {
  readonly #cells: Readonly<Record<string, RealCell>>;
  readonly #spec: Spec;
  readonly #epochMs: number;
  readonly #ids = new Map<number, string>();
  readonly #woken: Readonly<Record<string, Set<number>>> = { a: new Set(), b: new Set() };
  #moves!: RealMoves;
  #accountId = "";
  #now = 0;

  constructor(cells: Readonly<Record<string, RealCell>>, spec: Spec, epochMs: number) {
    this.#cells = cells;
    this.#spec = spec;
    this.#epochMs = epochMs;
  }

  #at(tick: number): number {
    return this.#epochMs + tick * TICK_MS;
  }

  get #date(): Date {
    return new Date(this.#at(this.#now));
  }

  #pool(cell: string): pg.Pool {
    return this.#cells[cell]!.dispatch;
  }

  async begin(): Promise<void> {
    for (const cell of ["a", "b"])
      await this.#pool(cell).query("update public.clock set at = $1", [this.#date]);
    this.#accountId = await insertAccount(this.#pool("a"), URL_OF_ENDPOINT);
    const { a, b } = this.#cells as { readonly a: RealCell; readonly b: RealCell };
    this.#moves = new RealMoves(this.#accountId, a.mover, b.mover);
  }

  /** What is left would be found by the steps of the next trace. */
  async clear(): Promise<void> {
    await this.#moves.end();
    for (const cell of ["a", "b"]) {
      for (const table of ["open_deliveries", "held_deliveries", "parked_deliveries", "endpoints"])
        await this.#pool(cell).query(`delete from sealpost.${table} where account_id = $1`, [
          this.#accountId,
        ]);
    }
  }

  async take({ action, picks, state }: Step): Promise<void> {
    const { cell = "a", delivery, h } = picks;
    const pool = this.#pool(h?.cell ?? cell);
    const id = this.#ids.get(delivery ?? h?.delivery) ?? "";
    const { RETENTION } = this.#spec.constants;
    switch (action) {
      case "tick":
        this.#now++;
        for (const one of ["a", "b"])
          await this.#pool(one).query("update public.clock set at = $1", [this.#date]);
        return;
      case "publish":
        this.#ids.set(delivery, await this.#publish(cell, delivery));
        return;
      case "drop":
        this.#woken[cell]!.delete(delivery);
        return;
      case "claim":
        return await this.#claim(pool, id, picks, state);
      case "askInVain":
        return picks.what === "replay"
          ? equal(await this.#replay(pool, id), "not_replayable")
          : deepEqual(
              (await claimDeliveries(pool, this.#claimOf(id, state.tokens + 1_000, true))).deliveries,
              [],
            );
      case "recover":
        equal((await recoverInterrupted(pool, [id], this.#date)).length, 1);
        return;
      case "start":
        return equal(this.#verdict(h), null);
      case "finish":
        return await this.#record(pool, h, picks.outcome, this.#after(h, picks));
      case "end":
        return await this.#record(pool, h, null, { status: "abandoned", reason: this.#verdict(h)! });
      case "release":
        return await this.#record(pool, h, null, {
          status: "released",
          dueAtMs: this.#at(this.#now + picks.wait),
        });
      case "forget":
        return;
      case "promote":
        await promoteDue(pool, this.#date);
        return;
      case "replay":
        return equal(await this.#replay(pool, id), "replayed");
      case "pause":
        return ok(await pauseEndpoint(pool, this.#accountId));
      case "resume":
        return ok(await resumeEndpoint(pool, this.#accountId));
      case "advanceHolds":
        await advanceHolds(pool, RETENTION * TICK_MS, this.#date);
        return;
      default:
        await this.#moves.take(action, picks.id, state.move.out);
        if (action === "close") await rejects(this.#publish("a", 99), { code: "SP007" });
    }
  }

  async #publish(cell: string, delivery: number): Promise<string> {
    const { rows } = await this.#pool(cell).query<{ id: string }>(
      "select (sealpost.publish(array[$1::uuid], array[$2::json], array[null::text], false, $3))[1] as id",
      [this.#accountId, `{"id":"${delivery}","status":"succeeded"}`, this.#date],
    );
    return rows[0]!.id;
  }

  async #replay(pool: pg.Pool, id: string): Promise<string> {
    const { RETENTION } = this.#spec.constants;
    const { rows } = await pool.query<{ outcome: string }>(
      "select outcome from sealpost.replay_delivery($1, $2, $3::float8 * interval '1 ms', $4, 60)",
      [this.#accountId, id, RETENTION * TICK_MS, this.#date],
    );
    return rows[0]!.outcome;
  }

  #claimOf(id: string, token: number, isInQuarantine: boolean): ClaimInput {
    const { LEASE, ATTEMPTS } = this.#spec.constants;
    return {
      deliveryIds: [id],
      leaseToken: tokenOf(token),
      leaseMs: LEASE * TICK_MS,
      bytesMax: Number.MAX_SAFE_INTEGER,
      isInQuarantine,
      attemptsMax: ATTEMPTS,
      at: this.#date,
    };
  }

  async #claim(
    pool: pg.Pool,
    id: string,
    { isAlone, dies, delivery }: Step["picks"],
    state: Value,
  ): Promise<void> {
    const query = (asked: Value) =>
      dies && asked.name === "hold_leased" ? Promise.reject(killed()) : pool.query(asked);
    const asked = this.#claimOf(id, state.tokens, isAlone);
    const { deliveries } = await claimDeliveries({ query } as pg.Pool, asked).catch((error) => {
      if (error.message !== "killed") throw error;
      return { deliveries: [] };
    });
    const holding = state.holdings.items.find(({ token }: Value) => token === state.tokens);
    const [leased] = deliveries.flatMap((one) => (one.kind === "leased" ? [one] : []));
    if (dies) return;
    deepEqual(
      leased && {
        delivery,
        run: leased.run,
        number: leased.number ?? 0,
        started: this.#tickOf(leased.runStartedAtMs),
        due: this.#tickOf(leased.dueAtMs),
        isCut: leased.wasInterruptedInQuarantine,
      },
      holding && {
        delivery: holding.delivery,
        run: holding.ofRun,
        number: holding.number,
        started: holding.started,
        due: holding.due,
        isCut: holding.isCut,
      },
    );
  }

  #tickOf(ms: number): number {
    return (ms - this.#epochMs) / TICK_MS;
  }

  /** What a dispatcher decides before an attempt; null: it posts. */
  #verdict(h: Value): "interrupted" | null {
    const { RETENTION } = this.#spec.constants;
    const { created } = this.#spec.state.cells[h.cell].log[h.delivery];
    const verdict = decideBeforeAttempt(
      {
        attemptsInRun: (h.number === 0 ? this.#policy.attempts + 1 : h.number) - 1,
        runStartedAtMs: this.#at(h.started),
        wasInterruptedInQuarantine: h.isCut,
        isErased: false,
        expiresAtMs: this.#at(created + RETENTION),
        target: "allowed",
      },
      this.#policy,
      this.#at(this.#now),
    );
    return verdict.kind === "post" ? null : (verdict.reason as "interrupted");
  }

  /** Its window ends a quarter later: see windowEndsAtMs. */
  get #policy() {
    const { ATTEMPTS, WINDOW } = this.#spec.constants;
    return { attempts: ATTEMPTS, windowMs: (WINDOW * TICK_MS) / 1.25 };
  }

  #after(h: Value, { outcome, wait }: Step["picks"]): Recording["next"] {
    const endedAtMs = this.#at(this.#now);
    const runStartedAtMs = this.#at(h.started);
    const hasSucceeded = outcome === "succeeded";
    const ended = { hasSucceeded, number: h.number, runStartedAtMs, endedAtMs, retryAfterMs: null };
    const after = decideAfterAttempt(ended, this.#policy, 0);
    return after.status === "failed" ? { ...after, dueAtMs: this.#at(this.#now + wait) } : after;
  }

  async #record(
    pool: pg.Pool,
    h: Value,
    outcome: "succeeded" | "rejected" | null,
    next: Recording["next"],
  ): Promise<void> {
    const attempt = {
      number: h.number,
      startedAtMs: this.#at(h.posted),
      endedAtMs: this.#at(this.#now),
      ...{ dnsMs: null, connectMs: null, tlsMs: null, firstByteMs: null, statusCode: null },
      ...{ targetUrl: URL_OF_ENDPOINT, remoteAddress: null, responseHeaders: null, responseExcerpt: null },
    };
    await recordOutcomes(pool, [
      {
        deliveryId: this.#ids.get(h.delivery)!,
        leaseToken: tokenOf(h.token),
        run: h.ofRun,
        attempt: outcome && { ...attempt, outcome, errorCode: outcome === "succeeded" ? null : "status_503" },
        next,
      },
    ]);
  }

  async compare({ cells, move }: Value): Promise<void> {
    await Promise.all(
      ["a", "b"].map(async (cell) => {
        const { real, newlyWoken } = await readState(
          this.#pool(cell),
          this.#accountId,
          this.#ids,
          this.#epochMs,
        );
        for (const delivery of newlyWoken) this.#woken[cell]!.add(delivery);
        const there = cells[cell];
        // What has been copied there is nobody's until the account is.
        const expected =
          there.account === "absent" ? { ...real, account: "absent" } : stateOf(there, this.#ids);
        deepEqual(
          { ...real, woken: [...this.#woken[cell]!].sort() },
          {
            ...expected,
            move: cell === "a" ? move.outStep : move.intoStep,
            woken: [...there.woken.items].sort(),
          },
        );
      }),
    );
  }

  /** Whoever was stopped goes on too late, and changes nothing. */
  async end(state: Value): Promise<void> {
    await this.#moves.goOnTooLate(state.move);
    await this.compare(state);
  }
}
