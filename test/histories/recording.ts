// How a history is recorded: each operation with its times, whatever becomes of it.
import { randomUUID } from "node:crypto";
import { setTimeout as wait } from "node:timers/promises";
import pg from "pg";
import type { Chance } from "../simulation/chance.ts";
import type { Answer, Call, History, Model, Operation } from "./checker.ts";
import { type Asking, type CellName, type Installation, now, type Told } from "./installation.ts";

/** Of a pipeline's transactions. */
const ROLLED_BACK = 0.15;

export class Recording {
  readonly world: Installation;
  readonly chance: Chance;
  readonly model: Model;
  readonly name: string;
  readonly operations: Operation[] = [];

  constructor(world: Installation, chance: Chance, model: Model, name: string) {
    this.world = world;
    this.chance = chance;
    this.model = model;
    this.name = name;
  }

  /** `act` resolves to what the client was told; null: nothing; undefined: that it did not take place. */
  async do(
    client: number,
    asked: Call,
    act: () => Promise<Answer | null | undefined>,
  ): Promise<Answer | null> {
    const call = now();
    const out = await act();
    if (out !== undefined) this.operations.push({ client, call, return: now(), in: asked, out });
    // Where there is no database everything is unknown.
    if (out == null) await this.world.up();
    return out ?? null;
  }

  rest(ms: number): Promise<void> {
    return wait(this.chance.between(0, ms));
  }

  /** So many clients at once. */
  async crowd(clients: number, play: (client: number) => Promise<void>): Promise<void> {
    await Promise.all(Array.from({ length: clients }, (_, client) => play(client)));
  }

  /**
   * A write of its own, repeated under its Idempotency-Key for a while if there is no answer: all of that is one
   * operation.
   */
  async write(method: "POST" | "PUT", path: string, asking: Asking): Promise<Told | null> {
    const idempotencyKey = randomUUID();
    for (let tries = this.chance.between(1, 4); tries > 0; tries--) {
      const told = await this.world.ask(method, path, { ...asking, idempotencyKey });
      if (told !== null && told.body.code !== "idempotency_in_progress") return told;
      await this.world.up();
      await this.rest(50);
    }
    return null;
  }

  /**
   * A pipeline's transaction, of any length; it may come to nothing. Null: it is not known whether it was committed.
   * @returns the delivery, or the SQLSTATE of the service's refusal
   */
  async publishBySql(
    accountId: string,
    text: string,
    {
      heldMs = 20,
      cell = "source" as CellName,
      level = "read committed",
      /** Told just before the commit. */
      onCommit = () => {},
    } = {},
  ): Promise<{ readonly delivery: string } | { readonly refused: string } | null | undefined> {
    let client: pg.PoolClient | null = null;
    try {
      client = await this.world.pool(cell).connect();
      await client.query(`begin isolation level ${level}`);
      const { rows } = await client.query<{ id: string }>("select sealpost.publish_analysis($1, $2) as id", [
        accountId,
        text,
      ]);
      if (this.chance.isTrue(0.5)) await this.rest(heldMs);
      const isGivenUp = this.chance.isTrue(ROLLED_BACK);
      onCommit();
      await client.query(isGivenUp ? "rollback" : "commit");
      client.release();
      return isGivenUp ? undefined : { delivery: rows[0]!.id };
    } catch (error) {
      client?.release(true);
      const code = error instanceof pg.DatabaseError ? error.code : undefined;
      return code?.startsWith("SP") ? { refused: code } : null;
    }
  }

  /** Prepares something, however often the database is away meanwhile. */
  async prepare<T>(make: () => Promise<T | null>): Promise<T> {
    for (let tries = 0; ; tries++) {
      const made = await make().catch((error: unknown) => {
        if (tries > 50) throw error;
        return null;
      });
      if (made !== null) return made;
      await this.world.up();
      await wait(100);
    }
  }

  done(): History {
    return { model: this.model, name: this.name, operations: this.operations };
  }
}

/** What no client expects: the harness has a fault, or the service a grave one. */
export function unexpected(told: Told): Error {
  return new Error(`${told.status} ${told.text.slice(0, 1_000)}`);
}
