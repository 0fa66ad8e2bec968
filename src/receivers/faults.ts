import { z } from "zod";
import { answeredBy } from "../base/model/answered-by.ts";
import {
  answerOf,
  explainProbe,
  type Findings,
  isMissing,
  isRedirect,
  isSuccess,
  PROBE_NAMES,
  type ProbeAnswer,
  type Probed,
  type ProbeName,
} from "./probes.ts";

const VERIFY =
  "Verify the signature over the raw bytes before anything else, with the library or a recipe from its " +
  "documentation, and respond with 400 if it is invalid.";
const CHECK_TIME = "Reject a timestamp that is 300 seconds or more from now, in either direction.";
/** A third of an attempt's 15 s: such a receiver does its work before it responds. */
const SLOW_MS = 5_000;

/**
 * Every fault of a receiver that its owner should fix: what it does wrong, and what to do about it. Codes are stable.
 * Null: its error code explains it. `danger`: strangers can make it act. `fault`: webhooks get lost or come again.
 * `warning`: everything still arrives. {} stands for what this receiver showed.
 */
const FAULTS = {
  danger: {
    verifies_nothing: ["It does not verify signatures: anyone who knows its URL can forge events.", VERIFY],
    accepts_unsigned: [
      "It accepts webhooks without a signature: leaving out the header bypasses verification.",
      "Reject a request without the extract-signature header, like one with an invalid signature.",
    ],
    accepts_any_signature: [
      "It accepts any signature: it checks that there is one, not that it is valid.",
      `Compute the HMAC and compare it with v1 in constant time. ${VERIFY}`,
    ],
    ignores_body: [
      "It accepts a body that was modified after signing: its signature check does not cover the body.",
      "Compute the HMAC over the timestamp, a full stop, and the raw bytes of the body.",
    ],
    accepts_malformed_header: [
      "It accepts a signature header without a signature.",
      "Reject a header without a timestamp and at least one v1 of 64 hexadecimal digits.",
    ],
    ignores_time: ["It ignores the timestamp: a captured webhook can be sent again at any time.", CHECK_TIME],
    accepts_old: ["It accepts old webhooks: a captured one can be sent again at any time.", CHECK_TIME],
    accepts_ahead: [
      "It accepts timestamps far in the future: a captured webhook stays valid for longer.",
      CHECK_TIME,
    ],
  },
  fault: {
    unreachable: null,
    redirects: [
      "It responds with a redirect {}. Redirects are not followed, so no webhook arrives.",
      "Set the final URL as the endpoint.",
    ],
    clock_wrong: [
      "Its clock is about ten minutes {}: it rejects current timestamps.",
      "Correct the receiver's clock and keep it synchronized (NTP).",
    ],
    decodes_secret: [
      "It decodes the signing secret from base64 before it verifies, so it rejects every webhook.",
      "Use the secret's whole text as the HMAC key, as it is: whsec_ included, not decoded.",
    ],
    refuses_everything: null,
    refuses_genuine: [
      "It rejects a correctly signed webhook ({}).",
      "Check that it verifies the raw bytes of the body with this account's signing secret (the whole text, " +
        "whsec_ included, not decoded), and that no login or firewall is in front of it.",
    ],
    no_answer: null,
    compares_parsed_body: [
      "It rejects a correctly signed webhook with unusual whitespace in its JSON: it verifies a parsed and " +
        "re-serialized body instead of the bytes that arrived.",
      "Verify the raw bytes of the body, before any parser touches them.",
    ],
    refuses_odd_number: [
      "It rejects a correctly signed webhook with the number 1E400, which is valid JSON: its parser fails, or it " +
        "verifies a re-serialized body.",
      "Verify the raw bytes, store them, respond with 2xx, and parse them afterwards.",
    ],
    reads_one_signature: [
      "It checks only the {} v1: during a secret's rotation, webhooks get lost.",
      "Accept a webhook if any of its v1 signatures is valid. Until then, rotate with previous_signature: omit.",
    ],
    refuses_two_signatures: [
      "It rejects webhooks with two signatures, as they are sent during a secret's rotation.",
      "Accept a webhook if any of its v1 signatures is valid. Until then, rotate with previous_signature: omit.",
    ],
    refuses_repeats: [
      "It rejects a webhook that it has accepted before, so a retry after a lost response never succeeds.",
      "Respond with 2xx to a delivery id that was already processed, and do nothing else.",
    ],
    ignores_challenge: [
      "It does not answer a challenge ({}), and without that it gets no webhooks.",
      "Respond with 200 and the challenge's text, as the guide for receivers shows; the library reads it.",
    ],
    unproven: [
      "It has not shown that it wants webhooks from this account, now or in the last 30 days: nothing else was sent.",
      "Fix what is said above, then check again. Deliveries, one at a time, go on all the same.",
    ],
    slow: [
      `It takes ${SLOW_MS / 1_000} seconds or more to respond; no response in time counts as a failure.`,
      "Verify, store the event, respond with 2xx at once, and do the work afterwards.",
    ],
  },
  warning: {
    certificate_ends_soon: [
      "Its certificate expires in {}; after that no webhook arrives.",
      "Renew it, and automate its renewal.",
    ],
  },
} as const satisfies Record<string, Record<string, readonly [message: string, remedy: string] | null>>;

