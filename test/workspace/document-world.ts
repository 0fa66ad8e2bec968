// An API in which tests create documents, upload and download them.
import { afterAll, beforeAll } from "vitest";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { type Json, startTestApi, type TestApi } from "../support/sealpost-api.ts";
import { documentsOf } from "./support/documents.ts";

export let database: TestDatabase;
export let api: TestApi;
export let documents: ReturnType<typeof documentsOf>;
export let space: Json;

/** For every test of the file that calls it. */
export function useDocuments(): void {
  beforeAll(async () => {
    database = await createTestDatabase();
    api = await startTestApi(database);
    documents = documentsOf(api.ask);
    space = await documents.newSpace();
  });
  afterAll(async () => {
    await api.close();
    await database.drop();
  });
}
