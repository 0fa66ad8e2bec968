import { createHmac } from "node:crypto";
import { afterEach, describe, expect, test } from "vitest";
import type { FaultCode } from "../../src/receivers/faults.ts";
import { PROBE_NAMES, type ProbeName } from "../../src/receivers/probes.ts";
import type { ReceiverReport } from "../../src/receivers/receiver-check.ts";
import { readChallenge, verifyWebhook } from "../../src/signing/index.ts";
import { createCertificateAuthority } from "../support/certificates.ts";
import {
  type ReceivedRequest,
  type Receiver,
  type ReceiverOptions,
  type ScriptedAnswer,
  startReceiver,
} from "../support/receiver.ts";
import { createTestCheck } from "../support/receiver-check.ts";
import { patience } from "../support/time-limits.ts";

const SECRET = "whsec_dGhlIHNlY3JldCBvZiB0aGUgcmVjZWl2ZXIgdG8gY2hlY2s=";
const OLD_SECRET = "whsec_dGhlIHNlY3JldCBiZWZvcmUgdGhlIGxhc3Qgcm90YXRpb24=";

const open: Receiver[] = [];
afterEach(async () => {
  for (const receiver of open.splice(0)) await receiver.close();
});

type Handler = (request: ReceivedRequest) => ScriptedAnswer;

/** Checks a receiver that answers as `handler` does, with the account's secrets. */
async function check(
  handler: Handler,
  options: {
    secrets?: readonly string[];
    receiver?: ReceiverOptions;
    deadlineMs?: number;
  } = {},
): Promise<ReceiverReport & { requests: readonly ReceivedRequest[] }> {
  const receiver = await startReceiver({ ...options.receiver, handler });
  open.push(receiver);
  const report = await createTestCheck(
    receiver,
    options.deadlineMs,
  )({
    url: receiver.url("/webhooks"),
    secrets: options.secrets ?? [SECRET],
    nowMs: Date.now(),
  });
  return { ...report, requests: receiver.requests };
}

/** A right one: the library, and 204. `clockMs`: how far its clock is off. */
function right({ secrets = [SECRET], clockMs = 0 } = {}): Handler {
  return ({ body, headers }) => {
    try {
      const now = new Date(Date.now() + clockMs);
      const input = { rawBody: body, header: headers["extract-signature"], secrets, now };
      const challenge = readChallenge(input);
      if (challenge !== null) return { body: challenge };
      verifyWebhook(input);
      return { status: 204 };
    } catch {
      return { status: 400 };
    }
  };
}

/** What a header says, read by nobody's rules but ours here. */
function partsOf({ headers }: ReceivedRequest): { t: number; v1: readonly string[] } {
  const text = String(headers["extract-signature"] ?? "");
  const values = (name: string) =>
    text.split(",").flatMap((part) => (part.startsWith(`${name}=`) ? [part.slice(name.length + 1)] : []));
  return { t: Number(values("t")[0]), v1: values("v1") };
}

function hmac(timestamp: number, body: Buffer | string): string {
  return createHmac("sha256", SECRET).update(`${timestamp}.`).update(body).digest("hex");
}

const isFresh = (t: number) => Math.abs(Date.now() / 1_000 - t) < 300;

/** Answers by one condition. */
function accepting(condition: (request: ReceivedRequest) => boolean): Handler {
  return (request) => ({ status: condition(request) ? 204 : 400 });
}

const codesOf = ({ faults }: ReceiverReport) => faults.map(({ code }) => code);
const wrongOf = ({ probes }: ReceiverReport) =>
  probes.filter(({ verdict }) => verdict === "wrong").map(({ name }) => name);