type Severity = keyof typeof FAULTS;
/** The most severe first. */
const SEVERITIES = Object.keys(FAULTS) as readonly Severity[];

export type FaultCode = { [Level in Severity]: keyof (typeof FAULTS)[Level] }[Severity];
const FAULT_CODES = Object.values(FAULTS).flatMap((some) => Object.keys(some)) as readonly FaultCode[];

export const Fault = z
  .object({
    code: z.enum(FAULT_CODES),
    severity: z
      .enum(SEVERITIES)
      .describe(
        "`danger`: it accepts forgeries; `fault`: webhooks get lost; `warning`: everything still arrives.",
      ),
    message: z.string().describe("What the receiver does wrong."),
    remedy: z.string().describe("How to fix it."),
    probes: z
      .array(z.enum(PROBE_NAMES))
      .describe("Those that showed it; empty if it was found in another way."),
  })
  .meta({ id: "ReceiverFault", description: "A fault of a receiver that its owner should fix." });

export type Fault = z.output<typeof Fault>;

/** @param shown in place of {}; or the answer whose error code tells the fault */
function fault(code: FaultCode, probes: ProbeName[], shown: string | ProbeAnswer = ""): Fault {
  const severity = SEVERITIES.find((one) => code in FAULTS[one])!;
  if (typeof shown !== "string") {
    const { message, remedy } = explainProbe(shown);
    return { code, severity, message, remedy, probes };
  }
  const texts: Readonly<Record<string, readonly [string, string] | null>> = FAULTS[severity];
  const [message, remedy] = texts[code]!;
  return { code, severity, message: message.replace("{}", () => shown), remedy, probes };
}

/** No fault without a probe that shows it. */
function shownBy(code: FaultCode, probes: ProbeName[], shown?: string | ProbeAnswer): readonly Fault[] {
  return probes.length === 0 ? [] : [fault(code, probes, shown)];
}

const CERTIFICATE_DAYS_MIN = 14;

/**
 * What is wrong with a receiver, the most severe first. Empty for a correct one.
 *
 * @param decodesSecret it accepts what is signed with the decoded secret
 * @param certificateDaysLeft null: none was seen
 * @param consent `unconfirmed`: the answer to a challenge that it has to answer otherwise
 */
export function faultsOf(
  findings: Findings,
  decodesSecret: boolean,
  certificateDaysLeft: number | null,
  consent: Consent,
): Fault[] {
  const endsSoon = certificateDaysLeft !== null && certificateDaysLeft < CERTIFICATE_DAYS_MIN;
  const days = certificateDaysLeft === 1 ? "1 day" : `${certificateDaysLeft} days`;
  return [
    ...forgeryFaults(findings),
    ...deliveryFaults(findings, decodesSecret),
    ...consentFaults(findings, consent),
    ...shownBy("slow", namesOf(findings, isSlow)),
    ...(endsSoon ? [fault("certificate_ends_soon", [], days)] : []),
  ];
}

export type Consent = { readonly isUnproven: boolean; readonly unconfirmed: ProbeAnswer | null };

/** What keeps it from getting webhooks at all. */
function consentFaults({ refused }: Findings, { isUnproven, unconfirmed }: Consent): readonly Fault[] {
  const unproven = isUnproven ? [fault("unproven", [])] : [];
  // Where genuine webhooks are refused, that is the reason.
  if (unconfirmed === null || refused("genuine")) return unproven;
  if (!isMissing(unconfirmed)) {
    const shown = isOthers(unconfirmed) ? unconfirmed : `${unconfirmed.statusCode}`;
    return [fault("ignores_challenge", [], shown), ...unproven];
  }
  // Where they are sent, they show the same.
  return isUnproven ? [fault("no_answer", [], unconfirmed), ...unproven] : [];
}

/** It says nothing of the receiver. */
function isOthers(answer: ProbeAnswer): boolean {
  return answeredBy(answerOf(answer)) !== null;
}

/** The probes whose header is not a signature. */
const MALFORMED = ["header_malformed", "signature_missing", "signature_empty"] as const;

/** What a receiver wrongly accepts. */
function forgeryFaults(findings: Findings): readonly Fault[] {
  const { accepted } = findings;
  const accepts = (...names: readonly ProbeName[]) => names.filter(accepted);
  if (accepted("header_missing") && accepted("wrong_secret")) {
    const forgeries = namesOf(findings, ({ probe }) => !probe.isGenuine);
    return [fault("verifies_nothing", accepts(...forgeries))];
  }
  // A wrong clock accepts one of the two and nothing genuine.
  const outOfTime = clockIsOffBy(findings) === null ? accepts("too_old", "too_far_ahead") : [];
  const ofTime = outOfTime[0] === "too_old" ? "accepts_old" : "accepts_ahead";
  return [
    ...shownBy("accepts_unsigned", accepts("header_missing")),
    // Which accepts a changed body and a malformed header, too.
    ...(accepted("wrong_secret")
      ? [fault("accepts_any_signature", accepts("wrong_secret", "changed_body", ...MALFORMED))]
      : [
          ...shownBy("ignores_body", accepts("changed_body")),
          ...shownBy("accepts_malformed_header", accepts(...MALFORMED)),
        ]),
    ...shownBy(outOfTime.length === 2 ? "ignores_time" : ofTime, outOfTime),
  ];
}

