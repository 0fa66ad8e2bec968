// Steps of movers, and what is left when all is moved and removed.
import { join } from "node:path";
import type { Pool } from "pg";
import { advanceMove, type Moving, removeLoose } from "../../../src/workspace/moving/mover.ts";
import type { ObjectStore } from "../../../src/workspace/objects/object-store.ts";
import { claimMove } from "../../../src/workspace/store/moves.ts";
import { createTestDatabase, type TestDatabase } from "../../support/database.ts";
import { startTestApi, type TestApi, type TestWorld } from "../../support/sealpost-api.ts";
import { documentsOf } from "./documents.ts";
import { keysIn, openFileStore } from "./object-listing.ts";

const NEVER = new AbortController().signal;
const LEASE_MS = 30_000;
const FIRST = "00000000-0000-0000-0000-000000000000";

/** An API, and the store that it keeps documents in, where nothing is moved or removed but by a test. */
export type StillApi = {
  readonly database: TestDatabase;
  readonly api: TestApi;
  readonly documents: ReturnType<typeof documentsOf>;
  readonly objects: ObjectStore;
  close(): Promise<void>;
};

export async function startStillApi(world: TestWorld = {}): Promise<StillApi> {
  const database = await createTestDatabase();
  const api = await startTestApi(database, {}, world);
  const objects = await openFileStore(join(api.stateDir, "objects"));
  const close = async () => {
    await api.close();
    await database.drop();
  };
  return { database, api, documents: documentsOf(api.ask), objects, close };
}

export type MoveHooks = Partial<Pick<Moving, "keptMs" | "onLost" | "onUncopied" | "signal">>;

/** One step of a mover. False: there was nothing to do. */
export async function moveOnce(pool: Pool, objects: ObjectStore, hooks: MoveHooks = {}): Promise<boolean> {
  const move = await claimMove(pool, FIRST, LEASE_MS);
  if (move === null) return false;
  const onLost = ({ documentId }: { documentId: string }) => {
    throw new Error(`The object of ${documentId} is lost.`);
  };
  const onUncopied = (error: Error) => {
    throw error;
  };
  await advanceMove({ pool, objects, keptMs: 0, onLost, onUncopied, signal: NEVER, ...hooks }, move);
  return true;
}

/** As if the steps of killed movers were over. */
export async function endLeases(pool: Pool): Promise<void> {
  await pool.query("update workspace.moves set next_at = now() where next_at > now()");
}

/** As if what is kept for a while were kept no longer. `reserved`: also what somebody may still bring to a document. */
export async function endKeeping(pool: Pool, reserved: boolean): Promise<void> {
  await pool.query("update workspace.loose_objects set remove_at = now() where $1 or not is_reserved", [
    reserved,
  ]);
}

export async function removeAll(pool: Pool, objects: ObjectStore): Promise<void> {
  while ((await removeLoose({ pool, objects }, FIRST, NEVER)) !== null);
}

/** Moves and removes until nothing is left to do. Nobody uploads meanwhile. */
export async function settle(pool: Pool, objects: ObjectStore): Promise<void> {
  await endLeases(pool);
  while (await moveOnce(pool, objects));
  for (let round = 0; round < 2; round++) {
    await endKeeping(pool, true);
    await removeAll(pool, objects);
  }
}

export async function keysInStore(objects: ObjectStore): Promise<string[]> {
  return await keysIn(objects, "spaces/");
}

/** Of documents with content. */
export async function keysInRows(pool: Pool): Promise<string[]> {
  const { rows } = await pool.query<{ storage_key: string }>(
    "select storage_key from workspace.documents where has_content",
  );
  return rows.map((row) => row.storage_key).sort();
}
