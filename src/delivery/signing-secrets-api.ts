import { z } from "zod";
import { time } from "../api/fields.ts";
import { operationsOf } from "../api/operations.ts";
import { DAY_SECONDS } from "../base/model/time.ts";
import { jsonBody, jsonResponse, type Operation } from "../http/operation.ts";
import type { AnalysisDependencies } from "./analyses-api.ts";
import { findSigningSecrets, rotateSigningSecret, type SigningSecret } from "./signing-secrets-sql.ts";

const { read, write } = operationsOf("Signing secret");
const path = "/v1/webhooks/signing-secret";

const secret = z.string().describe("The HMAC key: this whole text, `whsec_` included, not decoded.");

export const SigningSecretShape = z
  .object({
    signing_secret: secret,
    created_at: time,
    previous: z
      .object({ signing_secret: secret, created_at: time, expires_at: time })
      .nullable()
      .describe("The previous secret while it still signs, second in the header; null once it has expired."),
  })
  .meta({ id: "SigningSecret", description: "The secret that signs the account's webhooks." });

const Rotation = z.strictObject({
  overlap_seconds: z
    .int()
    .min(0)
    .max(7 * DAY_SECONDS)
    .default(DAY_SECONDS)
    .describe(
      "How long the old secret keeps signing too, at most 7 days. 0 if it has leaked: it expires at once.",
    ),
  // No defaults: they would become part of the request that an idempotency key remembers, which the version before
  // reads.
  previous_signature: z
    .enum(["after", "omit"])
    .optional()
    .describe(
      "Which signatures webhooks carry from now on. `after` (the default): the new secret's and, until the overlap " +
        "ends, after it the old one's. `omit`: the new secret's alone, for receivers whose verifier reads only one " +
        "`v1`; the old secret ends at once, whatever `overlap_seconds` says, and what a receiver rejects until it " +
        "has the new one is retried.",
    ),
  end_previous: z
    .boolean()
    .optional()
    .describe(
      "Required to rotate while the overlap of an earlier rotation lasts: it ends at once, and receivers that have " +
        "only the oldest secret reject every webhook from then on.",
    ),
});

/** Reading and rotating the signing secret. */
export function signingSecretOperations({ pool, secretsKey }: AnalysisDependencies): readonly Operation[] {
  return [
    read({
      key: "webhooks.signing_secret.get",
      summary: "Get the signing secret",
      description: "The secret that receivers verify with, and the previous one while it still signs too.",
      path,
      scope: "webhooks:secrets",
      holdsSecret: true,
      response: jsonResponse(200, SigningSecretShape),
      errors: ["not_found"],
      handle: async ({ accountId, problem }) => {
        const body = secretsBody(await findSigningSecrets(pool, accountId, secretsKey));
        if (body === null) throw problem("not_found");
        return { body };
      },
    }),
    write({
      key: "webhooks.signing_secret.rotate",
      summary: "Rotate the signing secret",
      description:
        "Creates a new secret. Until the overlap ends every webhook carries two signatures, the new secret's " +
        "first, so that receivers can switch without missing one (`previous_signature` can omit the old secret's). " +
        "There are never three: rotating again before then is refused, unless `end_previous` says to expire the " +
        "oldest secret at once. If the response is lost, retry with the same Idempotency-Key or get the secret.",
      method: "POST",
      path: `${path}/rotate`,
      scope: "webhooks:secrets",
      holdsSecret: true,
      body: jsonBody(Rotation, { isOptional: true }),
      audit: ({ body }) => body,
      response: jsonResponse(200, SigningSecretShape),
      errors: ["rotation_in_progress"],
      handle: async ({ accountId, body, problem }, tx) => {
        const overlapSeconds = body.previous_signature === "omit" ? 0 : body.overlap_seconds;
        const rotation = { overlapSeconds, endsPrevious: body.end_previous ?? false };
        const made = await rotateSigningSecret(tx, accountId, rotation, secretsKey);
        if (made === "rotation_in_progress") throw problem(made);
        // There is the one that was just made.
        return { body: secretsBody(await findSigningSecrets(tx, accountId, secretsKey))! };
      },
    }),
  ];
}

/** The current one comes first; null: there is none. */
function secretsBody([current, previous]: readonly SigningSecret[]) {
  if (current === undefined) return null;
  // There is one current secret at most.
  const older = previous && { ...bodyOf(previous), expires_at: previous.expiresAt!.toISOString() };
  return { ...bodyOf(current), previous: older ?? null };
}

function bodyOf({ secret, createdAt }: SigningSecret) {
  return { signing_secret: secret, created_at: createdAt.toISOString() };
}
