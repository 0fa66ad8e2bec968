import type { Command } from "@commander-js/extra-typings";
import { runAreaSteps, runDispatcher, runQuarantine } from "../app/dispatch.ts";
import { createAnnounce } from "../app/output.ts";
import type { ProcessContext } from "../app/process-context.ts";
import { runApi } from "../app/serve.ts";
import { runStandalone } from "../app/start.ts";
import { collectIds } from "./options.ts";

/** The commands that run until they are stopped. */
export function addProcessCommands(program: Command, context: ProcessContext): void {
  program
    .command("start")
    .description("run the whole service: API, dispatcher and, without DATABASE_URL, an embedded PostgreSQL")
    .option("--json", "print events as JSON lines")
    .action(async (options) => {
      context.setExitCode(await runStandalone(context, createAnnounce(context, options)));
    });
  program
    .command("serve")
    .description("run the API; any number of processes can share one database")
    .option("--json", "no effect: logs are always JSON")
    .action(() => runApi(context));
  program
    .command("dispatch")
    .description("deliver what is published; any number of processes can share one database")
    .option(
      "--alone <delivery-ids...>",
      "post only these, one at a time, then exit (dispatchers start this themselves)",
      collectIds,
    )
    .option(
      "--area-steps",
      "compute what areas have to, and post nothing (dispatchers start this themselves)",
    )
    .option("--json", "no effect: logs are always JSON")
    .action(async ({ alone, areaSteps }) => {
      if (areaSteps === true) await runAreaSteps(context);
      else if (alone === undefined) await runDispatcher(context);
      else context.setExitCode(await runQuarantine(context, alone));
    });
}
