// Time limits for busy machines: each is multiplied by the machine's current slowness.
import { readFileSync } from "node:fs";

/** The file to which slowness-probe.ts writes its latest figure. */
export const SLOWNESS_FILE_VARIABLE = "SEALPOST_TEST_SLOWNESS";

/** Of this test file so far: a limit read later is no shorter than a wait that began before it. */
let slowest = 1;

/** How many times slower than usual the machine was in the last minute, 1 to 20; 1 if it is not measured. */
export function slowness(): number {
  const file = process.env[SLOWNESS_FILE_VARIABLE];
  if (file !== undefined) slowest = Math.max(slowest, Number(readFileSync(file, "utf8")));
  return slowest;
}

/**
 * Scales `ms` on a quiet machine to this one now. For upper limits only: how long to wait for something, how late it
 * may be. Where the product itself waits for a fixed time, scale only what comes on top of it.
 */
export function patience(ms: number): number {
  return Math.ceil(ms * slowness());
}

/** Timers are as late as that anyway. */
const LATE_MS_MIN = 5;
const WATCHED_EVERY_MS = 10;

/**
 * Watches how late this process's timers are from now on. What it returns says by how many ms in all: the machine's
 * share of how long something took, beside patience(), which knows of no moment in which all stood still.
 */
export function watchLateness(): () => number {
  let lateMs = 0;
  let dueAtMs = performance.now() + WATCHED_EVERY_MS;
  const look = () => {
    const now = performance.now();
    if (now - dueAtMs >= LATE_MS_MIN) lateMs += now - dueAtMs;
    dueAtMs = now + WATCHED_EVERY_MS;
  };
  const timer = setInterval(look, WATCHED_EVERY_MS).unref();
  return () => {
    clearInterval(timer);
    look();
    return lateMs;
  };
}

/** Aborts after `ms`, or later if the machine turns out to be slow by then. */
export function patientSignal(ms: number): AbortSignal {
  const controller = new AbortController();
  const startedAt = performance.now();
  const check = () => {
    const leftMs = patience(ms) - (performance.now() - startedAt);
    if (leftMs > 0) setTimeout(check, leftMs).unref();
    else controller.abort(new DOMException(`waited ${patience(ms)} ms`, "TimeoutError"));
  };
  setTimeout(check, ms).unref();
  return controller.signal;
}
