import { explainErrorCode } from "../base/model/error-codes.ts";
import {
  decisiveAnswer,
  type Findings,
  isMissing,
  isRedirect,
  isSuccess,
  type ProbeAnswer,
  type ProbeName,
} from "./probes.ts";

/**
 * `danger`: strangers can make it act. `fault`: webhooks get lost or come again. `warning`: everything still
 * arrives. In order of severity.
 */
export const SEVERITIES = ["danger", "fault", "warning"] as const;
export type Severity = (typeof SEVERITIES)[number];

/** A fault of a receiver that its owner should fix. */
export type Fault = {
  /** Stable. */
  readonly code: FaultCode;
  readonly severity: Severity;
  /** What the receiver does wrong. */
  readonly message: string;
  /** What to do about it. */
  readonly remedy: string;
  /** The probes that showed it; empty if it was seen otherwise. */
  readonly probes: readonly ProbeName[];
};

export const FAULT_CODES = [
  "verifies_nothing",
  "accepts_unsigned",
  "accepts_any_signature",
  "ignores_body",
  "accepts_malformed_header",
  "ignores_time",
  "accepts_old",
  "accepts_ahead",
  "unreachable",
  "redirects",
  "clock_wrong",
  "decodes_secret",
  "refuses_everything",
  "refuses_genuine",
  "no_answer",
  "compares_parsed_body",
  "refuses_odd_number",
  "reads_one_signature",
  "refuses_two_signatures",
  "refuses_repeats",
  "slow",
  "certificate_ends_soon",
] as const;

export type FaultCode = (typeof FAULT_CODES)[number];

/** The probes whose header is not a signature. */
const MALFORMED = ["header_malformed", "signature_missing", "signature_empty"] as const satisfies ProbeName[];

const VERIFY =
  "Verify the signature over the raw bytes before anything else, with the library or a recipe from its " +
  "documentation, and respond with 400 if it is invalid.";

/** What a receiver wrongly accepts. Empty for a correct one. */
export function forgeryFaults(findings: Findings): readonly Fault[] {
  return [...signatureFaults(findings), ...timeFaults(findings)];
}

function signatureFaults({ accepted }: Findings): readonly Fault[] {
  const accepts = (...names: readonly ProbeName[]) => names.filter(accepted);
  if (accepted("header_missing") && accepted("wrong_secret")) {
    return [
      {
        code: "verifies_nothing",
        severity: "danger",
        message: "It does not verify signatures: anyone who knows its URL can forge events.",
        remedy: VERIFY,
        probes: accepts(
          "wrong_secret",
          "changed_body",
          "too_old",
          "too_far_ahead",
          "header_missing",
          ...MALFORMED,
        ),
      },
    ];
  }
  const faults: Fault[] = [];
  if (accepted("header_missing")) {
    faults.push({
      code: "accepts_unsigned",
      severity: "danger",
      message: "It accepts webhooks without a signature: leaving out the header bypasses verification.",
      remedy: "Reject a request without the extract-signature header, like one with an invalid signature.",
      probes: ["header_missing"],
    });
  }
  if (accepted("wrong_secret")) {
    faults.push({
      code: "accepts_any_signature",
      severity: "danger",
      message: "It accepts any signature: it checks that there is one, not that it is valid.",
      remedy: `Compute the HMAC and compare it with v1 in constant time. ${VERIFY}`,
      probes: accepts("wrong_secret", "changed_body", ...MALFORMED),
    });
    return faults;
  }
  if (accepted("changed_body")) {
    faults.push({
      code: "ignores_body",
      severity: "danger",
      message:
        "It accepts a body that was modified after signing: its signature check does not cover the body.",
      remedy: "Compute the HMAC over the timestamp, a full stop, and the raw bytes of the body.",
      probes: ["changed_body"],
    });
  }
  const malformed = accepts(...MALFORMED);
  if (malformed.length > 0) {
    faults.push({
      code: "accepts_malformed_header",
      severity: "danger",
      message: "It accepts a signature header without a signature.",
      remedy: "Reject a header without a timestamp and at least one v1 of 64 hexadecimal digits.",
      probes: malformed,
    });
  }
  return faults;
}

