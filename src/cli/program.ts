import { Command, CommanderError, Help } from "@commander-js/extra-typings";
import type { ProcessContext } from "../app/process-context.ts";
import { UsageError } from "../app/usage-error.ts";
import { ConfigError } from "../config/config-error.ts";
import { addAccountCommands } from "./account.ts";
import { addDemoCommand } from "./demo.ts";
import { addDispatchCommand } from "./dispatch.ts";
import { addEndpointCommands } from "./endpoint.ts";
import { addKeyCommands } from "./key.ts";
import { addMigrateCommand } from "./migrate.ts";
import { addPublishCommand } from "./publish.ts";
import { addReceiverCommands } from "./receiver.ts";
import { addSecretCommands } from "./secret.ts";
import { addServeCommand } from "./serve.ts";
import { addSignatureCommands } from "./signature.ts";
import { addStartCommand } from "./start.ts";
import { addTargetCommands } from "./target.ts";

const MORE_HELP = `
Configured by environment variables, which README.md lists. Without DATABASE_URL, commands use the database of the
\`sealpost start\` that runs in the same STATE_DIR. Mistakes are said on standard error and end with 2.`;

const plainHelp = new Help();

/** Every command, each added by the file of its noun. */
function createProgram(context: ProcessContext): Command {
  const program = new Command("sealpost")
    .description("Delivers signed webhooks when a document analysis has finished.")
    .exitOverride()
    .configureOutput({
      writeOut: (text) => context.stdout.write(text),
      // Mistakes are written once, by runProgram; only the help that stands in for a missing command is left.
      writeErr: (text) => context.stderr.write(text),
      outputError: () => undefined,
    })
    .configureHelp({
      optionDescription: (option) =>
        `${plainHelp.optionDescription(option)}${option.mandatory ? " (required)" : ""}`,
    })
    .addHelpText("after", MORE_HELP)
    .showSuggestionAfterError();
  addStartCommand(program, context);
  addServeCommand(program, context);
  addDispatchCommand(program, context);
  addDemoCommand(program, context);
  addMigrateCommand(program, context);
  addAccountCommands(program, context);
  addKeyCommands(program, context);
  addEndpointCommands(program, context);
  addSecretCommands(program, context);
  addPublishCommand(program, context);
  addTargetCommands(program, context);
  addSignatureCommands(program, context);
  addReceiverCommands(program, context);
  return program;
}

/**
 * Runs one command line and says on standard error what went wrong, if anything did. Ends with 0, or what the
 * command set; 2 for a mistake of the caller's, 1 for a failure that is not.
 * @param args what stands after the program's name
 */
export async function runProgram(args: readonly string[], context: ProcessContext): Promise<void> {
  const program = createProgram(context);
  try {
    await program.parseAsync(args, { from: "user" });
  } catch (error) {
    if (error instanceof CommanderError && error.exitCode === 0) return;
    context.setExitCode(isUsageError(error) ? 2 : 1);
    for (const sentence of sentencesOf(error, () => commandIn(program, args)))
      context.stderr.write(`${sentence}\n`);
  }
}

function isUsageError(error: unknown): boolean {
  return error instanceof UsageError || error instanceof ConfigError || error instanceof CommanderError;
}

function sentencesOf(error: unknown, command: () => string): readonly string[] {
  if (error instanceof ConfigError) return error.problems;
  if (error instanceof CommanderError) {
    if (error.code === "commander.help") return [];
    const sentence = sentenceOf(error.message);
    const isClear = !unclear.includes(error.code) || sentence.includes("Did you mean");
    return [isClear ? sentence : `${sentence} See \`${command()} --help\`.`];
  }
  return [error instanceof Error ? error.message : String(error)];
}

/** Of these the message does not say what would be right. */
const unclear: readonly string[] = [
  "commander.unknownCommand",
  "commander.unknownOption",
  "commander.missingArgument",
  "commander.missingMandatoryOptionValue",
  "commander.excessArguments",
];

/** The command that was meant, as far as its words are known: `sealpost key create`. */
function commandIn(program: Command, args: readonly string[]): string {
  const names = [program.name()];
  let commands: readonly { name(): string; commands: readonly unknown[] }[] = program.commands;
  for (const arg of args) {
    const found = commands.find((one) => one.name() === arg);
    if (!found) break;
    names.push(arg);
    commands = found.commands as typeof commands;
  }
  return names.join(" ");
}

/**
 * commander says "error: unknown option '--x'\n(Did you mean --y?)". It also quotes what was given, which may be a
 * secret in the wrong place: that goes.
 */
function sentenceOf(message: string): string {
  const text = message
    .replace(/^error: /, "")
    .replace(/^command-argument value '[\s\S]*' is invalid for/, "what is given is invalid for")
    .replace(/ argument '[\s\S]*' is invalid\./, " is invalid.")
    .replace(/^(unknown option '[^'=]*)=[\s\S]*'/, "$1'")
    .replaceAll(/\s+/g, " ")
    .trim();
  const sentence = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.?!)]$/.test(sentence) ? sentence : `${sentence}.`;
}
