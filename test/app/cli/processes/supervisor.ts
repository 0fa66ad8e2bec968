// A supervisor in a process of its own, so that a test can end it by force. Prints each event as a line of JSON.
import { fileURLToPath } from "node:url";
import { createShutdownSignal } from "../../../../src/app/process-context.ts";
import { supervise } from "../../../../src/app/supervisor.ts";

const [port = "", graceMs = ""] = process.argv.slice(2);
const file = fileURLToPath(new URL("./child.ts", import.meta.url));
process.exitCode = await supervise({
  children: ["one", "two"].map((name) => ({ name, file, args: [name, port], env: process.env })),
  shutdown: createShutdownSignal(),
  onEvent: (event) => console.log(JSON.stringify(event)),
  graceMs: Number(graceMs),
  // Restarts then come after half of the nominal delay.
  random: () => 0,
});
