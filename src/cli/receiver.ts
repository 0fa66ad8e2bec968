import type { Command } from "@commander-js/extra-typings";
import { addReceiverCheck } from "./receiver-check.ts";
import { addReceiverListen } from "./receiver-listen.ts";
import type { Surroundings } from "./surroundings.ts";

export function addReceiverCommands(program: Command, surroundings: Surroundings): void {
  const receiver = program.command("receiver").description("be a receiver of webhooks, or check one");
  addReceiverCheck(receiver, surroundings);
  addReceiverListen(receiver, surroundings);
}
