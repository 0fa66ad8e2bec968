import type { ErrorCode } from "../../src/base/model/error-codes.ts";
import type { DeliveryStatus, EndReason, Outcome, ReplayOutcome } from "../../src/base/model/statuses.ts";

/**
 * The rows of the delivery log and what the store's statements do to them, in memory. What they mean is said in
 * src/delivery/claim-sql.ts, src/delivery/record-sql.ts and sql/; that both do the same is what the twin checks.
 *
 * Times are milliseconds; a row's have at most three decimals, as PostgreSQL keeps microseconds.
 */

/** number null: no attempt is under way, the lease is only for ending the run. */
export type Lease = {
  readonly token: number;
  readonly until: number;
  readonly run: number;
  readonly number: number | null;
};

export type OpenRow = {
  dueAt: number;
  wakeAt: number;
  runStartedAt: number | null;
  lease: Lease | null;
  /** The run whose last lease was taken in quarantine; null: none was. */
  quarantinedInRun: number | null;
  run: number;
  attemptsInRun: number;
  interruptions: number;
};

export type Attempt = { readonly run: number; readonly number: number; readonly outcome: Outcome };

/** Where a delivery goes by its own webhook_url; null: to the account's endpoint. */
export type OwnTarget = "allowed" | "refused" | null;

export type Delivery = {
  readonly createdAt: number;
  readonly bodyBytes: number;
  readonly ownTarget: OwnTarget;
  status: DeliveryStatus;
  reason: EndReason | null;
  run: number;
  attemptsCount: number;
  lastErrorCode: string | null;
  /** Null: no more attempts to come. */
  open: OpenRow | null;
  readonly attempts: Attempt[];
};

export type ClaimRequest = {
  readonly at: number;
  readonly token: number;
  readonly leaseMs: number;
  readonly bytesMax: number;
  readonly isInQuarantine: boolean;
  readonly attemptsMax: number;
};

export type Leased = {
  readonly kind: "leased";
  readonly delivery: number;
  readonly run: number;
  readonly number: number | null;
  readonly runStartedAt: number;
  readonly wasInterruptedInQuarantine: boolean;
  readonly target: "allowed" | "refused" | null;
};
export type Claimed =
  | Leased
  | { readonly kind: "must_be_quarantined"; readonly delivery: number }
  | { readonly kind: "left"; readonly delivery: number };

export type Next =
  | { readonly status: "succeeded" }
  | { readonly status: "failed" | "released"; readonly dueAtMs: number }
  | { readonly status: "abandoned"; readonly reason: EndReason };

/** attempt null: nothing was posted. */
export type Recording = {
  readonly delivery: number;
  readonly token: number;
  readonly run: number;
  readonly attempt: {
    readonly number: number;
    readonly outcome: Outcome;
    readonly errorCode: ErrorCode | null;
  } | null;
  readonly next: Next;
};

const WAKE_AFTER_MS = 15_000;
const INTERRUPTIONS_BEFORE_QUARANTINE = 2;

export class Rows {
  readonly deliveries: Delivery[] = [];
  /** The account's endpoint: one that is allowed, one that is refused by its text, or none. */
  endpoint: OwnTarget = "allowed";

  publish(at: number, bodyBytes: number, ownTarget: OwnTarget): Delivery {
    const hasTarget = ownTarget !== null || this.endpoint !== null;
    const delivery: Delivery = {
      createdAt: at,
      bodyBytes,
      ownTarget,
      status: hasTarget ? "pending" : "abandoned",
      reason: hasTarget ? null : "no_target",
      run: 1,
      attemptsCount: 0,
      lastErrorCode: null,
      open: hasTarget ? openRow(at, 1) : null,
      attempts: [],
    };
    this.deliveries.push(delivery);
    return delivery;
  }

  /** `ids` in rising order: the order of publishing, which is that of the real ids. */
  claim(ids: readonly number[], request: ClaimRequest): Claimed[] {
    const cut: number[] = [];
    const claimed = this.#claim(ids, request, request.bytesMax, cut);
    if (cut.length === 0) return claimed;
    for (const id of cut) this.#recover(this.deliveries[id]!, this.deliveries[id]!.open!);
    const bytes = claimed.reduce(
      (sum, one) => sum + (one.kind === "leased" ? this.#bytes(one.delivery) : 0),
      0,
    );
    claimed.push(...this.#claim(cut, request, request.bytesMax - bytes, cut));
    return claimed;
  }

  #bytes(id: number): number {
    return this.deliveries[id]!.bodyBytes;
  }

  #claim(ids: readonly number[], request: ClaimRequest, bytesMax: number, cut: number[]): Claimed[] {
    const claimed: Claimed[] = [];
    let bytes = 0;
    let isFirst = true;
    const isLeased = (id: number) => this.deliveries[id]!.open?.lease?.token === request.token;
    for (const id of ids.toSorted((one, other) => Number(isLeased(other)) - Number(isLeased(one)))) {
      const { open: row } = this.deliveries[id]!;
      if (row === null || row.dueAt > request.at) continue;
      const isOurs = row.lease?.token === request.token;
      if (row.lease !== null && row.lease.until > request.at && !isOurs) continue;
      bytes += this.#bytes(id);
      const hasRoom = isOurs || (isFirst && bytesMax > 0) || bytes <= bytesMax;
      isFirst = false;
      if (row.lease !== null && !isOurs) cut.push(id);
      else if (!hasRoom) claimed.push({ kind: "left", delivery: id });
      else claimed.push(this.#lease(id, row, request));
    }
    return claimed;
  }

  #recover(delivery: Delivery, row: OpenRow): void {
    const lease = row.lease!;
    row.lease = null;
    if (lease.number === null) return;
    delivery.attempts.push({ run: lease.run, number: lease.number, outcome: "interrupted" });
    delivery.attemptsCount++;
    delivery.lastErrorCode = "interrupted";
    row.interruptions++;
    if (lease.run !== row.run) return;
    delivery.status = "failed";
    row.attemptsInRun++;
  }

