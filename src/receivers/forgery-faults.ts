import type { Fault } from "./fault.ts";
import type { Findings } from "./probe-results.ts";
import type { ProbeName } from "./probes.ts";

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
export function clockIsOffBy({ accepted, refused }: Findings): "behind" | "ahead" | null {
  if (!refused("genuine") || accepted("wrong_secret")) return null;
  if (accepted("too_old") && !accepted("too_far_ahead")) return "behind";
  if (accepted("too_far_ahead") && !accepted("too_old")) return "ahead";
  return null;
}
