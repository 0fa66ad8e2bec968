import { explainErrorCode } from "../model/error-codes.ts";
import type { Fault } from "./fault.ts";
import { clockIsOffBy } from "./forgery-faults.ts";
import { decisiveAnswer, type Findings, isMissing, isRedirect, isSuccess } from "./probe-results.ts";
import type { ProbeAnswer } from "./probe-sender.ts";
import type { ProbeName } from "./probes.ts";

/** What keeps genuine webhooks from being accepted. Empty for a right receiver. */
export function deliveryFaults(findings: Findings): readonly Fault[] {
  const { refused } = findings;
  // What hits every webhook comes first: what is more special cannot be told apart from it.
  const faults = refused("genuine")
    ? [wholeFault(findings), ...missingFaults(findings)]
    : [...missingFaults(findings), bodyFault(findings), signaturesFault(findings), repeatFault(findings)];
  return faults.filter((fault) => fault !== null);
}

/** For a receiver that answers what is genuine, and not with a 2xx. */
function wholeFault(findings: Findings): Fault {
  const { decisive, acceptsSomething, all } = findings;
  const answer = decisive("genuine")!;
  if (isRedirect(answer)) return redirectFault(findings, answer);
  const off = clockIsOffBy(findings);
  if (off !== null) {
    return {
      code: "clock_wrong",
      severity: "fault",
      message: `Its clock is about ten minutes ${off}: it refuses what was signed now.`,
      remedy: "Set the receiver's clock, and keep it right (NTP).",
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

/** Genuine webhooks without an answer of the receiver's own. */
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
    message: `It answers with a redirect (${statusCode})${to}. Webhooks are never redirected: none arrives.`,
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
    message: `It refuses a rightly signed webhook (${answer.statusCode}).`,
    remedy:
      "Check that it verifies with this account's signing secret, all of its text from whsec_ on and nothing " +
      "decoded, over the raw bytes of the body, and that no login or firewall stands before it.",
    probes: ["genuine"],
  };
}

/** With which a signature check says no. */
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
        "It refuses a rightly signed webhook whose JSON is spaced in an unusual way: it parses the body, writes it " +
        "again, and verifies that in place of the bytes that arrived.",
      remedy: "Take the raw bytes of the body before any parser does, and verify those.",
      probes: odd.filter(refused),
    };
  }
  if (!refused("odd_number")) return null;
  return {
    code: "refuses_odd_number",
    severity: "fault",
    message:
      "It refuses a rightly signed webhook with the number 1E400, which is right JSON: its parser gives up, or it " +
      "verifies what it has parsed and written again.",
    remedy: "Verify the raw bytes, store them, answer 2xx, and parse them afterwards.",
    probes: ["odd_number"],
  };
}

function signaturesFault(findings: Findings): Fault | null {
  const both = ["two_signatures_right_first", "two_signatures_right_last"] as const;
  const refused = both.filter(findings.refused);
  const [first] = refused;
  if (first === undefined) return null;
  const remedy = "Accept a webhook when any of its v1 is right: during a rotation there are two.";
  if (refused.length === 2) {
    const message = "It refuses webhooks with two signatures, as they are sent while a secret is rotated.";
    return { code: "refuses_two_signatures", severity: "fault", message, remedy, probes: refused };
  }
  const read = first === "two_signatures_right_first" ? "last" : "first";
  const message = `It looks at the ${read} v1 only: while a secret is rotated, webhooks get lost.`;
  return { code: "reads_one_signature", severity: "fault", message, remedy, probes: refused };
}

function repeatFault({ all, refused }: Findings): Fault | null {
  if (!refused("same_delivery_again")) return null;
  const repeated = all.find(({ probe }) => probe.name === "same_delivery_again");
  const [first] = repeated?.answers ?? [];
  // Refused at once, it was not for coming again.
  if (first === undefined || !isSuccess(first)) return null;
  return {
    code: "refuses_repeats",
    severity: "fault",
    message:
      "It refuses a webhook that it has accepted before, so that one whose answer got lost keeps coming.",
    remedy: "Answer 2xx to a delivery id that is known already, and do nothing more.",
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