function timeFaults(findings: Findings): readonly Fault[] {
  const { accepted } = findings;
  // Both follow from verifying nothing; and a wrong clock accepts one of the two and nothing genuine.
  if ((accepted("header_missing") && accepted("wrong_secret")) || clockIsOffBy(findings) !== null) return [];
  const [isOld, isAhead] = [accepted("too_old"), accepted("too_far_ahead")];
  const remedy = "Reject a timestamp that is 300 seconds or more from now, in either direction.";
  if (isOld && isAhead) {
    const message = "It ignores the timestamp: a captured webhook can be sent again at any time.";
    return [
      { code: "ignores_time", severity: "danger", message, remedy, probes: ["too_old", "too_far_ahead"] },
    ];
  }
  if (isOld) {
    const message = "It accepts old webhooks: a captured one can be sent again at any time.";
    return [{ code: "accepts_old", severity: "danger", message, remedy, probes: ["too_old"] }];
  }
  if (isAhead) {
    const message = "It accepts timestamps far in the future: a captured webhook stays valid for longer.";
    return [{ code: "accepts_ahead", severity: "danger", message, remedy, probes: ["too_far_ahead"] }];
  }
  return [];
}

/**
 * A receiver that rejects current timestamps but accepts those ten minutes off to one side has a clock that is wrong
 * by about that much. Null: its clock is not the reason.
 */
function clockIsOffBy({ accepted, refused }: Findings): "behind" | "ahead" | null {
  if (!refused("genuine") || accepted("wrong_secret")) return null;
  if (accepted("too_old") && !accepted("too_far_ahead")) return "behind";
  if (accepted("too_far_ahead") && !accepted("too_old")) return "ahead";
  return null;
}

/**
 * What keeps genuine webhooks from being accepted. Empty for a correct receiver.
 * @param decodesSecret it accepts what is signed with the decoded secret
 */
export function deliveryFaults(findings: Findings, decodesSecret: boolean): readonly Fault[] {
  const { refused } = findings;
  // Faults that hit every webhook come first: they mask the more specific ones.
  const faults = refused("genuine")
    ? [decodesSecret ? DECODES_SECRET : wholeFault(findings), ...missingFaults(findings)]
    : [...missingFaults(findings), bodyFault(findings), signaturesFault(findings), repeatFault(findings)];
  return faults.filter((fault) => fault !== null);
}

const DECODES_SECRET: Fault = {
  code: "decodes_secret",
  severity: "fault",
  message: "It decodes the signing secret from base64 before it verifies, so it rejects every webhook.",
  remedy: "Use the secret's whole text as the HMAC key, as it is: whsec_ included, not decoded.",
  probes: ["genuine"],
};

/** For a receiver that responds to a genuine webhook, but not with a 2xx. */
function wholeFault(findings: Findings): Fault {
  const { decisive, acceptsSomething, all } = findings;
  const answer = decisive("genuine")!;
  if (isRedirect(answer)) return redirectFault(findings, answer);
  const off = clockIsOffBy(findings);
  if (off !== null) {
    return {
      code: "clock_wrong",
      severity: "fault",
      message: `Its clock is about ten minutes ${off}: it rejects current timestamps.`,
      remedy: "Correct the receiver's clock and keep it synchronized (NTP).",
      probes: ["genuine", off === "behind" ? "too_old" : "too_far_ahead"],
    };
  }
  const isAlways = all.every(({ answers }) =>
    answers.every(({ statusCode }) => statusCode === answer.statusCode),
  );
  if (!acceptsSomething && isAlways && !isSignatureRefusal(answer)) {
    return fromErrorCode("refuses_everything", answer, genuineProbes(findings));
  }
  return refusalOf(answer);
}

/** Genuine webhooks without a response from the receiver itself. */
function missingFaults(findings: Findings): readonly Fault[] {
  const { all, decisive } = findings;
  const missing = genuineProbes(findings).filter((name) => {
    const answer = decisive(name);
    return answer !== null && isMissing(answer);
  });
  const [first] = missing;
  if (first === undefined) return [];
  const isNever = all.every(({ answers }) => answers.every(({ statusCode }) => statusCode === null));
  return [fromErrorCode(isNever ? "unreachable" : "no_answer", decisive(first)!, missing)];
}

