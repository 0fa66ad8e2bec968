import type { Command } from "@commander-js/extra-typings";
import { z } from "zod";
import type { ProcessContext } from "../app/process-context.ts";
import { createTargetResolver, type TargetRules, targetRulesOf } from "../app/target-rules.ts";
import { UsageError } from "../app/usage-error.ts";
import { readConfig } from "../config/read-config.ts";
import { TargetError } from "../egress/connect/target-error.ts";
import { createCheckedAddresses, type FindCheckedAddresses } from "../egress/dns/checked-addresses.ts";
import { portOf } from "../egress/rules/port.ts";
import { judgeTargetUrl } from "../egress/rules/target-url.ts";
import { answer } from "./answer.ts";
import { readStandardInput } from "./standard-input.ts";

const inputBytesMax = 16 * 1024 * 1024;
const urlsMax = 10_000;

// Names asked for at the same time: enough that one dead name server does not hold up ten thousand others.
const lookupsMax = 64;

type TargetAnswer = {
  readonly url: string;
  readonly verdict: "allow" | "refuse";
  /** Null when it is allowed. */
  readonly code: string | null;
  readonly message: string | null;
  /** The form that is stored and requested; null when the URL is refused by its text. */
  readonly href: string | null;
};

export function addTargetCommands(program: Command, context: ProcessContext): void {
  program
    .command("target")
    .description("judge URLs by the rules for where webhooks may go")
    .command("check")
    .description("judge each URL of the JSON array on standard input")
    .option("--resolve", "ask DNS too, and judge the addresses")
    .option("--json", "answer in JSON, on a terminal too")
    .action(async (options) => {
      const config = readConfig(context.env);
      const rules = targetRulesOf(config);
      const urls = urlsIn(await readStandardInput(context, inputBytesMax));
      const findAddresses = options.resolve
        ? createCheckedAddresses({
            ...rules,
            resolver: createTargetResolver(config, config.connectTimeoutMs),
          })
        : null;
      const answers = await mapSideBySide(urls, (url) => judge(url, rules, findAddresses));
      answer(context, options, answers, answers.map(inWords).join("\n"));
    });
}

/** By its text; then, when `findAddresses` is given, by the check that every connection makes. */
async function judge(
  url: string,
  rules: TargetRules,
  findAddresses: FindCheckedAddresses | null,
): Promise<TargetAnswer> {
  const judged = judgeTargetUrl(url, rules);
  if (judged.verdict === "refuse") {
    return { url, verdict: "refuse", code: judged.code, message: judged.message, href: null };
  }
  try {
    await findAddresses?.(judged.url.hostname, portOf(judged.url));
    return { url, verdict: "allow", code: null, message: null, href: judged.href };
  } catch (error) {
    if (!(error instanceof TargetError)) throw error;
    return { url, verdict: "refuse", code: error.code, message: error.message, href: judged.href };
  }
}

async function mapSideBySide<T, R>(items: readonly T[], map: (item: T) => Promise<R>): Promise<R[]> {
  const results: R[] = [];
  const waiting = items.entries();
  const takeTurns = async () => {
    for (const [index, item] of waiting) results[index] = await map(item);
  };
  await Promise.all(Array.from({ length: lookupsMax }, takeTurns));
  return results;
}

function urlsIn(input: Buffer): readonly string[] {
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(input);
    return z.array(z.string()).max(urlsMax).parse(JSON.parse(text));
  } catch (error) {
    const expected = `a JSON array of at most ${urlsMax} strings in UTF-8`;
    throw new UsageError(`Standard input must be ${expected}, such as ["https://example.com/hook"].`, {
      cause: error,
    });
  }
}

function inWords({ url, verdict, code, message }: TargetAnswer): string {
  return verdict === "allow" ? `allow   ${url}` : `refuse  ${url}\n        ${code}: ${message}`;
}
