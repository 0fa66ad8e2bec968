import { type Command, Option } from "commander";
import type { Config } from "../../base/config/config.ts";
import { reseal } from "../../base/database/resealing.ts";
import { resealCanary } from "../../base/database/sealing.ts";
import { SECRETS_RESEALED } from "../../base/model/audit.ts";
import { DAY_SECONDS } from "../../base/model/time.ts";
import { rotateSigningSecret } from "../../delivery/signing-secrets-sql.ts";
import { importSigningKey, verifySignature, WebhookVerificationError } from "../../signing/index.ts";
import { changeAudited } from "../create-api-key.ts";
import { loadSecretsKey, requireAccount, withDatabase } from "../database.ts";
import { inColumns, printResult, UsageError } from "../output.ts";
import type { ProcessContext } from "../process-context.ts";
import {
  collect,
  parseId,
  parseSeconds,
  parseWholeNumber,
  readOptionFile,
  readStandardInput,
} from "./options.ts";

/** A receiver's own setting, and none of Sealpost's configuration. */
const VARIABLE = "SEALPOST_SECRET";

export const SECRET_OPTION = "the signing secret, for tests: others on this machine can see it";
export const SECRET_FILE_OPTION =
  `a file with the signing secret (/dev/stdin for standard input); without either: ${VARIABLE}. ` +
  "During a rotation both secrets, separated by whitespace";

export type SecretsOptions = { readonly secret?: readonly string[]; readonly secretFile?: string };

/**
 * The signing secrets from the command line, a file, or else the environment.
 * @throws UsageError without any, for a file that cannot be read, and for an invalid one, which would otherwise only
 * show with the first webhook
 */
export async function readSigningSecrets(
  { env, stderr }: Pick<ProcessContext, "env" | "stderr">,
  { secret = [], secretFile }: SecretsOptions,
): Promise<readonly string[]> {
  const given = [...secret, ...(secretFile === undefined ? [] : await readSecretFile(secretFile))];
  const secrets = given.length > 0 ? given : words(env[VARIABLE] ?? "");
  if (secrets.length === 0)
    throw new UsageError(`No signing secret: give --secret-file, or set ${VARIABLE}.`);
  try {
    for (const one of secrets) importSigningKey(one);
  } catch (error) {
    if (error instanceof WebhookVerificationError) throw new UsageError(error.message, { cause: error });
    throw error;
  }
  if (secret.length > 0) {
    stderr.write(
      `--secret is visible to everyone on this machine, for example with ps: use --secret-file or ${VARIABLE}.\n`,
    );
  }
  return secrets;
}

async function readSecretFile(path: string): Promise<readonly string[]> {
  const secrets = words(await readOptionFile("--secret-file", path));
  if (secrets.length > 0) return secrets;
  throw new UsageError("The file that --secret-file names is empty.");
}

function words(content: string): string[] {
  return content.split(/\s+/).filter((word) => word !== "");
}

// More than the body of any webhook has.
const BODY_BYTES_MAX = 32 * 1024 * 1024;
const SECONDS_MAX = 99_999_999_999;

export function addSignatureCommands(program: Command, context: ProcessContext): void {
  program
    .command("signature")
    .description("verify the signature of a webhook")
    .command("verify")
    .description(
      "verify the body on standard input; the exit code is 0 when the signature is valid, 1 when it is not",
    )
    .requiredOption("--header <value>", "the extract-signature header of the request")
    .option("--secret <secret>", SECRET_OPTION, collect)
    .option("--secret-file <path>", SECRET_FILE_OPTION)
    .option("--now <seconds>", "Unix time of arrival (default: now)", parseWholeNumber(0, SECONDS_MAX))
    .option("--tolerance <seconds>", "maximum age", parseWholeNumber(1, SECONDS_MAX), 300)
    .option("--json", "print JSON, even on a terminal")
    .action(async (options) => {
      const secrets = await readSigningSecrets(context, options);
      const body = await readStandardInput(context, BODY_BYTES_MAX);
      const rejection = findRejection({
        body,
        header: options.header,
        secrets,
        toleranceSeconds: options.tolerance,
        nowSeconds: options.now ?? Math.floor(context.now() / 1_000),
      });
      const text = rejection ? `Not valid. ${rejection.message}` : "Valid.";
      printResult(context, options, { valid: !rejection, reason: rejection?.code ?? null }, text);
      context.setExitCode(rejection ? 1 : 0);
    });
}

