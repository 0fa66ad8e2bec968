import { DAY_MS } from "../model/time.ts";
import { type Retention, readClock, readRetention } from "../store/cell-keeping.ts";
import type { Move } from "./move.ts";
import { MoveRefusedError } from "./move-refused-error.ts";

/** More than synchronized clocks differ, and less than anybody notices who waits for a retry. */
const CLOCKS_APART_MS_MAX = 10_000;
const CLOCK_TRIES = 3;

/** The variables that they come from, and their unit. */
const VARIABLES: Readonly<Record<keyof Retention, { readonly name: string; readonly unitMs: number }>> = {
  analysisRetentionMs: { name: "ANALYSIS_RETENTION_SECONDS", unitMs: 1_000 },
  logRetentionMs: { name: "LOG_RETENTION_DAYS", unitMs: DAY_MS },
  auditRetentionMs: { name: "AUDIT_RETENTION_DAYS", unitMs: DAY_MS },
  idempotencyRetentionMs: { name: "IDEMPOTENCY_RETENTION_SECONDS", unitMs: 1_000 },
};

/**
 * @throws MoveRefusedError when something of an account would be forgotten at the target sooner than at the source, or
 * would be due or expire at another time
 */
export async function refuseDifferences({ source, target }: Pick<Move, "source" | "target">): Promise<void> {
  const [here, there] = await Promise.all([readRetention(source.pool), readRetention(target.pool)]);
  const retention = retentionRefusalOf(here, there);
  if (retention !== null) throw new MoveRefusedError(retention);
  const clocks = clockRefusalOf(await measureAheadMs({ source, target }));
  if (clocks !== null) throw new MoveRefusedError(clocks);
}

/** Null: nothing is forgotten sooner at the target, or one of the two has never forgotten anything. */
export function retentionRefusalOf(here: Retention | null, there: Retention | null): string | null {
  if (here === null || there === null) return null;
  const shorter = (Object.keys(VARIABLES) as (keyof Retention)[]).filter((name) => there[name] < here[name]);
  if (shorter.length === 0) return null;
  const told = shorter.map((name) => {
    const { name: variable, unitMs } = VARIABLES[name];
    return `${variable} is ${there[name] / unitMs} there and ${here[name] / unitMs} here`;
  });
  return (
    `The target forgets sooner than the source: ${told.join(", ")}. What is older would be lost: give the target's ` +
    "`dispatch` at least as much; its leader says so within a minute."
  );
}

/** @param aheadMs by how much the target's clock is ahead of the source's; negative: behind */
export function clockRefusalOf(aheadMs: number): string | null {
  if (Math.abs(aheadMs) <= CLOCKS_APART_MS_MAX) return null;
  const seconds = Math.round(Math.abs(aheadMs) / 1_000);
  const [where, effect] =
    aheadMs > 0
      ? ["ahead of", "expires early, and retries come early"]
      : ["behind", "expires late, and retries come late"];
  return (
    `The clock of the target's server is ${seconds} s ${where} the source's: what has a time (keys, the log) ` +
    `${effect} there. Set the clocks (NTP) first.`
  );
}

/** The one time of some that took least: a busy server answers late, which is no difference. */
async function measureAheadMs({ source, target }: Pick<Move, "source" | "target">): Promise<number> {
  let best = { tookMs: Number.POSITIVE_INFINITY, aheadMs: 0 };
  for (let tries = 0; tries < CLOCK_TRIES; tries++) {
    const startedAtMs = performance.now();
    const [here, there] = await Promise.all([readClock(source.pool), readClock(target.pool)]);
    const tookMs = performance.now() - startedAtMs;
    if (tookMs < best.tookMs) best = { tookMs, aheadMs: there - here };
  }
  // So much of it may be the way.
  return Math.sign(best.aheadMs) * Math.max(0, Math.abs(best.aheadMs) - best.tookMs);
}
