import type { Command } from "@commander-js/extra-typings";
import { Mistake } from "./mistake.ts";

export function addDemoCommand(program: Command): void {
  program
    .command("demo")
    .description("show deliveries to a receiver of its own, from the first attempt to a replay, and end")
    .option("--stay", "keep it running, and say under which address and key")
    .option("--json", "say what happens in JSON, a line each")
    .action(() => {
      throw new Mistake("The demo cannot be run yet.");
    });
}
