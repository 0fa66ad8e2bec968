import { deepEqual, equal } from "node:assert/strict";
import type { Pool } from "pg";
import { claimDeliveries } from "../../src/delivery/claim-sql.ts";
import { type Recording as RealRecording, recordOutcomes } from "../../src/delivery/record-sql.ts";
import { judgeTargetUrl } from "../../src/egress/rules/target-url.ts";
import { History } from "./history.ts";
import type { Operation } from "./operations.ts";
import type { Claimed, OwnTarget, Recording, Rows } from "./rows.ts";
import { BODY_BYTES, FIRST_MOMENT, RETENTION_MS } from "./setting.ts";

const URLS = { allowed: "https://receiver.example.com/", refused: "https://0x7f.1:8443/" } as const;

/**
 * Plays histories against the real statements: whatever the rows in memory were asked, PostgreSQL is asked with the
 * same clock, must answer the same, and must hold the same rows after every step. Needs a database with nothing open
 * in it.
 */
export class SqlTwin {
  readonly #pool: Pool;
  readonly #accountId: string;

  private constructor(pool: Pool, accountId: string) {
    this.#pool = pool;
    this.#accountId = accountId;
  }

  /** `pool` as dispatchers use it, of a migrated database. */
  static async open(pool: Pool): Promise<SqlTwin> {
    await pool.query("select sealpost.make_partitions($1::date, 1)", [
      new Date(FIRST_MOMENT).toISOString().slice(0, 10),
    ]);
    const { rows } = await pool.query<{ id: string }>(
      "insert into sealpost.accounts (name) values ('simulation') returning id",
    );
    return new SqlTwin(pool, rows[0]!.id);
  }

  /** Throws where the two part, with the number of the operation and what it was. Returns how many there were. */
  async play(seed: number): Promise<number> {
    const steps: { operation: Operation; state: string }[] = [];
    const remember = (operation: Operation, rows: Rows) => steps.push({ operation, state: stateOf(rows) });
    new History(seed, remember).play();
    await this.#setEndpoint("allowed");
    const ids: string[] = [];
    for (const [nth, { operation, state }] of steps.entries()) {
      try {
        await this.#ask(operation, ids, seed);
        const { rows } = await this.#pool.query({ name: "look", text: LOOK, values: [ids] });
        deepEqual(rows[0].deliveries, JSON.parse(state));
        deepEqual(
          rows[0].woken.map((id: string) => ids.indexOf(id)).sort(),
          wokenBy(operation, state, ids.length),
        );
      } catch (cause) {
        throw new Error(`seed ${seed}, operation ${nth}: ${JSON.stringify(operation)}`, { cause });
      }
    }
    return steps.length;
  }

  async #ask(operation: Operation, ids: string[], seed: number): Promise<void> {
    switch (operation.kind) {
      case "publish":
        return await this.#publish(operation, ids, seed);
      case "endpoint":
        return await this.#setEndpoint(operation.target);
      case "claim":
        return deepEqual(await this.#claim(operation, ids), [...operation.claimed].sort(byDelivery));
      case "record": {
        const ours = await recordOutcomes(
          this.#pool,
          operation.recordings.map((recording) => toReal(recording, ids)),
        );
        return deepEqual([...ours].map((id) => ids.indexOf(id)).sort(), operation.ours);
      }
      case "promote": {
        const { rows } = await this.#pool.query(
          "select looked, woken from sealpost.promote($1, 1000, 1000, 1000)",
          [new Date(operation.at)],
        );
        const woken = operation.woken.length;
        return deepEqual(rows[0], { looked: woken, woken });
      }
      case "replay": {
        const { rows } = await this.#pool.query(
          "select outcome from sealpost.replay_delivery($1, $2, $3::float8 * interval '1 millisecond', $4, 60)",
          [this.#accountId, ids[operation.id], RETENTION_MS, new Date(operation.at)],
        );
        return equal(rows[0].outcome, operation.outcome);
      }
    }
  }

  async #publish({ at, own }: Operation & { kind: "publish" }, ids: string[], seed: number): Promise<void> {
    const begin = `{"id":"${seed}-${ids.length}","status":"succeeded"`;
    const text = `${begin.padEnd(BODY_BYTES[ids.length]! - 1)}}`;
    const { rows } = await this.#pool.query<{ id: string }>(
      "select (sealpost.publish(array[$1::uuid], array[$2::json], array[$3::text], false, $4))[1] as id",
      [this.#accountId, text, own === null ? null : URLS[own], new Date(at)],
    );
    ids.push(rows[0]!.id);
  }

  async #setEndpoint(target: OwnTarget): Promise<void> {
    await this.#pool.query("delete from sealpost.endpoints where account_id = $1", [this.#accountId]);
    if (target === null) return;
    await this.#pool.query("insert into sealpost.endpoints (account_id, url) values ($1, $2)", [
      this.#accountId,
      URLS[target],
    ]);
  }

  async #claim(
    { ids: asked, request }: Operation & { kind: "claim" },
    ids: readonly string[],
  ): Promise<Claimed[]> {
    const { deliveries } = await claimDeliveries(this.#pool, {
      deliveryIds: asked.map((id) => ids[id]!),
      leaseToken: uuidOf(request.token),
      leaseMs: request.leaseMs,
      bytesMax: request.bytesMax,
      isInQuarantine: request.isInQuarantine,
      attemptsMax: request.attemptsMax,
      at: new Date(request.at),
    });
    const claimed = deliveries.map((one): Claimed => {
      const delivery = ids.indexOf(one.deliveryId);
      if (one.kind !== "leased") return { kind: one.kind, delivery };
      const { kind, run, number, wasInterruptedInQuarantine } = one;
      const url = one.webhookUrl ?? one.endpointUrl;
      const verdict = url === null ? null : judgeTargetUrl(url).verdict;
      const target = verdict === null ? null : verdict === "allow" ? "allowed" : "refused";
      return {
        kind,
        delivery,
        run,
        number,
        runStartedAt: one.runStartedAtMs,
        wasInterruptedInQuarantine,
        target,
      };
    });
    return claimed.sort(byDelivery);
  }
}

