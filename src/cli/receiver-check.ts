import type { Command } from "@commander-js/extra-typings";
import type { ProcessContext } from "../app/process-context.ts";
import { createReceiverChecking } from "../app/receiver-checking.ts";
import { refusedTarget, targetRulesOf } from "../app/target-rules.ts";
import { textTable } from "../app/terminal-text.ts";
import { readConfig } from "../config/read-config.ts";
import { judgeTargetUrl } from "../egress/rules/target-url.ts";
import { receiverCheckBody } from "../operations/receiver-check-schema.ts";
import type { ReceiverReport } from "../receivers/receiver-check.ts";
import { answer } from "./answer.ts";
import { collect } from "./options.ts";
import { refuseBadSecrets } from "./receiver-secrets.ts";

const MORE_HELP = `
It sends 14 probes, marked with the header sealpost-probe: 1, side by side within 20 seconds: genuine webhooks, which a
right receiver accepts with a 2xx, and forged or outdated ones, which it refuses. Their analyses have "example": true.
Ends with 0 when the receiver is right, with 1 when there is something to mend.`;

export function addReceiverCheck(receiver: Command, context: ProcessContext): void {
  receiver
    .command("check")
    .description("find out whether a receiver accepts what is genuine and refuses what is not")
    .requiredOption("--url <url>", "of the receiver: a public https:// URL")
    .requiredOption(
      "--secret <secret>",
      "its signing secret; again for the old one during a rotation",
      collect,
    )
    .option("--json", "answer in JSON, on a terminal too")
    .addHelpText("after", MORE_HELP)
    .action(async (options) => {
      const config = readConfig(context.env);
      const judged = judgeTargetUrl(options.url, targetRulesOf(config));
      if (judged.verdict === "refuse") throw refusedTarget(judged, config);
      refuseBadSecrets(options.secret);
      const atMs = context.now();
      const report = await createReceiverChecking(config)({ url: judged.url, secrets: options.secret, atMs });
      answer(context, options, receiverCheckBody(judged.href, atMs, report), inWords(judged.href, report));
      context.setExitCode(report.verdict === "right" ? 0 : 1);
    });
}

const verdictInWords: Readonly<Record<ReceiverReport["verdict"], string>> = {
  right: "is right: it accepts what is genuine and refuses what is not.",
  faulty: "is faulty: webhooks to it get lost or come again.",
  dangerous: "is dangerous: it accepts what it must refuse.",
};

function inWords(url: string, { verdict, faults, probes, connection }: ReceiverReport): string {
  const list = faults.map(
    ({ severity, message, remedy }, index) =>
      `${index + 1}. ${severity}: ${message}\n   What to do: ${remedy}`,
  );
  const rows = probes.map((probe) => [
    probe.verdict.replace("_", " "),
    probe.sent,
    probe.expected,
    probe.got,
    `${probe.durationMs} ms`,
  ]);
  const parts = [
    `${url} ${verdictInWords[verdict]}`,
    ...list,
    textTable(["verdict", "sent", "expected", "got", "time"], rows),
    connectionInWords(connection),
  ];
  return parts.join("\n\n");
}

function connectionInWords(connection: ReceiverReport["connection"]): string {
  const { tlsVersion, remoteAddress, certificateDaysLeft, slowestAnswerMs } = connection;
  const facts = [
    ...(tlsVersion === null ? [] : [`HTTP/1.1 over ${tlsVersion}`]),
    ...(remoteAddress === null ? [] : [`address ${remoteAddress}`]),
    ...(certificateDaysLeft === null ? [] : [`certificate good for ${certificateDaysLeft} more days`]),
    ...(slowestAnswerMs === null ? [] : [`slowest answer ${slowestAnswerMs} ms`]),
  ];
  return facts.length === 0 ? "No connection came about." : `${facts.join(", ")}.`;
}
