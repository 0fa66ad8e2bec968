import type { Pool } from "pg";
import type { SecretsKey } from "../base/model/secrets-key.ts";

/** The account is not moved like this; the message says what to do. Whatever was begun can go on, or be called off. */
export class MoveRefusedError extends Error {
  override readonly name = "MoveRefusedError";
}

/** One of the two databases, and the key that its secrets are sealed with. */
export type Cell = { readonly pool: Pool; readonly secretsKey: SecretsKey };

/** What is being done, in this order, as people are told; a page of a table is told each time. */
export const MOVE_PARTS = {
  prepare: "starting, or continuing",
  close: "closing the account: publishing and writes are refused from now on",
  wait_for_transactions: "waiting for older transactions to end",
  park: "parking what is open",
  wait_for_feed: "waiting until the feed holds everything",
  still: "the account no longer changes",
  copy: "copying",
  compare: "comparing",
  open: "opening the account at the target",
  finish: "finishing",
} as const;

export type MovePart = keyof typeof MOVE_PARTS;

export type Move = {
  readonly accountId: string;
  readonly source: Cell;
  readonly target: Cell;
  /** Where callers are told to go. */
  readonly targetName: string;
  /** The source's name; null: it has none. */
  readonly sourceName: string | null;
  /** Why the account cannot be moved, in a sentence that it is told with; null: it can. */
  readonly findHindrance: (source: Pool, accountId: string) => Promise<string | null>;
  /** How long older transactions, attempts and calls that are under way are waited for. */
  readonly waitMaxMs: number;
  /** Told before each part. `detail`: the table, or whom it waits for. */
  readonly onProgress: (part: MovePart, detail: string | null) => void;
};

export type Cells = Pick<Move, "source" | "target">;
