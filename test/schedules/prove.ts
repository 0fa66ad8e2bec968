// Can schedules find a race? Takes one guard after the other out of a copy of the project, and plays its part.
import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { type Change, inCopy, without } from "../support/broken-twins.ts";
import type { PartName } from "./schedules.ts";

const run = promisify(execFile);
const RUNS = "5000";

type Guard = Change & { readonly name: string; readonly part: PartName };

const guard =
  (part: PartName, path: string) =>
  (name: string, text: string, without: string): Guard => ({ part, path, name, text, without });
const dispatcher = guard("dispatching", "src/delivery/dispatcher.ts");
const lanes = guard("dispatching", "src/delivery/lanes.ts");
const recorder = guard("recording", "src/delivery/recorder.ts");
const batches = guard("writing", "src/http/write-batches.ts");

export const GUARDS: readonly Guard[] = [
  dispatcher("one id once in a claim", "if (!ids.has(one.deliveryId)) return", "if (one) return"),
  dispatcher(
    "the same token again",
    ".claim(deliveryIds, leaseToken, bytesMax)",
    ".claim(deliveryIds, randomUUID(), bytesMax)",
  ),
  dispatcher("the age of a claim", "performance.now() - askedAtMs < START_WITHIN_MS", "true"),
  dispatcher(
    "freeing what a lost answer leased",
    "await this.#options.freeLeases(deliveryIds, leaseToken).catch(() => undefined);",
    "",
  ),
  dispatcher("giving back what was to be claimed", "for (const one of taken) this.lanes.add(one);", ""),
  dispatcher(
    "waiting for attempts",
    "await new Promise<void>((resolve) => this.#idleWaiters.push(resolve));",
    "",
  ),
  dispatcher("waiting for claims", "while (slot.claiming !== null) await slot.claiming;", ""),
  dispatcher("a bound on bodies", "CLAIM_BYTES_MAX, this.bytes.free)", "CLAIM_BYTES_MAX)"),
  dispatcher("bodies that are done with", "this.bytes.count(taken.accountId, -delivery.bodyBytes);", ""),
  dispatcher("what a claim left", 'if (answer?.kind === "left") this.lanes.add(waiting);', ""),
  dispatcher("what waits for its turn", "this.lanes.putBack(taken);", ""),
  dispatcher(
    "halving a claim",
    'if (claimed === "unreadable") return await this.#claimHalves(taken, bytesMax, leaseToken);',
    'if (claimed === "unreadable") continue;',
  ),
  lanes("a lane's limit", "lane.inFlight < lane.limit", "lane.inFlight < 100"),
  lanes("the process's places", "Math.min(max, this.#limits.inFlightMax - this.inFlight)", "max"),
  lanes("the way out of an empty lane", "this.#turns.countInFlight(lane.account, -1, lane.isSilent);", ""),
  recorder("one write at a time", "if (!isWriting) void writeAll();", "void writeAll();"),
  recorder("parts apart", "({ recording }) => partOf(recording)", '() => ""'),
  recorder(
    "the lease's end",
    "batch.filter(({ giveUpAtMs }) => giveUpAtMs > performance.now())",
    "[...batch]",
  ),
  recorder("the fence's answer", 'ours.has(one.recording.deliveryId) ? "ours" : "taken_over"', '"ours"'),
  recorder("trying again", "await wait(backoffMs(attempts - 1, RETRY_BACKOFF, random()));", "return;"),
  recorder("halving a batch", "if (batch.length > 1) {", "if (batch.length > 9_999) {"),
  recorder("what gathers while it writes", "while (waiting.length > 0) {", "if (waiting.length > 0) {"),
  batches("names apart", 'if (names.some((name) => held.has(name))) return "stays";', ""),
  batches("names that are free again", "for (const name of names) held.delete(name);", ""),
  batches("going on when a name is free", "held.delete(name);\n    look();", "held.delete(name);"),
  batches("an answer of its own", "outcomes[index]!", "outcomes[0]!"),
  batches(
    "taking a batch apart",
    "else for (const part of partsOf(wanted)) runApart(part[0]!.write.claim.accountId, part);",
    "else for (const waiting of wanted) end(waiting, Promise.reject(error));",
  ),
  batches("trying a lock again", "runAgain(first!);", "end(first!, Promise.reject(error));"),
];

/** Returns 0 when each guard was missed. */
export async function proveSchedules(seed: number, tell: (line: string) => void): Promise<number> {
  const missed: string[] = [];
  await inCopy(async (folder) => {
    for (const one of GUARDS) {
      const found = await without(folder, [one], () => violationIn(folder, one.part, seed));
      tell(`without ${one.name}: ${found ?? "NOTHING WAS FOUND"}`);
      if (found === null) missed.push(one.name);
    }
  });
  return missed.length;
}

/** What was found first; null: nothing. */
async function violationIn(folder: string, part: PartName, seed: number): Promise<string | null> {
  const program = `import { playSchedules } from "./test/schedules/schedules.ts";
    await playSchedules("${part}", ${RUNS}, ${seed}).catch((error) => {
      console.log(String(error.cause.message).split("\\n")[0].slice(0, 100));
      process.exit();
    });`;
  const { stdout } = await run(process.execPath, ["--input-type=module", "--eval", program], { cwd: folder });
  return stdout.trim() || null;
}
