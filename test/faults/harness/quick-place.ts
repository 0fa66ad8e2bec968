import { afterAll } from "vitest";
import { Chance } from "../../simulation/chance.ts";
import { createTestDatabase, type TestDatabase } from "../../support/database.ts";
import type { Place } from "./scenario.ts";

/** The databases of a test run, and the same chance every time. To be called in the body of a test file. */
export function quickPlace(): Place {
  const databases: TestDatabase[] = [];
  afterAll(async () => {
    for (const database of databases) await database.drop();
  });
  return {
    scale: "quick",
    minutes: 0,
    chance: new Chance(1),
    newDatabase: async () => {
      const database = await createTestDatabase();
      databases.push(database);
      return database;
    },
  };
}
