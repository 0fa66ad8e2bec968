import { describe, expect, test } from "vitest";
import type { LeasedDelivery } from "../../src/delivery/claim-sql.ts";
import type { Delivered } from "../../src/delivery/deliver.ts";
import type { EndpointNews, SeenCertificate } from "../../src/delivery/endpoint-health-sql.ts";
import { type EndpointWatch, startEndpointWatch } from "../../src/delivery/endpoint-watch.ts";
import type { Recorded } from "../../src/delivery/recorder.ts";

const URL = "https://hooks.example.com/in";

function watching(fails: () => boolean = () => false) {
  const news: EndpointNews[] = [];
  const certificates: SeenCertificate[] = [];
  const errors: unknown[] = [];
  const watch = startEndpointWatch({
    everyMs: 60_000,
    noteNews: async (given) => {
      if (fails()) throw new Error("the database is away");
      news.push(...given);
    },
    noteCertificates: async (given) => void certificates.push(...given),
    onError: (error) => errors.push(error),
  });
  return { watch, news, certificates, errors };
}

type Attempt = {
  readonly account?: string;
  readonly at?: number;
  readonly succeeded?: boolean;
  readonly next?: Delivered["recording"]["next"];
  readonly own?: boolean;
  readonly without?: boolean;
  readonly certificate?: number;
  readonly recorded?: Recorded;
};

/** As a dispatcher tells of it; what the watch does not look at is left out. */
function tell(watch: EndpointWatch, attempt: Attempt): void {
  const { account = "a", at = 1, succeeded = false, certificate = null } = attempt;
  const delivery = { accountId: account, webhookUrl: attempt.own ? URL : null } as LeasedDelivery;
  const ended = {
    outcome: succeeded ? "succeeded" : "rejected",
    errorCode: succeeded ? null : "status_503",
    endedAtMs: at,
    targetUrl: URL,
  };
  const next = attempt.next ?? (succeeded ? { status: "succeeded" } : { status: "failed", dueAtMs: at });
  const delivered = {
    recording: { attempt: attempt.without ? null : ended, next },
    result: attempt.without ? null : { certificateEndsAtMs: certificate },
  } as Delivered;
  watch.observer.attemptRecorded(delivery, delivered, attempt.recorded ?? "ours");
}

async function newsOf(...attempts: readonly Attempt[]): Promise<readonly EndpointNews[]> {
  const { watch, news } = watching();
  for (const attempt of attempts) tell(watch, attempt);
  await watch.stop();
  return news;
}

const abandoned = (reason: "attempts_exhausted" | "no_target" | "target_refused") =>
  ({ status: "abandoned", reason, errorCode: null }) as const;
const failures = { url: URL, errorCode: "status_503", succeededAtMs: null, abandoned: 0 } as const;

describe("what one endpoint went through is one row", () => {
  test.each<[string, readonly Attempt[], Partial<EndpointNews>]>([
    ["failures", [{ at: 5 }, { at: 6 }], { ...failures, failingSinceMs: 5, failedAttempts: 2 }],
    [
      "a success",
      [{ at: 5, succeeded: true }],
      { url: null, succeededAtMs: 5, failingSinceMs: null, failedAttempts: 0 },
    ],
    [
      "a success after failures: they are over",
      [{ at: 5 }, { at: 6, succeeded: true }],
      { succeededAtMs: 6, failingSinceMs: null, failedAttempts: 0 },
    ],
    [
      "failures after a success",
      [{ at: 4 }, { at: 5, succeeded: true }, { at: 6 }, { at: 7 }],
      { succeededAtMs: 5, failingSinceMs: 6, failedAttempts: 2 },
    ],
    [
      "a last failure",
      [{ at: 5, next: abandoned("attempts_exhausted") }],
      { failingSinceMs: 5, failedAttempts: 1, abandoned: 1 },
    ],
    [
      "an end without an attempt",
      [{ without: true, next: abandoned("target_refused") }],
      { url: null, failingSinceMs: null, failedAttempts: 0, abandoned: 1 },
    ],
    [
      "an abandoned one before a success: it stays lost",
      [
        { at: 5, next: abandoned("attempts_exhausted") },
        { at: 6, succeeded: true },
      ],
      { succeededAtMs: 6, failedAttempts: 0, abandoned: 1 },
    ],
  ])("%s", async (_, attempts, expected) => {
    expect(await newsOf(...attempts)).toMatchObject([{ accountId: "a", ...expected }]);
  });

  test("and each account's is its own", async () => {
    const news = await newsOf({ account: "a" }, { account: "b" }, { account: "a" });
    expect(news).toMatchObject([
      { accountId: "a", failedAttempts: 2 },
      { accountId: "b", failedAttempts: 1 },
    ]);
  });
});

test.each<[string, Attempt]>([
  ["a delivery with its own URL", { own: true }],
  ["a lease that was given back", { without: true, next: { status: "released", dueAtMs: 1 } }],
  ["an endpoint that was removed", { without: true, next: abandoned("no_target") }],
  ["a result that came too late", { recorded: "taken_over" }],
])("%s says nothing of the endpoint", async (_, attempt) => {
  expect(await newsOf(attempt)).toEqual([]);
});

test("a certificate is written when it is another one than before, and that of the last connection", async () => {
  const { watch, certificates } = watching();
  for (const certificate of [10, 10, 20, 20]) tell(watch, { succeeded: true, certificate });
  await watch.stop();
  tell(watch, { succeeded: true, certificate: 20 });
  await watch.stop();
  expect(certificates).toEqual([{ accountId: "a", host: "hooks.example.com", expiresAtMs: 20 }]);
});

test.each<[string, readonly Attempt[], Partial<EndpointNews>]>([
  [
    "more failures",
    [{ at: 9 }],
    { failingSinceMs: 5, failedAttempts: 3, abandoned: 1, errorCode: "status_503" },
  ],
  [
    "a success",
    [{ at: 9, succeeded: true }],
    { succeededAtMs: 9, failingSinceMs: null, failedAttempts: 0, abandoned: 1 },
  ],
  ["nothing", [], { failingSinceMs: 5, failedAttempts: 2, abandoned: 1 }],
])("what could not be written is written with what came after it: %s", async (_, later, expected) => {
  let isAway = true;
  const { watch, news, errors } = watching(() => isAway);
  tell(watch, { at: 5 });
  tell(watch, { at: 6, next: abandoned("attempts_exhausted") });
  await watch.stop();
  expect(errors).toHaveLength(1);
  isAway = false;
  for (const attempt of later) tell(watch, attempt);
  await watch.stop();
  expect(news).toMatchObject([expected]);
});
