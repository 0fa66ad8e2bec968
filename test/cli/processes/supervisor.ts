// A supervisor in a process of its own, so that a test can end it by force. Prints what it hears, a line each.
import { fileURLToPath } from "node:url";
import { untilAskedToEnd } from "../../../src/app/parent.ts";
import { supervise } from "../../../src/app/supervisor.ts";

const [port = "", graceMs = ""] = process.argv.slice(2);
const file = fileURLToPath(new URL("./child.ts", import.meta.url));
process.exitCode = await supervise({
  children: ["one", "two"].map((name) => ({ name, file, args: [name, port], env: process.env })),
  asked: untilAskedToEnd(),
  hear: (news) => console.log(JSON.stringify(news)),
  graceMs: Number(graceMs),
  // Without chance, restarts come after half of the nominal delay.
  random: () => 0,
});