describe("a right receiver", () => {
  test.each([
    ["whose clock is right", right(), [SECRET]],
    ["whose clock is 5 s ahead", right({ clockMs: 5_000 }), [SECRET]],
    ["whose clock is 5 s behind", right({ clockMs: -5_000 }), [SECRET]],
    ["that has not yet changed to the new secret", right({ secrets: [OLD_SECRET] }), [SECRET, OLD_SECRET]],
    ["that has changed to the new secret", right(), [SECRET, OLD_SECRET]],
  ])("%s gives no reason to complain", async (_what, handler, secrets) => {
    const report = await check(handler, { secrets });
    expect(report.faults).toEqual([]);
    expect(report.verdict).toBe("right");
    expect(report.probes.map(({ name, verdict }) => [name, verdict])).toEqual(
      PROBE_NAMES.map((name) => [name, "right"]),
    );
  });

  test("is told what was seen of it", async () => {
    const { connection, duration_ms, probes } = await check(right());
    expect(connection).toMatchObject({
      tls_version: "TLSv1.3",
      remote_address: "127.0.0.1",
      certificate_days_left: 364,
      slowest_answer_ms: expect.any(Number),
    });
    expect(duration_ms).toBeLessThan(patience(5_000));
    expect(probes[0]).toMatchObject({
      sent: "a webhook as it is delivered",
      expected: "2xx",
      got: "204",
      explanation: "It accepted a genuine webhook.",
    });
    expect(probes.find(({ name }) => name === "same_delivery_again")?.got).toBe("204, then 204");
    expect(probes.find(({ name }) => name === "wrong_secret")).toMatchObject({
      expected: "not 2xx",
      got: "400",
    });
  });

  test("can tell the probes in its log, and gets no secret", async () => {
    const { requests, ...report } = await check(right());
    // One probe is two requests; one more is signed with the decoded secret, and one is a challenge.
    expect(requests).toHaveLength(PROBE_NAMES.length + 3);
    expect(new Set(requests.map(({ headers }) => headers["sealpost-probe"]))).toEqual(new Set(["1"]));
    expect(new Set(requests.map(({ headers }) => headers["content-type"]))).toEqual(
      new Set(["application/json"]),
    );
    const seen = requests.map(({ headers, body }) => `${JSON.stringify(headers)} ${body}`).join("\n");
    expect(`${seen} ${JSON.stringify(report)}`).not.toContain(SECRET);
    const bodies = requests.map(({ body }) => JSON.parse(body.toString()));
    expect(bodies.filter(({ data, type }) => data?.example !== true && type !== "webhook.challenge")).toEqual(
      [],
    );
  });
});

const isRight = (request: ReceivedRequest) => right()(request).status === 204;

const seenIds = new Set<string>();
const isFirstTime = ({ body }: ReceivedRequest) => {
  const { id } = JSON.parse(body.toString());
  const isNew = !seenIds.has(id);
  seenIds.add(id);
  return isNew;
};

