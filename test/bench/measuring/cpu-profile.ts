// Sums a V8 CPU profile up: which file and which function the time went to.
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";

export type ProfileLine = { readonly name: string; readonly microseconds: number };

export type ProfileSum = {
  /** All time but the idle. */
  readonly busyMicroseconds: number;
  /** By the innermost of our files or packages on the stack: what Node itself does for it counts as its own. */
  readonly byPlace: readonly ProfileLine[];
  /** By the function that ran, wherever it was called from. */
  readonly byFunction: readonly ProfileLine[];
};

type Node = {
  readonly id: number;
  readonly callFrame: { readonly functionName: string; readonly url: string; readonly lineNumber: number };
  readonly children?: readonly number[];
};

type CpuProfile = {
  readonly nodes: readonly Node[];
  readonly samples: readonly number[];
  readonly timeDeltas: readonly number[];
};

/** Flags that make Node write its profile into the folder when it ends. */
export function profilingFlags(folder: string): string[] {
  return ["--cpu-prof", `--cpu-prof-dir=${folder}`, "--cpu-prof-interval=500"];
}

export async function sumProfile(folder: string): Promise<ProfileSum> {
  const [file] = (await readdir(folder)).filter((name) => name.endsWith(".cpuprofile"));
  if (file === undefined) throw new Error("The dispatcher has written no CPU profile.");
  return sumUp(JSON.parse(await readFile(join(folder, file), "utf8")) as CpuProfile);
}

function sumUp({ nodes, samples, timeDeltas }: CpuProfile): ProfileSum {
  const places = placesOf(nodes);
  const byId = new Map(nodes.map((node) => [node.id, node]));
  const byPlace = new Map<string, number>();
  const byFunction = new Map<string, number>();
  let busy = 0;
  samples.forEach((id, index) => {
    const spent = timeDeltas[index] ?? 0;
    const { callFrame } = byId.get(id)!;
    if (callFrame.functionName === "(idle)") return;
    busy += spent;
    const place = places.get(id) ?? "";
    byPlace.set(place, (byPlace.get(place) ?? 0) + spent);
    const name = `${callFrame.functionName || "(anonymous)"} ${fileOf(callFrame.url)}:${callFrame.lineNumber + 1}`;
    byFunction.set(name, (byFunction.get(name) ?? 0) + spent);
  });
  return { busyMicroseconds: busy, byPlace: linesOf(byPlace), byFunction: linesOf(byFunction) };
}

/** For each node of the call tree, the innermost of our files or packages at or above it. */
function placesOf(nodes: readonly Node[]): Map<number, string> {
  const byId = new Map(nodes.map((node) => [node.id, node]));
  const places = new Map<number, string>();
  const visit = (node: Node, above: string): void => {
    const { url, functionName } = node.callFrame;
    const isNodes = url === "" || url.startsWith("node:");
    const root = functionName.startsWith("(") ? functionName : `${fileOf(url)} ${functionName}`;
    const place = isNodes ? above || (functionName === "(root)" ? "" : root) : fileOf(url);
    places.set(node.id, place);
    for (const child of node.children ?? []) visit(byId.get(child)!, place);
  };
  visit(nodes[0]!, "");
  return places;
}

/** A package's name, or the path of a file of ours, or Node's own name for its file. */
function fileOf(url: string): string {
  const inPackage = /.*\/node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(url)?.[1];
  if (inPackage !== undefined) return inPackage;
  return /\/(src\/.*)$/.exec(url)?.[1] ?? url;
}

function linesOf(sums: ReadonlyMap<string, number>): ProfileLine[] {
  return [...sums]
    .map(([name, microseconds]) => ({ name, microseconds }))
    .sort((left, right) => right.microseconds - left.microseconds);
}