/**
 * A receiver that rejects current timestamps but accepts those ten minutes off to one side has a clock that is wrong
 * by about that much. Null: its clock is not the reason.
 */
function clockIsOffBy({ accepted, refused }: Findings): "behind" | "ahead" | null {
  if (!refused("genuine") || accepted("wrong_secret") || accepted("too_old") === accepted("too_far_ahead")) {
    return null;
  }
  return accepted("too_old") ? "behind" : "ahead";
}

/** What keeps genuine webhooks from being accepted. */
function deliveryFaults(findings: Findings, decodesSecret: boolean): readonly Fault[] {
  // Faults that hit every webhook come first: they mask the more specific ones.
  if (findings.refused("genuine")) {
    const whole = decodesSecret ? fault("decodes_secret", ["genuine"]) : wholeFault(findings);
    return [whole, ...missingFaults(findings)];
  }
  return [
    ...missingFaults(findings),
    ...bodyFaults(findings),
    ...signaturesFaults(findings),
    ...repeatFaults(findings),
  ];
}

/** For a receiver that responds to a genuine webhook, but not with a 2xx. */
function wholeFault(findings: Findings): Fault {
  const { decisive, acceptsSomething, all } = findings;
  const answer = decisive("genuine")!;
  if (isRedirect(answer)) {
    const redirected = genuineProbes(findings).filter((name) => isRedirect(decisive(name)!));
    const location = answer.responseHeaders?.location;
    const to = location === undefined ? "" : ` to ${location}`;
    return fault("redirects", redirected, isOthers(answer) ? answer : `(${answer.statusCode})${to}`);
  }
  const off = clockIsOffBy(findings);
  if (off !== null) {
    return fault("clock_wrong", ["genuine", off === "behind" ? "too_old" : "too_far_ahead"], off);
  }
  if (isOthers(answer)) return fault("refuses_genuine", ["genuine"], answer);
  // As a signature check rejects.
  if ([400, 401, 403, 422].some((status) => status === answer.statusCode)) {
    return fault("refuses_genuine", ["genuine"], String(answer.statusCode));
  }
  const isAlways = all.every(({ answers }) =>
    answers.every(({ statusCode }) => statusCode === answer.statusCode),
  );
  if (acceptsSomething || !isAlways) return fault("refuses_genuine", ["genuine"], answer);
  return fault("refuses_everything", genuineProbes(findings), answer);
}

/** Genuine webhooks without a response from the receiver itself. */
function missingFaults(findings: Findings): readonly Fault[] {
  const { all, decisive } = findings;
  const missing = genuineProbes(findings).filter((name) => {
    const answer = decisive(name);
    return answer !== null && isMissing(answer);
  });
  if (missing.length === 0) return [];
  const isNever = all.every(({ answers }) => answers.every(({ statusCode }) => statusCode === null));
  return [fault(isNever ? "unreachable" : "no_answer", missing, decisive(missing[0]!)!)];
}

function bodyFaults({ refused }: Findings): readonly Fault[] {
  const odd = (["odd_spacing", "odd_number"] as const).filter(refused);
  return shownBy(odd[0] === "odd_spacing" ? "compares_parsed_body" : "refuses_odd_number", odd);
}

function signaturesFaults({ refused }: Findings): readonly Fault[] {
  const both = (["two_signatures_right_first", "two_signatures_right_last"] as const).filter(refused);
  if (both.length === 2) return [fault("refuses_two_signatures", both)];
  return shownBy("reads_one_signature", both, both[0] === "two_signatures_right_first" ? "last" : "first");
}

function repeatFaults({ all, refused }: Findings): readonly Fault[] {
  if (!refused("same_delivery_again")) return [];
  const [first] = all.find(({ probe }) => probe.name === "same_delivery_again")?.answers ?? [];
  // If the first was rejected too, the repetition was not the reason.
  return first !== undefined && isSuccess(first) ? [fault("refuses_repeats", ["same_delivery_again"])] : [];
}

function isSlow({ answers }: Probed): boolean {
  return answers.some(({ statusCode, durationMs }) => statusCode !== null && durationMs >= SLOW_MS);
}

function genuineProbes(findings: Findings): ProbeName[] {
  return namesOf(findings, ({ probe, answers }) => probe.isGenuine && answers.length > 0);
}

function namesOf({ all }: Findings, which: (probed: Probed) => boolean): ProbeName[] {
  return all.filter(which).map(({ probe }) => probe.name);
}
