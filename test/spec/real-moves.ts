// Moves of an account between two real cells, cut off where the specification cuts them off.
import { deepEqual, ok, rejects } from "node:assert/strict";
import type pg from "pg";
import { findMoveHindrance } from "../../src/app/areas.ts";
import { callOffLostMove, callOffMove } from "../../src/cells/calling-off.ts";
import { type Cell, type Move, MoveRefusedError } from "../../src/cells/move.ts";
import { moveAccount } from "../../src/cells/move-account.ts";
import type { Value } from "./quint.ts";

/** A move's process that is stopped just before it opens the account. */
type Stopped = { readonly goOn: (isKilled: boolean) => void; readonly ended: Promise<unknown> };

const killed = () => new Error("killed");

/** The moves of one account. */
export class RealMoves {
  readonly #accountId: string;
  readonly #source: Cell;
  readonly #target: Cell;
  readonly #stopped = new Map<number, Stopped>();

  constructor(accountId: string, source: Cell, target: Cell) {
    this.#accountId = accountId;
    this.#source = source;
    this.#target = target;
  }

  /** `id`: which of the moves that have announced that they open the account; `begun`: the one that goes on. */
  async take(action: string, id: number, begun: number): Promise<void> {
    const called = { accountId: this.#accountId, source: this.#source, target: this.#target };
    switch (action) {
      case "begin":
        return await rejects(moveAccount(this.#process("close")), killed());
      case "close":
        // The first that is asked once the account is closed.
        return await rejects(
          moveAccount({ ...this.#process(null), findHindrance: () => Promise.reject(killed()) }),
          killed(),
        );
      case "park":
        // Either something is left, or it goes on to where it is killed.
        return await rejects(
          moveAccount({ ...this.#process("still"), waitMaxMs: 0 }),
          /^(?:Error: killed|MoveRefused)/,
        );
      case "still":
        return await rejects(moveAccount(this.#process("copy")), killed());
      case "announce":
        await this.#announce(begun);
        return await rejects(callOffLostMove(called), MoveRefusedError);
      case "open": {
        const { goOn, ended } = this.#stopped.get(id)!;
        this.#stopped.delete(id);
        goOn(false);
        return deepEqual(await ended, killed());
      }
      case "finishMove":
        await moveAccount(this.#process(null));
        return;
      case "callOff":
        await callOffMove(called);
        return;
      case "callOffWithoutTarget":
        return await callOffLostMove(called);
      default:
        throw new Error(`nobody knows how PostgreSQL does ${action}`);
    }
  }

  #process(killedAt: string | null, target = this.#target): Move {
    return {
      accountId: this.#accountId,
      source: this.#source,
      target,
      targetName: "b",
      sourceName: "a",
      findHindrance: findMoveHindrance,
      waitMaxMs: 30_000,
      onProgress: (part) => {
        if (part === killedAt) throw killed();
      },
    };
  }

  /** Its process stops when it has announced that it opens the account, and is killed when it has. */
  async #announce(id: number): Promise<void> {
    const reached = Promise.withResolvers<void>();
    const going = Promise.withResolvers<boolean>();
    let opens = false;
    const { pool, secretsKey } = this.#target;
    const query = async (...asked: readonly Value[]) => {
      if (opens) {
        reached.resolve();
        if (await going.promise) throw killed();
      }
      return await (pool.query as (...asked: readonly Value[]) => Value).apply(pool, [...asked]);
    };
    const stopping = { query, connect: () => pool.connect() } as pg.Pool;
    const move = this.#process("finish", { pool: stopping, secretsKey });
    const ended = moveAccount({
      ...move,
      onProgress: (part, detail) => {
        if (part === "open") opens = true;
        move.onProgress(part, detail);
      },
    }).then(
      () => null,
      (error: unknown) => error,
    );
    // If it ends before, that is what is wrong.
    const early = await Promise.race([reached.promise.then(() => null), ended]);
    if (early !== null) throw early;
    this.#stopped.set(id, { goOn: going.resolve, ended });
  }
  /** Whoever was stopped goes on too late, and changes nothing. */
  async goOnTooLate({ into, intoStep }: Value): Promise<void> {
    for (const [id, { goOn, ended }] of this.#stopped) {
      if (into === id && intoStep === "begun") continue;
      this.#stopped.delete(id);
      goOn(false);
      const error = await ended;
      ok(error instanceof MoveRefusedError || (intoStep === "done" && into === id), String(error));
    }
  }

  /** Ends what is still stopped. */
  async end(): Promise<void> {
    for (const { goOn, ended } of this.#stopped.values()) {
      goOn(true);
      await ended;
    }
  }
}