/**
 * Null when the signature is valid.
 * @throws UsageError when verification is not possible, such as with an empty secret
 */
function findRejection(input: Parameters<typeof verifySignature>[0]): WebhookVerificationError | null {
  try {
    verifySignature(input);
    return null;
  } catch (error) {
    if (!(error instanceof WebhookVerificationError)) throw error;
    if (error.kind === "misuse") throw new UsageError(error.message, { cause: error });
    return error;
  }
}

const IN_PROGRESS =
  "The secret was rotated recently, and the old one still signs: receivers that have only that one would be " +
  "locked out. Wait until its overlap ends, or give --end-previous.";

const unreadable = ({ secretsKeyPrevious }: Config) =>
  secretsKeyPrevious === null
    ? "cannot be decrypted with SECRETS_KEY alone: give both keys, the other one as SECRETS_KEY_PREVIOUS."
    : "can be decrypted with neither SECRETS_KEY nor SECRETS_KEY_PREVIOUS: keep both keys, and see " +
      '"Rotating the secrets key" in docs/operating.md.';

export function addSecretCommands(program: Command, context: ProcessContext): void {
  program
    .command("secret")
    .description("rotate signing secrets")
    .command("rotate")
    .description("replace the signing secret; the old one keeps signing, too, until the overlap ends")
    .requiredOption("--account <id>", "id of the account", parseId)
    .addOption(
      new Option("--overlap <time>", "how long the old secret keeps signing, too; 0s if it has leaked")
        .argParser(parseSeconds(7 * DAY_SECONDS))
        .default(DAY_SECONDS, "24h"),
    )
    .option(
      "--end-previous",
      "rotate even during an earlier rotation's overlap: receivers that have only the oldest secret are locked out",
    )
    .option("--json", "print JSON, even on a terminal")
    .action((options) =>
      withDatabase(context, async (pool, config) => {
        await requireAccount(pool, options.account);
        const secretsKey = await loadSecretsKey(pool, config);
        const { account: accountId, overlap, endPrevious: endsPrevious = false } = options;
        const rotation = { overlapSeconds: overlap, endsPrevious };
        const rotated = await changeAudited(pool, "webhooks.signing_secret.rotate", async (tx) => {
          const done = await rotateSigningSecret(tx, accountId, rotation, secretsKey);
          if (done === "rotation_in_progress") throw new UsageError(IN_PROGRESS);
          const details = { overlap_seconds: overlap, ...(endsPrevious && { end_previous: true }) };
          return { done, accountId, details };
        });
        const until = new Date(rotated.createdAt.getTime() + overlap * 1_000).toISOString();
        const value = { signing_secret: rotated.secret, previous_expires_at: until };
        const text = inColumns({ "signing secret": rotated.secret, "old secret signs until": until });
        printResult(context, options, value, text);
      }),
    );
  program
    .command("secrets")
    .description("encrypt stored secrets anew")
    .command("reseal")
    .description(
      "encrypt with SECRETS_KEY what is encrypted with SECRETS_KEY_PREVIOUS; can be killed and repeated",
    )
    .option("--json", "print JSON, even on a terminal")
    .action((options) =>
      withDatabase(context, async (pool, config) => {
        const secretsKey = await loadSecretsKey(pool, config, true);
        const resealAll = async () => {
          const found = await reseal(pool, secretsKey);
          if (typeof found === "number") return found;
          throw new UsageError(`The secret ${found.id} in ${found.table} ${unreadable(config)}`);
        };
        const first = await resealAll();
        // Whoever stores a secret by the first step after this is noticed; until now only a second pass finds it.
        await changeAudited(pool, SECRETS_RESEALED, async (tx) => {
          await resealCanary(tx, secretsKey);
          return { done: first, accountId: null, details: { resealed: first } };
        });
        const done = first + (await resealAll());
        printResult(context, options, { resealed: done }, inColumns({ "secrets resealed": String(done) }));
      }),
    );
}
