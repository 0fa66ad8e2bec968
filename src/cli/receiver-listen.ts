import type { Command } from "@commander-js/extra-typings";
import { runLocalReceiver } from "../app/local-receiver.ts";
import { createAnnounce } from "../app/output.ts";
import type { ProcessContext } from "../app/process-context.ts";
import { UsageError } from "../app/usage-error.ts";
import { DAY_SECONDS } from "../model/time.ts";
import { collect, parseWholeNumber } from "./options.ts";
import { readSigningSecrets, SECRET_FILE_OPTION, SECRET_OPTION } from "./signing-secrets.ts";

const MORE_HELP = `
It answers 204 to valid webhooks and 400 to everything else, and prints why.

Webhooks only go to public https:// addresses, so put a tunnel or a proxy in front of it and set its public
address as your endpoint:

  sealpost receiver listen --port 4000 --secret-file secret.txt

A Sealpost on the same machine reaches it directly when it trusts the certificate and allows the target:

  sealpost receiver listen --port 4000 --secret-file secret.txt --https --ca-file receiver-ca.pem
  export TARGET_CA_FILE=receiver-ca.pem UNSAFE_ALLOWED_TARGETS=localhost:4000
  sealpost start
  sealpost endpoint set --account ID --url https://localhost:4000/webhooks`;

export function addReceiverListen(receiver: Command, context: ProcessContext): void {
  receiver
    .command("listen")
    .description("run a receiver that verifies and prints webhooks, until Ctrl-C")
    .requiredOption("--port <number>", "port to listen on; 0 for any free port", parseWholeNumber(0, 65_535))
    .option("--secret <secret>", SECRET_OPTION, collect)
    .option("--secret-file <path>", SECRET_FILE_OPTION)
    .option("--host <address>", "address to listen on", "127.0.0.1")
    .option("--tolerance <seconds>", "maximum age of a webhook", parseWholeNumber(1, DAY_SECONDS), 300)
    .option("--https", "use HTTPS, with a certificate for localhost")
    .option(
      "--ca-file <path>",
      "with --https: where senders find the CA certificate to trust (PEM); kept, with <path>.key, for the next start",
    )
    .option("--json", "print events as JSON lines")
    .addHelpText("after", MORE_HELP)
    .action(async (options) => {
      if (options.caFile !== undefined && !options.https) throw new UsageError("--ca-file needs --https.");
      const secrets = await readSigningSecrets(context, options);
      await runLocalReceiver(
        context,
        {
          host: options.host,
          port: options.port,
          secrets,
          toleranceSeconds: options.tolerance,
          isHttps: options.https === true,
          caFile: options.caFile ?? null,
        },
        createAnnounce(context, options),
      );
    });
}
