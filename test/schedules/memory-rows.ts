// The rows of deliveries as a dispatcher's statements see them, in memory, and what may go wrong with them.
import { seal } from "../../src/base/database/sealing.ts";
import type { ClaimedDelivery, ClaimInput, LeasedDelivery } from "../../src/delivery/claim-sql.ts";
import type { Overflow, WaitingDelivery } from "../../src/delivery/lane.ts";
import type { TakenBack } from "../../src/delivery/promote-sql.ts";
import type { Recording } from "../../src/delivery/record-sql.ts";
import type { Chance } from "../simulation/chance.ts";

export const SECRETS_KEY = Buffer.alloc(32, 3);
/** By the database's clock, when a schedule begins: two days are written apart. */
export const BEGIN_MS = Date.UTC(2031, 4, 6);
export const BIG_BYTES = 30 * 1024 * 1024;
const ACCOUNTS = ["a", "b", "c"];
const LANES = ["1", "2"];

export type Row = WaitingDelivery & {
  readonly bodyBytes: number;
  dueAtMs: number;
  token: string | null;
  leaseUntilMs: number;
  attempts: number;
  /** Succeeded, abandoned, or another process sees to it. */
  hasEnded: boolean;
  /** The dispatcher has taken it on, and has not been told yet that there is nothing to do. */
  isTakenOn: boolean;
  /** The database refuses to read it. */
  isUnreadable: boolean;
  /** It belongs into quarantine. */
  isPoison: boolean;
};

const sealedSecretsOf = (accountId: string) => [
  `s:${seal(`whsec_${"c2VjcmV0".repeat(4)}`, SECRETS_KEY, { accountId, id: "s" }).toString("base64")}`,
];
const SECRETS = new Map(ACCOUNTS.map((accountId) => [accountId, sealedSecretsOf(accountId)]));

export class MemoryRows {
  readonly #rows = new Map<string, Row>();
  readonly #now: () => number;

  /** @param now ms since the schedule began */
  constructor(now: () => number) {
    this.#now = now;
  }

  of(deliveryId: string): Row {
    return this.#rows.get(deliveryId)!;
  }

  get all(): readonly Row[] {
    return [...this.#rows.values()];
  }

  /** What has not ended. */
  get left(): readonly Row[] {
    return this.all.filter((row) => !row.hasEnded);
  }

  /** @param bigShare of what is published, how much is big */
  publish(chance: Chance, bigShare: number): void {
    const nth = this.#rows.size;
    const ms = (BEGIN_MS + (chance.isTrue(0.3) ? -1 : 1) * (nth + 1)).toString(16).padStart(12, "0");
    const deliveryId = `${ms.slice(0, 8)}-${ms.slice(8)}-7000-8000-${String(nth).padStart(12, "0")}`;
    this.#rows.set(deliveryId, {
      deliveryId,
      // Mostly one account's, or none of them would have much.
      accountId: chance.isTrue(0.5) ? ACCOUNTS[0]! : chance.pick(ACCOUNTS),
      lane: chance.pick(LANES),
      bodyBytes: chance.isTrue(bigShare) ? BIG_BYTES : 100,
      dueAtMs: 0,
      token: null,
      leaseUntilMs: 0,
      attempts: 0,
      hasEnded: false,
      isTakenOn: false,
      isUnreadable: chance.isTrue(0.04),
      isPoison: chance.isTrue(0.04),
    });
  }

  isDue(row: Row): boolean {
    return !row.hasEnded && row.dueAtMs <= this.#now() && row.leaseUntilMs <= this.#now();
  }

  /** As `claimText` does. Null: the database refuses to read one of them. */
  claim(
    input: Pick<ClaimInput, "deliveryIds" | "leaseToken" | "leaseMs" | "bytesMax">,
  ): ClaimedDelivery[] | null {
    const { leaseToken, leaseMs, bytesMax } = input;
    const rows = [...input.deliveryIds].sort().map((id) => this.of(id));
    const unreadable = rows.filter((row) => row.isUnreadable);
    for (const row of unreadable) row.isTakenOn = false;
    if (unreadable.length > 0) return null;
    let bytes = 0;
    const isOurs = (row: Row) => Number(row.token === leaseToken);
    rows.sort((one, other) => isOurs(other) - isOurs(one));
    return rows.flatMap((row): ClaimedDelivery[] => {
      if (row.hasEnded || (!this.isDue(row) && row.token !== leaseToken)) {
        // One that somebody has a lease of is not told of: that one sees to it.
        row.isTakenOn &&= row.token !== null;
        return [];
      }
      const { deliveryId, lane } = row;
      const isFirst = bytes === 0;
      bytes += row.bodyBytes;
      if (!isFirst && bytes > bytesMax && row.token !== leaseToken)
        return [{ kind: "left", deliveryId, lane }];
      if (row.isPoison) return [{ kind: "must_be_quarantined", deliveryId, lane }];
      Object.assign(row, { token: leaseToken, leaseUntilMs: this.#now() + leaseMs });
      return [leased(row, leaseToken)];
    });
  }

  free(deliveryIds: readonly string[], leaseToken: string): void {
    for (const row of deliveryIds.map((id) => this.of(id)))
      if (row.token === leaseToken) Object.assign(row, { token: null, leaseUntilMs: 0 });
  }

  takeBack({ accountId, lane, fromId, room }: Overflow): TakenBack {
    const due = this.left
      .filter((row) => row.accountId === accountId && row.lane === lane && this.isDue(row))
      .map(({ deliveryId }) => deliveryId)
      .filter((id) => id >= fromId)
      .sort();
    return { deliveryIds: due.slice(0, room), nextFromId: due[room] ?? null };
  }

  /** As `recordText` does. False: the lease is not that one any more. */
  record({ deliveryId, leaseToken, next, attempt }: Recording): boolean {
    const row = this.of(deliveryId);
    if (row.token !== leaseToken) return false;
    Object.assign(row, { token: null, leaseUntilMs: 0 });
    if (attempt !== null) row.attempts++;
    if (next.status !== "waits") row.isTakenOn = false;
    if (next.status === "succeeded" || next.status === "abandoned") row.hasEnded = true;
    if (next.status === "failed" || next.status === "released") row.dueAtMs = next.dueAtMs - BEGIN_MS;
    return true;
  }
}

function leased(row: Row, leaseToken: string): LeasedDelivery {
  const { deliveryId, accountId, lane, attempts, bodyBytes } = row;
  return {
    kind: "leased",
    deliveryId,
    accountId,
    lane,
    leaseToken,
    run: 1,
    number: attempts + 1,
    runStartedAtMs: BEGIN_MS,
    dueAtMs: BEGIN_MS,
    wasInterrupted: false,
    wasInterruptedInQuarantine: false,
    createdAtMs: BEGIN_MS,
    event: "analysis.succeeded",
    webhookUrl: null,
    endpointUrl: "https://receiver.example.com/",
    analysisText: "{}",
    bodyBytes,
    traceparent: null,
    provenAtMs: BEGIN_MS,
    provenSinceMs: BEGIN_MS,
    isRefused: false,
    sealedSecrets: SECRETS.get(accountId)!,
    signsStandard: false,
    sealedHeaders: null,
  };
}
