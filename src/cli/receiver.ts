import type { Command } from "@commander-js/extra-typings";
import { addReceiverListen } from "./receiver-listen.ts";
import type { Surroundings } from "./surroundings.ts";

export function addReceiverCommands(program: Command, surroundings: Surroundings): void {
  const receiver = program.command("receiver").description("for those who receive webhooks");
  addReceiverListen(receiver, surroundings);
}
