import type { Command } from "@commander-js/extra-typings";
import type { ProcessContext } from "../app/process-context.ts";
import { runDemo } from "../demo/demo.ts";

export function addDemoCommand(program: Command, context: ProcessContext): void {
  program
    .command("demo")
    .description("show deliveries to local receivers, from the first attempt to a replay")
    .option("--stay", "keep running at the end, and print the URL and the API key")
    .option("--use-server", "use a temporary database on the server of DATABASE_URL")
    .option("--json", "print events as JSON lines")
    .action(async ({ stay, useServer, json }) => {
      const hasPassed = await runDemo(context, {
        stays: stay === true,
        usesServer: useServer === true,
        json,
      });
      context.setExitCode(hasPassed ? 0 : 1);
    });
}
