import type { Pool } from "pg";
import type { NodeOf } from "../model/definition.ts";
import type { NodeKind } from "../model/node-kinds.ts";
import type { NodeErrorCode } from "../model/workflows.ts";
import type { ObjectStore } from "../objects/object-store.ts";
import type { Item } from "../store/node-runs.ts";
import type { Step } from "../store/steps.ts";

/** An item that a node is given, and where it is in the input: what is read behind that place follows it. */
export type InputItem = { readonly item: Item; readonly place: InputPlace };

/**
 * The next items of the input, in its order: as many as asked for, or fewer large ones. `isEnd`: nothing comes behind
 * them. @param place null: from the first
 */
export type ReadInput = (
  place: InputPlace | null,
  countMax: number,
) => Promise<{ readonly items: readonly InputItem[]; readonly isEnd: boolean }>;

/** In the output of a node's source (by its place among the edges into the node), up to this item. */
export type InputPlace = { readonly source: number; readonly index: number };

/** What a step of a node is about, and what it is given. */
type NodeStepInput<Kind extends NodeKind> = Pick<
  Step,
  "accountId" | "spaceId" | "runId" | "nodeRunId" | "input" | "position" | "now"
> & {
  readonly pool: Pool;
  readonly objects: ObjectStore;
  readonly node: NodeOf<Kind>;
  readonly startedAt: Date;
  /** Aborts when the process ends, or the step has become somebody else's. */
  readonly signal: AbortSignal;
  readonly readInput: ReadInput;
};

/**
 * What a step came to. A step takes about a second at most and hands on what it has done: one that is cut, with its
 * process or its machine, is all that is done again.
 */
export type NodeStepResult =
  /** There is more to do: `position` is what the next step begins with. */
  | { readonly kind: "progressed"; readonly items: readonly Item[]; readonly position: unknown }
  /** There is nothing to do until then, or until this analysis is published (null: any); `position` stays. */
  | { readonly kind: "waiting"; readonly until: Date; readonly analysisId: string | null }
  | { readonly kind: "succeeded"; readonly items: readonly Item[] };

/** What a kind of node does. What it throws is tried again, but for a `NodeFailedError`. */
export type NodeStep<Kind extends NodeKind> = (input: NodeStepInput<Kind>) => Promise<NodeStepResult>;

/** The node cannot do its work, however often it tries. */
export class NodeFailedError extends Error {
  override readonly name = "NodeFailedError";
  readonly code: NodeErrorCode;

  /** @param message what is wrong and what to do, for whoever has made the workflow */
  constructor(code: NodeErrorCode, message: string) {
    super(message);
    this.code = code;
  }
}
