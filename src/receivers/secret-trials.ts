import { createSecretKey } from "node:crypto";
import { importSigningKey, type SigningKey } from "../signing/index.ts";
import { exampleAnalysis, webhookBody } from "../webhook/envelope.ts";
import { webhookSignature } from "../webhook/headers.ts";
import { type Findings, isMissing, isSuccess } from "./probe-results.ts";
import type { Probed } from "./probe-sender.ts";
import type { ProbePost, ProbesOptions } from "./probes.ts";

/**
 * Beside the probes, webhooks that are neither genuine nor forged: they show which secret a receiver has. `decoded` is
 * signed with what the base64 in the secret stands for, in place of its text.
 */
export type SecretTrial = {
  readonly name: "current" | "previous" | "decoded";
  readonly posts: readonly ProbePost[];
};

/** One for each of two secrets while a rotation's overlap lasts; with one secret, the genuine probe shows it. */
export function createSecretTrials({ secrets, nowMs, newId }: ProbesOptions): readonly SecretTrial[] {
  const trial = (name: SecretTrial["name"], keys: readonly SigningKey[]): SecretTrial => {
    const analysisText = exampleAnalysis("analysis.succeeded", `example-${newId()}`);
    const body = webhookBody({ id: newId(), event: "analysis.succeeded", createdAtMs: nowMs, analysisText });
    return { name, posts: [{ body, header: webhookSignature(body, keys, nowMs) }] };
  };
  const decoded = trial("decoded", secrets.map(decodedKey));
  const [current, previous] = secrets;
  if (current === undefined || previous === undefined) return [decoded];
  return [
    trial("current", [importSigningKey(current)]),
    trial("previous", [importSigningKey(previous)]),
    decoded,
  ];
}

function decodedKey(secret: string): SigningKey {
  return createSecretKey(Buffer.from(secret.replace(/^whsec_/, ""), "base64"));
}

/** What the trials show; null: there is no such secret, or the responses do not tell. */
export type AcceptedSecrets = { readonly current: boolean | null; readonly previous: boolean | null };

export function acceptedSecrets(
  trials: readonly Probed<SecretTrial>[],
  { accepted, refused }: Findings,
): AcceptedSecrets {
  // It accepts any signature.
  if (accepted("wrong_secret")) return { current: null, previous: null };
  const current = trials.find(({ probe }) => probe.name === "current");
  if (current === undefined) {
    return { current: accepted("genuine") ? true : refused("genuine") ? false : null, previous: null };
  }
  return {
    current: isTaken(current),
    previous: isTaken(trials.find(({ probe }) => probe.name === "previous")),
  };
}

/** It takes what is signed with the decoded secret, and nothing else. */
export function usesDecodedSecret(trials: readonly Probed<SecretTrial>[], { refused }: Findings): boolean {
  const decoded = trials.find(({ probe }) => probe.name === "decoded");
  return refused("genuine") && isTaken(decoded) === true;
}

function isTaken(probed: Probed<SecretTrial> | undefined): boolean | null {
  const [answer] = probed?.answers ?? [];
  if (answer === undefined || isMissing(answer)) return null;
  return isSuccess(answer);
}
