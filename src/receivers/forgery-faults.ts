import type { Fault } from "./fault.ts";
import type { Findings } from "./probe-results.ts";
import type { ProbeName } from "./probes.ts";

/** Every probe whose header is no signature at all. */
const MALFORMED = ["header_malformed", "signature_missing", "signature_empty"] as const satisfies ProbeName[];

const VERIFY =
  "Verify the signature over the raw bytes before anything else, with the library or a recipe of its documentation, " +
  "and answer 400 when it does not hold.";

/** What a receiver accepts although it must not. Empty for a right one. */
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
        message:
          "It does not verify signatures: it accepts from anybody who knows its URL what nobody published.",
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
      message: "It accepts webhooks without a signature: whoever leaves the header out gets in.",
      remedy: "Refuse a request without the extract-signature header like one with a wrong signature.",
      probes: ["header_missing"],
    });
  }
  if (accepted("wrong_secret")) {
    faults.push({
      code: "accepts_any_signature",
      severity: "danger",
      message: "It accepts any signature: it looks whether there is one, and not whether it is right.",
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
        "It accepts a body that was changed after it was signed: its signature check leaves the body out.",
      remedy: "Compute the HMAC over the timestamp, a full stop, and the raw bytes of the body.",
      probes: ["changed_body"],
    });
  }
  const malformed = accepts(...MALFORMED);
  if (malformed.length > 0) {
    faults.push({
      code: "accepts_malformed_header",
      severity: "danger",
      message: "It accepts a signature header that holds no signature.",
      remedy: "Refuse a header without a timestamp and at least one v1 of 64 hexadecimal digits.",
      probes: malformed,
    });
  }
  return faults;
}

function timeFaults(findings: Findings): readonly Fault[] {
  const { accepted } = findings;
  // Both follow from verifying nothing; and a clock that is wrong accepts one of the two and nothing genuine.
  if ((accepted("header_missing") && accepted("wrong_secret")) || clockIsOffBy(findings) !== null) return [];
  const [isOld, isAhead] = [accepted("too_old"), accepted("too_far_ahead")];
  const remedy = "Refuse a timestamp that is 300 seconds or more away from now, on either side.";
  if (isOld && isAhead) {
    const message = "It ignores the timestamp: whoever has recorded a webhook can send it again at any time.";
    return [
      { code: "ignores_time", severity: "danger", message, remedy, probes: ["too_old", "too_far_ahead"] },
    ];
  }
  if (isOld) {
    const message = "It accepts old webhooks: whoever has recorded one can send it again at any time.";
    return [{ code: "accepts_old", severity: "danger", message, remedy, probes: ["too_old"] }];
  }
  if (isAhead) {
    const message =
      "It accepts timestamps that are far ahead of its clock: a recorded one stays good for longer.";
    return [{ code: "accepts_ahead", severity: "danger", message, remedy, probes: ["too_far_ahead"] }];
  }
  return [];
}

/**
 * A receiver that refuses what was signed now and accepts what was signed ten minutes to one side checks the time, by a
 * clock that is wrong by about that much. Null: nothing like that.
 */
export function clockIsOffBy({ accepted, refused }: Findings): "behind" | "ahead" | null {
  if (!refused("genuine") || accepted("wrong_secret")) return null;
  if (accepted("too_old") && !accepted("too_far_ahead")) return "behind";
  if (accepted("too_far_ahead") && !accepted("too_old")) return "ahead";
  return null;
}
