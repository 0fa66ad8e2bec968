import { createReadStream } from "node:fs";
import { text } from "node:stream/consumers";
import type { ProcessContext } from "../app/process-context.ts";
import { UsageError } from "../app/usage-error.ts";
import { importSigningKey, WebhookVerificationError } from "../signing/index.ts";

/** A receiver's own setting, and none of Sealpost's configuration. */
const VARIABLE = "SEALPOST_SECRET";
const FILE_BYTES_MAX = 16_384;

export const SECRET_OPTION = "the signing secret, for tests: others on this machine can see it";
export const SECRET_FILE_OPTION =
  `a file of the signing secret (/dev/stdin for standard input); without either: ${VARIABLE}. ` +
  "During a rotation both secrets, with white space between";

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
      `--secret is shown to everybody on this machine, such as by ps: use --secret-file or ${VARIABLE}.\n`,
    );
  }
  return secrets;
}

async function readSecretFile(path: string): Promise<readonly string[]> {
  let content: string;
  try {
    content = await text(createReadStream(path, { end: FILE_BYTES_MAX }));
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    throw new UsageError(`The file that --secret-file names cannot be read (${code}).`, { cause: error });
  }
  if (content.length > FILE_BYTES_MAX) {
    throw new UsageError(`The file that --secret-file names is longer than ${FILE_BYTES_MAX} bytes.`);
  }
  const secrets = words(content);
  if (secrets.length === 0) throw new UsageError("The file that --secret-file names is empty.");
  return secrets;
}

function words(content: string): string[] {
  return content.split(/\s+/).filter((word) => word !== "");
}
