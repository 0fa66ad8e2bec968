import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Poster, PostResult } from "../../src/dispatch/post.ts";
import type { ErrorCode } from "../../src/outcomes/error-codes.ts";
import { HOSTILE_BEHAVIOURS, type HostileBehaviour } from "../support/hostile-receiver.ts";
import { type HostileReceivers, startHostileReceivers } from "../support/hostile-receivers.ts";
import { createTestPoster, postRequest } from "../support/poster.ts";

const DEADLINE_MS = 1_000;
const CONNECT_TIMEOUT_MS = 700;
const BODY_READ_MS = 400;
/** What an attempt may take beyond its bound. */
const GRACE_MS = 100;

type Expected = {
  errorCode: ErrorCode | null;
  /** Milliseconds by which it has to be over; the deadline unless given. */
  boundMs?: number;
  /** True if only the bound can have ended it, so that it must not be over before. */
  endsAtBound?: true;
  excerpt?: string | RegExp;
};

const success: Expected = { errorCode: null };
const cutSuccess: Expected = { errorCode: null, excerpt: /… \[cut off\]$/ };
const bodyTooSlow: Expected = { ...cutSuccess, boundMs: DEADLINE_MS, excerpt: /… \[cut off\]$/ };
const late: Expected = { errorCode: "response_timeout", endsAtBound: true };
const garbage: Expected = { errorCode: "bad_response" };
const headTooLarge: Expected = { errorCode: "response_head_too_large" };
const tlsTimeout: Expected = { errorCode: "tls_timeout", boundMs: CONNECT_TIMEOUT_MS, endsAtBound: true };

const EXPECTED: Record<HostileBehaviour, Expected> = {
  silent: late,
  never_reads: late,
  slow_head: late,
  header_drip: late,
  informational_drip: late,
  informational_flood: headTooLarge,
  close_without_answer: { errorCode: "connection_closed" },
  reset_before_head: { errorCode: "connection_reset" },
  reset_in_head: { errorCode: "connection_reset" },
  close_in_head: { errorCode: "connection_closed" },

  reset_after_2xx_head: { errorCode: null, excerpt: "begun… [cut off]" },
  reset_after_500_head: { errorCode: "status_500", excerpt: "begun… [cut off]" },
  close_in_body: { errorCode: null, excerpt: "begun… [cut off]" },
  body_drip: bodyTooSlow,
  error_body_drip: { ...bodyTooSlow, errorCode: "status_500" },
  body_never_comes: bodyTooSlow,
  endless_body: cutSuccess,
  endless_error_body: { ...cutSuccess, errorCode: "status_500" },
  endless_chunks: cutSuccess,
  huge_body: cutSuccess,
  endless_trailer: cutSuccess,
  trailer_drip: bodyTooSlow,
  bad_chunk: { errorCode: null, excerpt: "ok… [cut off]" },
  gzip_bomb: { errorCode: null, excerpt: "[compressed: gzip]" },

  ssh_banner: garbage,
  ssh_banner_on_request: garbage,
  http_0_9: garbage,
  http_2_preface: garbage,
  line_feeds_only: garbage,
  status_000: garbage,
  status_99: garbage,
  status_999: { errorCode: "status_999", excerpt: "no" },
  status_1000: garbage,
  // A client should bear with it, but undici does not.
  continue_unasked: garbage,
  hints_then_ok: success,
  switching_protocols: garbage,
  switching_to_nothing: garbage,
  two_content_lengths: garbage,
  negative_content_length: garbage,
  content_length_and_chunked: garbage,
  header_with_nul: garbage,
  endless_header: headTooLarge,
  many_headers: headTooLarge,
  answers_twice: { errorCode: null, excerpt: "ok" },
  answers_before_the_request: { errorCode: null, excerpt: "ok" },
  early_413: { errorCode: "status_413", excerpt: "no" },

  tls_never_finishes: tlsTimeout,
  tls_drip: tlsTimeout,
  closes_in_handshake: { errorCode: "tls_closed" },
  resets_in_handshake: { errorCode: "tls_closed" },
  plain_http: { errorCode: "tls_not_spoken" },
  plain_ssh: { errorCode: "tls_not_spoken" },
  self_signed: { errorCode: "tls_self_signed" },
  expired: { errorCode: "tls_expired" },
  not_yet_valid: { errorCode: "tls_not_yet_valid" },
  wrong_name: { errorCode: "tls_wrong_name" },
  tls_1_1: { errorCode: "tls_version" },
  // In TLS 1.3 the client is done before the server says that it misses a certificate.
  wants_client_certificate: { errorCode: "connection_closed" },

  closes_behind_answer: success,
  closes_idle: success,
};