function redirectFault(findings: Findings, { statusCode, responseHeaders }: ProbeAnswer): Fault {
  const location = responseHeaders?.location;
  const to = location === undefined ? "" : ` to ${location}`;
  return {
    code: "redirects",
    severity: "fault",
    message: `It responds with a redirect (${statusCode})${to}. Redirects are not followed, so no webhook arrives.`,
    remedy: "Set the final URL as the endpoint.",
    probes: findings.all
      .filter((probed) => probed.probe.isGenuine && isRedirect(decisiveAnswer(probed)!))
      .map(({ probe }) => probe.name),
  };
}

function refusalOf(answer: ProbeAnswer): Fault {
  if (!isSignatureRefusal(answer)) return fromErrorCode("refuses_genuine", answer, ["genuine"]);
  return {
    code: "refuses_genuine",
    severity: "fault",
    message: `It rejects a correctly signed webhook (${answer.statusCode}).`,
    remedy:
      "Check that it verifies the raw bytes of the body with this account's signing secret (the whole text, " +
      "whsec_ included, not decoded), and that no login or firewall is in front of it.",
    probes: ["genuine"],
  };
}

/** Statuses that a signature check rejects with. */
function isSignatureRefusal({ statusCode }: ProbeAnswer): boolean {
  return statusCode === 400 || statusCode === 401 || statusCode === 403 || statusCode === 422;
}

function bodyFault({ refused }: Findings): Fault | null {
  if (refused("odd_spacing")) {
    const odd: readonly ProbeName[] = ["odd_spacing", "odd_number"];
    return {
      code: "compares_parsed_body",
      severity: "fault",
      message:
        "It rejects a correctly signed webhook with unusual whitespace in its JSON: it verifies a parsed and " +
        "re-serialized body instead of the bytes that arrived.",
      remedy: "Verify the raw bytes of the body, before any parser touches them.",
      probes: odd.filter(refused),
    };
  }
  if (!refused("odd_number")) return null;
  return {
    code: "refuses_odd_number",
    severity: "fault",
    message:
      "It rejects a correctly signed webhook with the number 1E400, which is valid JSON: its parser fails, or it " +
      "verifies a re-serialized body.",
    remedy: "Verify the raw bytes, store them, respond with 2xx, and parse them afterwards.",
    probes: ["odd_number"],
  };
}

function signaturesFault(findings: Findings): Fault | null {
  const both = ["two_signatures_right_first", "two_signatures_right_last"] as const;
  const refused = both.filter(findings.refused);
  const [first] = refused;
  if (first === undefined) return null;
  const remedy = "Accept a webhook if any of its v1 signatures is valid: during a rotation there are two.";
  if (refused.length === 2) {
    const message = "It rejects webhooks with two signatures, as they are sent during a secret's rotation.";
    return { code: "refuses_two_signatures", severity: "fault", message, remedy, probes: refused };
  }
  const read = first === "two_signatures_right_first" ? "last" : "first";
  const message = `It checks only the ${read} v1: during a secret's rotation, webhooks get lost.`;
  return { code: "reads_one_signature", severity: "fault", message, remedy, probes: refused };
}

function repeatFault({ all, refused }: Findings): Fault | null {
  if (!refused("same_delivery_again")) return null;
  const repeated = all.find(({ probe }) => probe.name === "same_delivery_again");
  const [first] = repeated?.answers ?? [];
  // If the first was rejected too, the repetition was not the reason.
  if (first === undefined || !isSuccess(first)) return null;
  return {
    code: "refuses_repeats",
    severity: "fault",
    message:
      "It rejects a webhook that it has accepted before, so one whose response got lost is retried in vain.",
    remedy: "Respond with 2xx to a delivery id that was already processed, and do nothing else.",
    probes: ["same_delivery_again"],
  };
}

function genuineProbes({ all }: Findings): readonly ProbeName[] {
  return all.filter(({ probe }) => probe.isGenuine).map(({ probe }) => probe.name);
}

function fromErrorCode(code: Fault["code"], answer: ProbeAnswer, probes: readonly ProbeName[]): Fault {
  const { message, remedy } = explainErrorCode(answer.errorCode ?? "unexpected_failure");
  return { code, severity: "fault", message, remedy, probes };
}
