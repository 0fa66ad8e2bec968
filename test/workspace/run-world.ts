// An API in which tests run workflows, whose steps they take themselves or have a runner take.
import { join } from "node:path";
import { afterAll, beforeAll } from "vitest";
import type { ObjectStore } from "../../src/workspace/objects/object-store.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { type Json, startTestApi, type TestApi } from "../support/sealpost-api.ts";
import { documentsOf } from "./support/documents.ts";
import { openFileStore } from "./support/object-listing.ts";
import { runsOf, type Stepping } from "./support/runs.ts";

export let database: TestDatabase;
export let api: TestApi;
export let runs: ReturnType<typeof runsOf>;
export let documents: ReturnType<typeof documentsOf>;
/** The API's. */
export let objects: ObjectStore;
export let space: Json;

/** For every test of the file that calls it. */
export function useRuns(): void {
  beforeAll(async () => {
    database = await createTestDatabase();
    api = await startTestApi(database);
    runs = runsOf(api.ask);
    documents = documentsOf(api.ask);
    space = await documents.newSpace();
    objects = await openFileStore(join(api.stateDir, "objects"));
  });
  afterAll(async () => {
    await api.close();
    await database.drop();
  });
}

export const stepping = (): Stepping => ({ pool: database.pool, objects });
