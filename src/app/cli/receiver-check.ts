import type { Command } from "commander";
import { judgeTargetUrl } from "../../egress/rules/target-url.ts";
import type { ReceiverReport } from "../../receivers/receiver-check.ts";
import { createReceiverChecking, refusedTarget, targetRulesOf } from "../egress.ts";
import { printResult, textTable } from "../output.ts";
import type { ProcessContext } from "../process-context.ts";
import { commandConfigOf } from "../state-folder.ts";
import { collect } from "./options.ts";
import { readSigningSecrets, SECRET_FILE_OPTION, SECRET_OPTION } from "./secrets.ts";

const HELP = `
It sends 14 probes and up to 3 trials of the secret in parallel, within 20 seconds, each with the header
sealpost-probe: 1. Given two secrets, it says which of them the receiver accepts. A correct receiver accepts
the valid webhooks with a 2xx and refuses the forged and the outdated ones. Every probe's analysis has "example": true.
The exit code is 0 when the receiver is right and 1 when something is wrong.`;

export function addReceiverCheck(receiver: Command, context: ProcessContext): void {
  receiver
    .command("check")
    .description("check that a receiver accepts valid webhooks and refuses forgeries")
    .requiredOption("--url <url>", "the receiver's URL: a public https:// URL")
    .option("--secret <secret>", SECRET_OPTION, collect)
    .option("--secret-file <path>", SECRET_FILE_OPTION)
    .option("--json", "print JSON, even on a terminal")
    .addHelpText("after", HELP)
    .action(async (options) => {
      const config = await commandConfigOf(context.env);
      const judged = judgeTargetUrl(options.url, targetRulesOf(config));
      if (judged.verdict === "refuse") throw refusedTarget(judged, config);
      const secrets = await readSigningSecrets(context, options);
      const nowMs = context.now();
      const report = await createReceiverChecking(config)({ url: judged.url, secrets, nowMs });
      printResult(context, options, report, reportText(report));
      context.setExitCode(report.verdict === "right" ? 0 : 1);
    });
}

const verdictTexts: Readonly<Record<ReceiverReport["verdict"], string>> = {
  right: "is right: it accepts valid webhooks and refuses all others.",
  faulty: "is faulty: webhooks to it get lost or are sent again.",
  dangerous: "is dangerous: it accepts what it must refuse.",
};

function reportText(report: ReceiverReport): string {
  const { url, verdict, faults, probes, accepts_secrets, connection } = report;
  const list = faults.map(
    ({ severity, message, remedy }, index) =>
      `${index + 1}. ${severity}: ${message}\n   What to do: ${remedy}`,
  );
  const rows = probes.map((probe) => [
    probe.verdict.replace("_", " "),
    probe.sent,
    probe.expected,
    probe.got,
    `${probe.duration_ms} ms`,
  ]);
  const parts = [
    `${url} ${verdictTexts[verdict]}`,
    ...list,
    ...secretsText(accepts_secrets),
    textTable(["verdict", "sent", "expected", "got", "time"], rows),
    connectionText(connection),
  ];
  return parts.join("\n\n");
}

/** During a rotation. */
function secretsText({ current, previous }: ReceiverReport["accepts_secrets"]): readonly string[] {
  if (current === null || previous === null) return [];
  if (current && previous) return ["It accepts both secrets."];
  if (current) return ["It accepts the current secret and no longer the previous one."];
  if (!previous) return ["It accepts neither of the two secrets alone."];
  return ["It accepts the previous secret only: give it the current one before the overlap ends."];
}

function connectionText(connection: ReceiverReport["connection"]): string {
  const { tls_version, remote_address, certificate_days_left, slowest_answer_ms } = connection;
  const facts = [
    ...(tls_version === null ? [] : [`HTTP/1.1 over ${tls_version}`]),
    ...(remote_address === null ? [] : [`address ${remote_address}`]),
    ...(certificate_days_left === null ? [] : [`certificate valid for ${certificate_days_left} more days`]),
    ...(slowest_answer_ms === null ? [] : [`slowest answer ${slowest_answer_ms} ms`]),
  ];
  return facts.length === 0 ? "No connection was established." : `${facts.join(", ")}.`;
}
