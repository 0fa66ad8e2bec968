import { Readable } from "node:stream";
import type { Command } from "commander";
import { z } from "zod";
import { readConfig } from "../../base/config/config.ts";
import { createCheckedAddresses, type FindCheckedAddresses } from "../../egress/dns/resolver.ts";
import { ConnectError } from "../../egress/egress.ts";
import { portOf } from "../../egress/rules/host.ts";
import { judgeTargetUrl } from "../../egress/rules/target-url.ts";
import { connectTimeoutOf, createTargetResolver, type TargetRules, targetRulesOf } from "../egress.ts";
import { printResult, UsageError } from "../output.ts";
import type { ProcessContext } from "../process-context.ts";
import { readStandardInput } from "./options.ts";

const INPUT_BYTES_MAX = 16 * 1024 * 1024;
const URLS_MAX = 10_000;

/** Concurrent lookups: enough that one dead name server does not delay all others. */
const LOOKUPS_MAX = 64;

export function addTargetCommands(program: Command, context: ProcessContext): void {
  program
    .command("target")
    .description("check URLs against the rules for webhook targets")
    .command("check")
    .description("check each URL of the JSON array on standard input")
    .option("--resolve", "also resolve the names and check their addresses")
    .option("--json", "print JSON, even on a terminal")
    .action(async (options) => {
      const config = readConfig(context.env);
      const rules = targetRulesOf(config);
      const urls = parseUrls(await readStandardInput(context, INPUT_BYTES_MAX));
      const findAddresses = options.resolve
        ? createCheckedAddresses({
            ...rules,
            resolver: createTargetResolver(config, connectTimeoutOf(config)),
          })
        : null;
      const verdicts = await Readable.from(urls)
        .map((url: string) => check(url, rules, findAddresses), { concurrency: LOOKUPS_MAX })
        .toArray();
      printResult(context, options, verdicts, verdicts.map(verdictText).join("\n"));
    });
}

/**
 * Checks the URL's text and, with `findAddresses`, the addresses that a connection would use. `href`: the normalized
 * URL, as stored and requested; null when the URL's text is refused.
 */
async function check(url: string, rules: TargetRules, findAddresses: FindCheckedAddresses | null) {
  const judged = judgeTargetUrl(url, rules);
  if (judged.verdict === "refuse") {
    return { url, verdict: "refuse", code: judged.code, message: judged.message, href: null };
  }
  try {
    await findAddresses?.(judged.url.hostname, portOf(judged.url));
    return { url, verdict: "allow", code: null, message: null, href: judged.href };
  } catch (error) {
    if (!(error instanceof ConnectError)) throw error;
    return { url, verdict: "refuse", code: error.code, message: error.message, href: judged.href };
  }
}

function parseUrls(input: Buffer): readonly string[] {
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(input);
    return z.array(z.string()).max(URLS_MAX).parse(JSON.parse(text));
  } catch (error) {
    const expected = `a JSON array of at most ${URLS_MAX} strings in UTF-8`;
    throw new UsageError(`Standard input must be ${expected}, such as ["https://example.com/hook"].`, {
      cause: error,
    });
  }
}

function verdictText({ url, verdict, code, message }: Awaited<ReturnType<typeof check>>): string {
  return verdict === "allow" ? `allow   ${url}` : `refuse  ${url}\n        ${code}: ${message}`;
}
