import { Command, CommanderError, type CommandUnknownOpts, Help } from "commander";
import { ConfigError } from "../../base/config/config.ts";
import { MoveRefusedError } from "../../cells/move.ts";
import { UsageError } from "../output.ts";
import { type ProcessContext, version } from "../process-context.ts";
import { addAccountCommands } from "./account.ts";
import { addAuditCommands } from "./audit.ts";
import { addConsumerCommands } from "./consumers.ts";
import { addEndpointCommands } from "./endpoint.ts";
import { addErasuresCommands } from "./erasures.ts";
import { addKeyCommands, addUserCommands } from "./keys.ts";
import { addProcessCommands } from "./processes.ts";
import { addPublishCommand } from "./publish.ts";
import { addReceiverCommands } from "./receiver.ts";
import { addSecretCommands, addSignatureCommands } from "./secrets.ts";
import { addTargetCommands } from "./target.ts";

const MORE_HELP = `
Environment variables configure it; docs/configuration.md lists them. Without DATABASE_URL, commands use the database
and the settings of the \`sealpost start\` that runs with the same STATE_DIR. Errors go to standard error. Exit codes:
0 done; 1 failed, or a check that found something wrong; 2 a mistake to correct first, in the command, its input or the
configuration.`;

const plainHelp = new Help();

/** All commands; each file adds those of its noun. */
function createProgram(context: ProcessContext): Command {
  const program = new Command("sealpost")
    .description("Delivers signed webhooks when document analyses finish.")
    .version(version, "-V, --version", "print the version")
    .exitOverride()
    .configureOutput({
      writeOut: (text) => context.stdout.write(text),
      // runProgram prints errors; what remains here is the help shown when no command is given.
      writeErr: (text) => context.stderr.write(text),
      outputError: () => undefined,
    })
    .configureHelp({
      optionDescription: (option) =>
        `${plainHelp.optionDescription(option)}${option.mandatory ? " (required)" : ""}`,
    })
    .addHelpText("after", MORE_HELP)
    .showSuggestionAfterError();
  addProcessCommands(program, context);
  addAccountCommands(program, context);
  addUserCommands(program, context);
  addKeyCommands(program, context);
  addEndpointCommands(program, context);
  addConsumerCommands(program, context);
  addSecretCommands(program, context);
  addAuditCommands(program, context);
  addErasuresCommands(program, context);
  addPublishCommand(program, context);
  addTargetCommands(program, context);
  addSignatureCommands(program, context);
  addReceiverCommands(program, context);
  return program;
}

/**
 * Runs one command line. Errors are printed to standard error; the exit code is then 2 for a usage error and 1 for any
 * other.
 * @param args without the name of the program
 */
export async function runProgram(args: readonly string[], context: ProcessContext): Promise<void> {
  const program = createProgram(context);
  try {
    await program.parseAsync(args, { from: "user" });
  } catch (error) {
    if (error instanceof CommanderError && error.exitCode === 0) return;
    const kinds = [UsageError, ConfigError, CommanderError, MoveRefusedError];
    context.setExitCode(kinds.some((kind) => error instanceof kind) ? 2 : 1);
    for (const sentence of sentencesOf(error, () => commandIn(program, args)))
      context.stderr.write(`${sentence}\n`);
  }
}

function sentencesOf(error: unknown, command: () => string): readonly string[] {
  if (error instanceof ConfigError) return error.problems;
  if (error instanceof CommanderError) {
    if (error.code === "commander.help") return [];
    const sentence = sentenceOf(error.message);
    const isClear = !UNCLEAR.includes(error.code) || sentence.includes("Did you mean");
    return [isClear ? sentence : `${sentence} See \`${command()} --help\`.`];
  }
  return [error instanceof Error ? error.message : String(error)];
}

/** Errors whose message does not say what would be right. */
const UNCLEAR: readonly string[] = [
  "commander.unknownCommand",
  "commander.unknownOption",
  "commander.missingArgument",
  "commander.missingMandatoryOptionValue",
  "commander.excessArguments",
];

/** The command as far as its words are known: `sealpost key create`. */
function commandIn(program: Command, args: readonly string[]): string {
  const names = [program.name()];
  let command: CommandUnknownOpts | undefined = program;
  for (const arg of args) {
    command = command.commands.find((one) => one.name() === arg);
    if (command === undefined) break;
    names.push(arg);
  }
  return names.join(" ");
}

/**
 * Commander's messages look like "error: unknown option '--x'\n(Did you mean --y?)". They also quote values; these are
 * removed, because one may be a secret in the wrong place.
 */
function sentenceOf(message: string): string {
  const text = message
    .replace(/^error: /, "")
    .replace(/^command-argument value '[\s\S]*' is invalid for/, "invalid value for")
    .replace(/ argument '[\s\S]*' is invalid\./, " is invalid.")
    .replace(/^(unknown option '[^'=]*)=[\s\S]*'/, "$1'")
    .replaceAll(/\s+/g, " ")
    .trim();
  const sentence = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.?!)]$/.test(sentence) ? sentence : `${sentence}.`;
}
