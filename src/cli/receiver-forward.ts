import { createReadStream } from "node:fs";
import { text } from "node:stream/consumers";
import type { Command } from "@commander-js/extra-typings";
import { readForwardTarget, runForwarding } from "../app/forwarding.ts";
import { httpUrl } from "../app/listening.ts";
import { createAnnounce } from "../app/output.ts";
import type { ProcessContext } from "../app/process-context.ts";
import { UsageError } from "../app/usage-error.ts";
import { readConfig } from "../config/read-config.ts";

/** An integrator's own setting, and none of Sealpost's configuration. */
const VARIABLE = "SEALPOST_API_KEY";
const FILE_BYTES_MAX = 1_024;

const MORE_HELP = `
Events are pulled from the API with the account's key, so neither a tunnel nor an endpoint is needed. Each is posted
once, exactly as a webhook is, with a signature that is valid now; the receiver verifies it with the account's signing
secret. Nothing is sent again: what the receiver refuses is printed, and the next one follows.

  export ${VARIABLE}=…        # a key with the scope analyses:read
  sealpost receiver forward --to http://localhost:3000/webhooks`;

export function addReceiverForward(receiver: Command, context: ProcessContext): void {
  receiver
    .command("forward")
    .description("pull an account's events and post them to a receiver on this machine, until Ctrl-C")
    .requiredOption("--to <url>", "the receiver's URL on this machine")
    .option("--api <url>", "the API's URL, without /v1; without it, that of this configuration")
    .option("--key-file <path>", `a file of the API key (/dev/stdin for standard input); else ${VARIABLE}`)
    .option("--from <cursor>", "where to begin: newest, oldest, or a cursor of the feed", "newest")
    .option("--unsafe-any-target", "post to other machines, too")
    .option("--json", "print events as JSON lines")
    .addHelpText("after", MORE_HELP)
    .action(async (options) => {
      const to = readForwardTarget(options.to, options.unsafeAnyTarget === true);
      const apiUrl = options.api === undefined ? configuredApi(context) : readApiUrl(options.api);
      const apiKey = await readApiKey(context, options.keyFile);
      const from = options.from === "oldest" ? undefined : options.from;
      await runForwarding(context, { apiUrl, apiKey, to, from }, createAnnounce(context, options));
    });
}

function configuredApi({ env }: ProcessContext): string {
  const { publicUrl, host, port } = readConfig(env);
  return publicUrl ?? httpUrl(host, port);
}

function readApiUrl(given: string): string {
  const url = URL.parse(given);
  if (url !== null && /^https?:$/.test(url.protocol) && url.search === "" && url.username === "") {
    return url.href.replace(/\/+(?:v1\/?)?$/, "");
  }
  throw new UsageError("--api must be an http:// or https:// URL, such as https://api.example.com.");
}

/** @throws UsageError without one, and for a file that cannot be read */
async function readApiKey({ env }: ProcessContext, keyFile: string | undefined): Promise<string> {
  const key = (keyFile === undefined ? (env[VARIABLE] ?? "") : await readKeyFile(keyFile)).trim();
  if (/^[\x21-\x7e]+$/.test(key)) return key;
  throw new UsageError(
    key === ""
      ? `No API key: give --key-file, or set ${VARIABLE}.`
      : "The API key holds characters that no key has.",
  );
}

async function readKeyFile(path: string): Promise<string> {
  try {
    return await text(createReadStream(path, { end: FILE_BYTES_MAX }));
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    throw new UsageError(`The file that --key-file names cannot be read (${code}).`, { cause: error });
  }
}
