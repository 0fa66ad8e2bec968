import type { InputPlace, NodeStep } from "./node-step.ts";

/** Of 64 KiB each at most: what a run was started with is the largest. */
const ITEMS_PER_STEP = 100;

/** Hands its items on when the time has come. */
export const waitStep: NodeStep<"wait"> = async ({ node, position, startedAt, now, readInput }) => {
  const { for_seconds, until: moment } = node.parameters;
  const until =
    moment === undefined ? new Date(startedAt.getTime() + (for_seconds ?? 0) * 1_000) : new Date(moment);
  if (until > now) return { kind: "waiting", until, analysisId: null };
  const input = await readInput(position as InputPlace | null, ITEMS_PER_STEP);
  const items = input.map(({ item }) => item);
  const last = input.at(-1);
  return last === undefined || input.length < ITEMS_PER_STEP
    ? { kind: "succeeded", items }
    : { kind: "progressed", items, position: last.place };
};