const BEHAVIOURS = Object.keys(HOSTILE_BEHAVIOURS) as HostileBehaviour[];
const NOT_TRUSTED = BEHAVIOURS.filter((behaviour) => /^(tls_|.*_in_handshake|plain_)/.test(behaviour)).concat(
  "self_signed",
  "expired",
  "not_yet_valid",
  "wrong_name",
);

let receivers: HostileReceivers;
let poster: Poster;
const results = new Map<HostileBehaviour, PostResult>();
/** How late this process's own timers were while the POSTs ran; the machine's fault, not the poster's. */
let timerLagMs = 0;

beforeAll(async () => {
  receivers = await startHostileReceivers();
  poster = createTestPoster({
    ports: Object.values(receivers.ports),
    caPem: receivers.caPem,
    connectTimeoutMs: CONNECT_TIMEOUT_MS,
    limits: { bodyReadMs: BODY_READ_MS },
  });
  const stopWatching = watchTimerLag((lagMs) => {
    timerLagMs = Math.max(timerLagMs, lagMs);
  });
  await Promise.all(
    BEHAVIOURS.map(async (behaviour) => {
      // More than the sockets' buffers hold would make no difference: the POST is one write.
      const body = Buffer.alloc(200_000, "x");
      const request = postRequest(receivers.url(behaviour), { deadlineMs: DEADLINE_MS, body });
      results.set(behaviour, await poster.post(request));
    }),
  );
  stopWatching();
});

afterAll(async () => {
  await poster.close();
  await receivers.close();
});

describe("a hostile receiver", () => {
  it.each(BEHAVIOURS)("%s: ends as it should, in time", (behaviour) => {
    const { errorCode, boundMs = DEADLINE_MS, endsAtBound, excerpt } = EXPECTED[behaviour];
    const result = results.get(behaviour);
    expect(result).toMatchObject({ errorCode });
    expect(result?.outcome === "succeeded").toBe(errorCode === null);
    expect(result?.durationMs).toBeLessThanOrEqual(boundMs + GRACE_MS + timerLagMs);
    if (endsAtBound) expect(result?.durationMs).toBeGreaterThanOrEqual(boundMs - 2);
    if (excerpt !== undefined) expect(result?.responseExcerpt).toMatch(excerpt);
    expect(Buffer.byteLength(result?.responseExcerpt ?? "")).toBeLessThanOrEqual(1_024);
  });

  it("gets not one byte of the payload if its TLS is not to be trusted", async () => {
    const bytes = await receivers.requestBytes();
    for (const behaviour of NOT_TRUSTED) {
      expect(bytes[behaviour], behaviour).toBe(0);
      expect(results.get(behaviour), behaviour).toMatchObject({
        outcome: "tls_failed",
        mayHaveWritten: false,
      });
    }
    // The counter counts: the others got the request.
    expect(bytes.silent).toBeGreaterThan(0);
  });

  it("is never sent the same request twice", async () => {
    const bytes = await receivers.requestBytes();
    for (const behaviour of BEHAVIOURS) expect(bytes[behaviour], behaviour).toBeLessThan(2 * 200_000);
  });

  it("leaves no connection behind but the sound ones", () => {
    expect(poster.gauges().inFlight).toBe(0);
    expect(poster.gauges().openConnections).toBe(poster.gauges().idleConnections);
    expect(poster.gauges().idleConnections).toBeLessThanOrEqual(4);
  });

  it("that closes behind each answer without saying so gets every POST all the same", async () => {
    const request = postRequest(receivers.url("closes_behind_answer"));
    const failed: PostResult[] = [];
    for (let n = 0; n < 200; n += 1) {
      const result = await poster.post(request);
      if (result.outcome !== "succeeded") failed.push(result);
    }
    expect(failed).toEqual([]);
  });

  it("that closed an idle connection while nobody looked gets the next POST on a fresh one", async () => {
    const request = postRequest(receivers.url("closes_idle"));
    for (let n = 0; n < 5; n += 1) {
      expect((await poster.post(request)).outcome).toBe("succeeded");
      // The event loop stands still while the receiver closes, as in a long garbage collection.
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 250);
    }
  });
});

function watchTimerLag(onLag: (lagMs: number) => void): () => void {
  const intervalMs = 20;
  let dueAtMs = performance.now() + intervalMs;
  const timer = setInterval(() => {
    onLag(performance.now() - dueAtMs);
    dueAtMs = performance.now() + intervalMs;
  }, intervalMs);
  return () => clearInterval(timer);
}
