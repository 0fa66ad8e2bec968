import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { ErrorCode } from "../../src/base/model/error-codes.ts";
import type { PostLimits } from "../../src/egress/post/connection-pool.ts";
import type { Poster } from "../../src/egress/post/post.ts";
import type { PostResult } from "../../src/egress/post/result.ts";
import { HOSTILE_BEHAVIOURS, type HostileBehaviour } from "../support/hostile-receiver.ts";
import { type HostileReceivers, startHostileReceivers } from "../support/hostile-receivers.ts";
import { createTestPoster, postRequest } from "../support/poster.ts";
import { patience, watchLateness } from "../support/time-limits.ts";

/** For receivers that only the deadline can end. */
const DEADLINE_MS = patience(1_000);
/** For receivers that only the connector's bound can end. */
const CONNECT_TIMEOUT_MS = patience(700);
const BODY_READ_MS = patience(400);
/** For the others, which end by what they do, however busy the machine is. */
const PATIENT_MS = patience(20_000);
/** What an attempt may take beyond its bound. */
const GRACE_MS = 100;

type Expected = {
  errorCode: ErrorCode | null;
  endsBy?: "deadline" | "connect timeout" | "body time";
  excerpt?: string | RegExp;
};

const success: Expected = { errorCode: null };
const cutSuccess: Expected = { errorCode: null, excerpt: /… \[cut off\]$/ };
const bodyTooSlow: Expected = { ...cutSuccess, endsBy: "body time" };
const late: Expected = { errorCode: "response_timeout", endsBy: "deadline" };
const garbage: Expected = { errorCode: "bad_response" };
const headTooLarge: Expected = { errorCode: "response_head_too_large" };
const tlsTimeout: Expected = { errorCode: "tls_timeout", endsBy: "connect timeout" };