/** Receivers that are wrong in one way each, and what they are told. */
const wrongOnes: readonly [
  what: string,
  handler: Handler,
  codes: readonly FaultCode[],
  wrong: readonly ProbeName[],
][] = [
  [
    "verifies nothing",
    accepting(() => true),
    ["verifies_nothing"],
    PROBE_NAMES.slice(PROBE_NAMES.indexOf("wrong_secret")),
  ],
  [
    "ignores the time",
    accepting(({ headers, body }) => {
      const { t, v1 } = partsOf({ headers } as ReceivedRequest);
      return v1.includes(hmac(t, body));
    }),
    ["ignores_time"],
    ["too_old", "too_far_ahead"],
  ],
  [
    "looks for old ones only",
    accepting((request) => {
      const { t, v1 } = partsOf(request);
      return v1.includes(hmac(t, request.body)) && Date.now() / 1_000 - t < 300;
    }),
    ["accepts_ahead"],
    ["too_far_ahead"],
  ],
  [
    "looks for those ahead only",
    accepting((request) => {
      const { t, v1 } = partsOf(request);
      return v1.includes(hmac(t, request.body)) && t - Date.now() / 1_000 < 300;
    }),
    ["accepts_old"],
    ["too_old"],
  ],
  [
    "compares the parsed body, serialised again",
    accepting((request) => {
      const { t, v1 } = partsOf(request);
      return isFresh(t) && v1.includes(hmac(t, JSON.stringify(JSON.parse(request.body.toString()))));
    }),
    ["compares_parsed_body"],
    ["odd_spacing", "odd_number"],
  ],
  [
    "has a parser that knows no large numbers",
    accepting((request) => isRight(request) && !request.body.includes("1E400")),
    ["refuses_odd_number"],
    ["odd_number"],
  ],
  [
    "accepts any v1",
    accepting((request) => {
      const { t, v1 } = partsOf(request);
      return isFresh(t) && v1.some((text) => /^[0-9a-f]{64}$/.test(text));
    }),
    ["accepts_any_signature"],
    ["wrong_secret", "changed_body"],
  ],
  [
    "verifies only what has the header",
    accepting((request) => request.headers["extract-signature"] === undefined || isRight(request)),
    ["accepts_unsigned"],
    ["header_missing"],
  ],
  [
    "lets through what it cannot read",
    accepting(
      (request) => isRight(request) || /^not|v1=$/.test(String(request.headers["extract-signature"])),
    ),
    ["accepts_malformed_header"],
    ["header_malformed", "signature_empty"],
  ],
  [
    "walks through no signature at all",
    accepting((request) => {
      const { t, v1 } = partsOf(request);
      return isRight(request) || (isFresh(t) && v1.every((text) => text === hmac(t, request.body)));
    }),
    ["accepts_malformed_header"],
    ["signature_missing"],
  ],
  [
    "knows the first v1 only",
    accepting((request) => {
      const { t, v1 } = partsOf(request);
      return isFresh(t) && v1[0] === hmac(t, request.body);
    }),
    ["reads_one_signature"],
    ["two_signatures_right_last"],
  ],
  [
    "knows the last v1 only",
    accepting((request) => {
      const { t, v1 } = partsOf(request);
      return isFresh(t) && v1.at(-1) === hmac(t, request.body);
    }),
    ["reads_one_signature"],
    ["two_signatures_right_first"],
  ],
  [
    "knows one v1 only",
    accepting((request) => isRight(request) && partsOf(request).v1.length === 1),
    ["refuses_two_signatures"],
    ["two_signatures_right_first", "two_signatures_right_last"],
  ],
  [
    "answers 409 to what it knows already",
    accepting((request) => isRight(request) && isFirstTime(request)),
    ["refuses_repeats"],
    ["same_delivery_again"],
  ],
  [
    "has a clock that is ten minutes behind",
    right({ clockMs: -600_000 }),
    ["clock_wrong"],
    [
      "genuine",
      "odd_spacing",
      "odd_number",
      "two_signatures_right_first",
      "two_signatures_right_last",
      "too_old",
    ],
  ],
];

