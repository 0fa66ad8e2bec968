// Time limits for busy machines: each is multiplied by the machine's current slowness.
import { readFileSync } from "node:fs";

/** The file to which slowness-probe.ts writes its latest figure. */
export const SLOWNESS_FILE_VARIABLE = "SEALPOST_TEST_SLOWNESS";

/** How many times slower than usual the machine was in the last minute, 1 to 20; 1 if it is not measured. */
export function slowness(): number {
  const file = process.env[SLOWNESS_FILE_VARIABLE];
  return file === undefined ? 1 : Number(readFileSync(file, "utf8"));
}

/**
 * Scales `ms` on a quiet machine to this one now. For upper limits only: how long to wait for something, how late it
 * may be. Where the product itself waits for a fixed time, scale only what comes on top of it.
 */
export function patience(ms: number): number {
  return Math.ceil(ms * slowness());
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
