import type { ReplayOutcome } from "../../src/base/model/statuses.ts";
import type { Claimed, ClaimRequest, OwnTarget, Recording, Rows } from "./rows.ts";

/** What was asked of the store and what it answered: enough to ask the real one the same. */
export type Operation =
  | { readonly kind: "publish"; readonly at: number; readonly own: OwnTarget }
  | { readonly kind: "endpoint"; readonly target: OwnTarget }
  | {
      readonly kind: "claim";
      readonly ids: readonly number[];
      readonly request: ClaimRequest;
      readonly claimed: readonly Claimed[];
    }
  | { readonly kind: "record"; readonly recordings: readonly Recording[]; readonly ours: readonly number[] }
  | { readonly kind: "promote"; readonly at: number; readonly woken: readonly number[] }
  | {
      readonly kind: "replay";
      readonly id: number;
      readonly at: number;
      readonly outcome: ReplayOutcome;
      readonly wakes: boolean;
    };

/** Sees every operation, and the rows as they are after it. */
export type Witness = (operation: Operation, rows: Rows) => void;