/** The rows of some deliveries, in the shape of stateOf, and the wake-ups that have been added, which it takes away. */
const LOOK = `
with taken as (
  delete from graphile_worker._private_jobs returning payload
)
select coalesce((
  select json_agg(json_build_object(
    'status', d.status, 'reason', d.reason, 'run', d.run, 'attemptsCount', d.attempts_count,
    'lastErrorCode', d.last_error_code,
    'open', case when o.delivery_id is not null then json_build_object(
      'dueAt', micros(o.due_at), 'wakeAt', micros(o.wake_at), 'runStartedAt', micros(o.run_started_at),
      'lease', case when o.lease_token is not null then json_build_object(
        'token', o.lease_token, 'until', micros(o.lease_until), 'run', o.lease_run, 'number', o.lease_number) end,
      'quarantinedInRun', case when o.lease_alone then o.lease_run end,
      'run', o.run, 'attemptsInRun', o.attempts_in_run, 'interruptions', o.interruptions) end,
    'attempts', coalesce((
      select json_agg(a.run || '/' || a.number || ' ' || a.outcome order by a.run, a.number)
      from sealpost.attempts a where a.delivery_id = d.id), '[]')
  ) order by d.id)
  from sealpost.deliveries d
  left join sealpost.open_deliveries o on o.delivery_id = d.id
  where d.id = any ($1::uuid[])
), '[]') as deliveries,
array(select json_array_elements_text(payload -> 'ids') from taken) as woken`.replaceAll(
  /micros\(([a-z_.]+)\)/g,
  "(extract(epoch from $1) * 1000000)::bigint",
);

/** Which deliveries the operation issues wake-ups for, in rising order. */
function wokenBy(operation: Operation, state: string, count: number): readonly number[] {
  if (operation.kind === "promote") return operation.woken;
  if (operation.kind === "replay") return operation.wakes ? [operation.id] : [];
  if (operation.kind === "publish") return JSON.parse(state).at(-1).open === null ? [] : [count - 1];
  return [];
}

function stateOf(rows: Rows): string {
  const micros = (ms: number | null) => (ms === null ? null : Math.round(ms * 1000));
  return JSON.stringify(
    rows.deliveries.map(({ status, reason, run, attemptsCount, lastErrorCode, open, attempts }) => ({
      status,
      reason,
      run,
      attemptsCount,
      lastErrorCode,
      open: open && {
        dueAt: micros(open.dueAt),
        wakeAt: micros(open.wakeAt),
        runStartedAt: micros(open.runStartedAt),
        lease: open.lease && {
          token: uuidOf(open.lease.token),
          until: micros(open.lease.until),
          run: open.lease.run,
          number: open.lease.number,
        },
        quarantinedInRun: open.quarantinedInRun,
        run: open.run,
        attemptsInRun: open.attemptsInRun,
        interruptions: open.interruptions,
      },
      attempts: [...attempts]
        .sort((a, b) => a.run - b.run || a.number - b.number)
        .map((attempt) => `${attempt.run}/${attempt.number} ${attempt.outcome}`),
    })),
  );
}

function toReal(recording: Recording, ids: readonly string[]): RealRecording {
  const { attempt, next } = recording;
  const { status } = next;
  return {
    deliveryId: ids[recording.delivery]!,
    leaseToken: uuidOf(recording.token),
    run: recording.run,
    attempt: attempt && {
      ...attempt,
      startedAtMs: FIRST_MOMENT,
      endedAtMs: FIRST_MOMENT,
      dnsMs: null,
      connectMs: null,
      tlsMs: null,
      firstByteMs: null,
      statusCode: null,
      targetUrl: URLS.allowed,
      remoteAddress: null,
      responseHeaders: null,
      responseExcerpt: null,
    },
    next: status === "abandoned" ? { ...next, errorCode: attempt?.errorCode ?? null } : next,
  };
}

const uuidOf = (token: number) => `00000000-0000-4000-8000-${token.toString(16).padStart(12, "0")}`;
const byDelivery = (a: Claimed, b: Claimed) => a.delivery - b.delivery;