const EXPECTED: Record<HostileBehaviour, Expected> = {
  silent: late,
  never_reads: late,
  slow_head: late,
  header_drip: late,
  informational_drip: late,
  informational_flood: headTooLarge,
  line_end_flood: headTooLarge,
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
  chunk_extension_flood: { errorCode: null, excerpt: "ok… [cut off]" },
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
  http_2_status_line: garbage,
  http_2_behind_line_ends: garbage,
  rtsp_status_line: garbage,
  ice_status_line: garbage,
  http_2_status_line_in_pieces: garbage,
  // Its first answer is right; test/egress/post/connection-pool.test.ts asks for a second one.
  http_2_status_line_later: success,
  http_0_9_status_line: garbage,
  http_1_0_status_line: { errorCode: null, excerpt: "ok" },
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
  wants_client_certificate: { errorCode: "tls_protocol" },

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
/** These keep the receivers' process busy, so they get their turn after the ones with a clock. */
const FLOODS = BEHAVIOURS.filter((behaviour) => /flood|endless|huge|bomb|many/.test(behaviour));

/** More than one write of the sockets. */
const BODY = Buffer.alloc(200_000, "x");

let receivers: HostileReceivers;
let patient: Poster;
let hasty: Poster;
const results = new Map<HostileBehaviour, PostResult>();
/** How late this process's own timers were while the POSTs ran; the machine's fault, not the poster's. */
let timerLagMs = 0;

function startPoster(connectTimeoutMs: number, limits: Partial<PostLimits>): Poster {
  const ports = Object.values(receivers.ports);
  return createTestPoster({ ports, caPem: receivers.caPem, connectTimeoutMs, limits });
}

async function postTo(behaviour: HostileBehaviour): Promise<void> {
  const { endsBy } = EXPECTED[behaviour];
  const poster = endsBy === "connect timeout" ? hasty : patient;
  const deadlineMs = endsBy === "deadline" ? DEADLINE_MS : PATIENT_MS;
  const request = postRequest(receivers.url(behaviour), { deadlineMs, body: BODY });
  results.set(behaviour, await poster.post(request));
}

beforeAll(async () => {
  receivers = await startHostileReceivers();
  patient = startPoster(PATIENT_MS, { bodyReadMs: BODY_READ_MS });
  hasty = startPoster(CONNECT_TIMEOUT_MS, {});
  const stopWatching = watchTimerLag((lagMs) => {
    timerLagMs = Math.max(timerLagMs, lagMs);
  });
  await Promise.all(BEHAVIOURS.filter((behaviour) => !FLOODS.includes(behaviour)).map(postTo));
  stopWatching();
  await Promise.all(FLOODS.map(postTo));
});

afterAll(async () => {
  await patient.close();
  await hasty.close();
  await receivers.close();
});

/** Milliseconds by which a result had to be there. */
function boundOf({ endsBy }: Expected, { timings }: PostResult): number {
  const { dnsMs, connectMs, tlsMs, firstByteMs } = timings;
  switch (endsBy) {
    case "deadline":
      return DEADLINE_MS;
    case "connect timeout":
      return CONNECT_TIMEOUT_MS;
    case "body time":
      return (dnsMs ?? 0) + (connectMs ?? 0) + (tlsMs ?? 0) + (firstByteMs ?? 0) + BODY_READ_MS;
    default:
      return PATIENT_MS;
  }
}

describe("a hostile receiver", () => {
  it.each(BEHAVIOURS)("%s: ends as it should, in time", (behaviour) => {
    const expected = EXPECTED[behaviour];
    const result = results.get(behaviour);
    expect(result).toMatchObject({ errorCode: expected.errorCode });
    expect(result?.outcome === "succeeded").toBe(expected.errorCode === null);
    if (expected.excerpt !== undefined) expect(result?.responseExcerpt).toMatch(expected.excerpt);
    expect(Buffer.byteLength(result?.responseExcerpt ?? "")).toBeLessThanOrEqual(1_024);

    const boundMs = boundOf(expected, result!);
    expect(result?.durationMs).toBeLessThanOrEqual(boundMs + patience(GRACE_MS) + timerLagMs);
    if (expected.endsBy !== undefined) expect(result?.durationMs).toBeGreaterThanOrEqual(boundMs - 2);
  });

  it.each<HostileBehaviour>(["body_drip", "trailer_drip", "body_never_comes"])(
    "%s: has its body cut at the deadline, if that comes first",
    async (behaviour) => {
      const poster = startPoster(PATIENT_MS, { bodyReadMs: PATIENT_MS });
      const latenessMs = watchLateness();
      const result = await poster.post(postRequest(receivers.url(behaviour), { deadlineMs: DEADLINE_MS }));
      expect(result).toMatchObject({ outcome: "succeeded", statusCode: 200 });
      expect(result.durationMs).toBeGreaterThanOrEqual(DEADLINE_MS - 2);
      expect(result.durationMs).toBeLessThan(DEADLINE_MS + patience(5 * GRACE_MS) + latenessMs());
      await poster.close();
    },
  );

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
    for (const behaviour of BEHAVIOURS) expect(bytes[behaviour], behaviour).toBeLessThan(2 * BODY.length);
  });

  it("leaves no connection behind but the sound ones", () => {
    for (const { inFlight, openConnections, idleConnections } of [patient.gauges(), hasty.gauges()]) {
      expect(inFlight).toBe(0);
      expect(openConnections).toBe(idleConnections);
      expect(idleConnections).toBeLessThanOrEqual(4);
    }
  });

  it("that closes behind each answer without saying so costs one POST at most", async () => {
    // What is soon for a receiver is later on a slow machine.
    const slower = startPoster(PATIENT_MS, { soonMs: patience(200) });
    const request = postRequest(receivers.url("closes_behind_answer"));
    const failed: (ErrorCode | null)[] = [];
    for (let n = 0; n < 200; n += 1) {
      const result = await slower.post(request);
      if (result.outcome !== "succeeded") failed.push(result.errorCode);
    }
    // A receiver that is held up between its first answer and its close gets the second POST in between, and loses it.
    // Nothing that the sender can see tells; from then on, or from the first close on, it keeps no connection.
    expect([[], ["connection_closed"], ["connection_reset"]]).toContainEqual(failed);
    await slower.close();
  });

  it("that closed an idle connection while nobody looked gets the next POST on a fresh one", async () => {
    // Without what is learnt from the first time.
    const forgetful = startPoster(PATIENT_MS, { soonMs: 0, distrustMs: 0 });
    const request = postRequest(receivers.url("closes_idle"));
    for (let n = 0; n < 5; n += 1) {
      expect((await forgetful.post(request)).outcome).toBe("succeeded");
      // The event loop stands still while the receiver closes, as in a long garbage collection.
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, patience(250));
    }
    await forgetful.close();
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
