import type { Command } from "@commander-js/extra-typings";
import type { ProcessContext } from "../app/process-context.ts";
import { addReceiverCheck } from "./receiver-check.ts";
import { addReceiverListen } from "./receiver-listen.ts";

export function addReceiverCommands(program: Command, context: ProcessContext): void {
  const receiver = program.command("receiver").description("be a receiver of webhooks, or check one");
  addReceiverCheck(receiver, context);
  addReceiverListen(receiver, context);
}