  #lease(id: number, row: OpenRow, request: ClaimRequest): Claimed {
    const wasCutInQuarantine =
      row.quarantinedInRun === row.run && (row.lease === null || row.lease.number === null);
    if (
      row.interruptions >= INTERRUPTIONS_BEFORE_QUARANTINE &&
      !request.isInQuarantine &&
      !wasCutInQuarantine
    ) {
      return { kind: "must_be_quarantined", delivery: id };
    }
    const number =
      wasCutInQuarantine || row.attemptsInRun >= request.attemptsMax ? null : row.attemptsInRun + 1;
    row.runStartedAt ??= request.at;
    row.lease = { token: request.token, until: request.at + request.leaseMs, run: row.run, number };
    row.quarantinedInRun = request.isInQuarantine || wasCutInQuarantine ? row.run : null;
    row.wakeAt = Math.min(row.wakeAt, row.lease.until);
    return {
      kind: "leased",
      delivery: id,
      run: row.run,
      number,
      runStartedAt: row.runStartedAt,
      wasInterruptedInQuarantine: wasCutInQuarantine,
      target: this.deliveries[id]!.ownTarget ?? this.endpoint,
    };
  }

  /** The deliveries whose lease was still ours. */
  record(recordings: readonly Recording[]): number[] {
    const ours: number[] = [];
    for (const recording of recordings) {
      const delivery = this.deliveries[recording.delivery]!;
      const row = delivery.open;
      if (row === null || row.lease?.token !== recording.token) continue;
      ours.push(recording.delivery);
      this.#record(delivery, row, recording);
    }
    return ours;
  }

  #record(delivery: Delivery, row: OpenRow, { run, attempt, next }: Recording): void {
    const isSuperseded = row.run !== run && next.status !== "succeeded";
    row.lease = null;
    row.quarantinedInRun = null;
    if (attempt !== null) {
      delivery.attempts.push({ run, number: attempt.number, outcome: attempt.outcome });
      delivery.attemptsCount++;
      row.interruptions = 0;
      if (!isSuperseded) row.attemptsInRun++;
    }
    if (attempt !== null || next.status !== "released") {
      delivery.lastErrorCode =
        next.status === "succeeded" ? null : (attempt?.errorCode ?? delivery.lastErrorCode);
    }
    if (isSuperseded) {
      row.wakeAt = row.dueAt;
    } else if (next.status === "failed" || next.status === "released") {
      row.dueAt = row.wakeAt = inMicroseconds(next.dueAtMs);
      if (next.status === "failed") delivery.status = "failed";
    } else {
      delivery.open = null;
      delivery.status = next.status;
      delivery.reason = next.status === "abandoned" ? next.reason : null;
      if (next.status === "succeeded") delivery.run = run;
    }
  }

  /** What is due and has nobody at it. */
  promote(at: number): number[] {
    const woken: number[] = [];
    this.deliveries.forEach(({ open: row }, id) => {
      if (row === null || row.wakeAt > at || row.dueAt > at) return;
      if (row.lease !== null && row.lease.until > at) return;
      row.wakeAt = at + WAKE_AFTER_MS;
      woken.push(id);
    });
    return woken;
  }

  /** When there will be something to promote; infinite when nothing is open. */
  nextWakeAt(): number {
    let next = Number.POSITIVE_INFINITY;
    for (const { open } of this.deliveries) {
      if (open !== null) next = Math.min(next, Math.max(open.wakeAt, open.dueAt, open.lease?.until ?? 0));
    }
    return next;
  }

  /** wakes: whether a wake-up was issued at once. */
  replay(id: number, at: number, retentionMs: number): { outcome: ReplayOutcome; wakes: boolean } {
    const delivery = this.deliveries[id]!;
    if (delivery.status !== "failed" && delivery.status !== "abandoned") {
      return { outcome: "not_replayable", wakes: false };
    }
    if (at >= delivery.createdAt + retentionMs) return { outcome: "expired", wakes: false };
    delivery.run++;
    delivery.status = "pending";
    delivery.reason = null;
    const before = delivery.open;
    const isUnderWay = before?.lease != null && before.lease.until > at;
    delivery.open = openRow(at, delivery.run);
    if (before !== null) {
      delivery.open.lease = before.lease;
      delivery.open.quarantinedInRun = before.quarantinedInRun;
      if (isUnderWay) delivery.open.wakeAt = at;
    }
    return { outcome: "replayed", wakes: !isUnderWay };
  }
}

function openRow(at: number, run: number): OpenRow {
  return {
    dueAt: at,
    wakeAt: at + WAKE_AFTER_MS,
    runStartedAt: null,
    lease: null,
    quarantinedInRun: null,
    run,
    attemptsInRun: 0,
    interruptions: 0,
  };
}

/** As `to_timestamp(ms / 1000)` rounds: to microseconds counted from the year 2000, halves to the even one. */
function inMicroseconds(ms: number): number {
  const year2000Seconds = 946_684_800;
  const exact = (ms / 1000 - year2000Seconds) * 1_000_000;
  const up = Math.round(exact);
  const micros = up - exact === 0.5 && up % 2 === 1 ? up - 1 : up;
  return micros / 1000 + year2000Seconds * 1000;
}