describe("a wrong receiver", () => {
  test.each(wrongOnes)("that %s is told so, and nothing else", async (_what, handler, codes, wrong) => {
    const report = await check(handler);
    expect(codesOf(report)).toEqual(codes);
    expect(wrongOf(report)).toEqual(wrong);
  });

  const genuine = PROBE_NAMES.slice(0, PROBE_NAMES.indexOf("wrong_secret"));

  test("that accepts a forgery is told so first", async () => {
    const handler = accepting((request) => {
      const { t, v1 } = partsOf(request);
      return v1.includes(hmac(t, JSON.stringify(JSON.parse(request.body.toString()))));
    });
    const report = await check(handler);
    expect(codesOf(report)).toEqual(["ignores_time", "compares_parsed_body"]);
    expect(report.verdict).toBe("dangerous");
  });

  test("that redirects is told so, with where to, and nobody follows", async () => {
    const report = await check(() => ({ status: 308, headers: { location: "https://elsewhere.test/hook" } }));
    expect(codesOf(report)).toEqual(["redirects"]);
    expect(report.faults[0]?.message).toContain("(308) to https://elsewhere.test/hook");
    expect(report.faults[0]?.probes).toEqual(genuine);
    expect(report.verdict).toBe("faulty");
  });

  test("that answers 500 to everything is told so, and its refusing forgeries counts for nothing", async () => {
    const report = await check(() => ({ status: 500 }));
    expect(codesOf(report)).toEqual(["refuses_everything"]);
    expect(report.faults[0]?.message).toContain("500");
    expect(report.probes.filter(({ verdict }) => verdict === "right")).toEqual([]);
  });

  test("that has another secret is told what to check", async () => {
    const report = await check(right({ secrets: [OLD_SECRET] }));
    expect(codesOf(report)).toEqual(["refuses_genuine"]);
    expect(report.faults[0]?.remedy).toContain("signing secret");
  });

  test("that answers after 10 s is told that it is slow, within 20 s", async () => {
    const report = await check((request) => ({ ...right()(request), delayMs: 10_000 }));
    expect(codesOf(report)).toEqual(["slow"]);
    expect(report.duration_ms).toBeLessThan(10_000 + patience(10_000));
    expect(report.connection.slowest_answer_ms).toBeGreaterThanOrEqual(10_000);
    const again = report.probes.find(({ name }) => name === "same_delivery_again");
    expect(again).toMatchObject({ got: "204", verdict: "not_judged" });
    expect(wrongOf(report)).toEqual([]);
  });

  test("that does not answer in time is told so", async () => {
    const silent: Handler = (request) => ({ ...right()(request), delayMs: 60_000 });
    const { faults } = await check(silent, { deadlineMs: patience(1_000) });
    expect(faults.map(({ message }) => message)).toEqual([expect.stringContaining("in time")]);
  });

  test("that is too busy for some is not accused of anything else", async () => {
    const handler: Handler = (request) =>
      request.body.includes("1E400") ? { status: 429 } : right()(request);
    const report = await check(handler);
    expect(codesOf(report)).toEqual(["no_answer"]);
    expect(report.faults[0]).toMatchObject({ probes: ["odd_number"] });
  });

  test("that hangs up on forgeries refuses them", async () => {
    const handler: Handler = (request) => (isRight(request) ? { status: 200 } : { hangUp: true });
    const report = await check(handler);
    expect(report.faults).toEqual([]);
    expect(report.probes.find(({ name }) => name === "wrong_secret")).toMatchObject({
      got: "no response (connection_closed)",
      verdict: "not_judged",
    });
  });

  test("whose certificate ends soon is warned", async () => {
    const notAfter = new Date(Date.now() + 3.5 * 86_400_000);
    const authority = await createCertificateAuthority();
    const certificate = await authority.issue({ names: ["localhost"], notAfter });
    const report = await check(right(), { receiver: { authority, certificate } });
    expect(codesOf(report)).toEqual(["certificate_ends_soon"]);
    expect(report.faults[0]?.message).toContain("in 3 days");
    expect(report.verdict).toBe("right");
  });

  test("whose certificate is not trusted is told that, and gets nothing", async () => {
    const certificate = await (await createCertificateAuthority()).issue({ names: ["localhost"] });
    const report = await check(right(), { receiver: { certificate } });
    expect(codesOf(report)).toEqual(["unreachable"]);
    expect(report.connection).toMatchObject({ tls_version: null, certificate_days_left: null });
    expect(report.requests).toEqual([]);
  });

  test("that is not public gets nothing, not even a connection", async () => {
    const receiver = await startReceiver({ handler: right() });
    const stranger = await startReceiver({ handler: right() });
    open.push(receiver, stranger);
    const url = new URL(`https://127.0.0.1:${stranger.port}/`);
    const report = await createTestCheck(receiver)({ url, secrets: [SECRET], nowMs: Date.now() });
    expect(codesOf(report)).toEqual(["unreachable"]);
    expect(report.faults[0]?.message).toContain("not public");
    expect(stranger.connectionsCount).toBe(0);
  });
});

test("a second check sees the certificate, too", async () => {
  const receiver = await startReceiver({ handler: right() });
  open.push(receiver);
  const checkReceiver = createTestCheck(receiver);
  const checked = { url: receiver.url(), secrets: [SECRET], nowMs: Date.now() };
  await checkReceiver(checked);
  expect((await checkReceiver(checked)).connection).toMatchObject({
    certificate_days_left: 364,
    tls_version: "TLSv1.3",
  });
});
