// Two cells, and an account with an endpoint in the first, anew for each test.
import { afterAll, beforeAll, beforeEach } from "vitest";
import { createTestCells, type TestCells } from "../support/cells.ts";
import { createTestAccount } from "../support/installation.ts";

export let cells: TestCells;
export let accountId: string;

/** For every test of the file that calls it. */
export function useMovableAccount(): void {
  beforeAll(async () => {
    cells = await createTestCells();
  });
  afterAll(() => cells.drop());
  beforeEach(async () => {
    ({ accountId } = await createTestAccount(cells.source, "https://hooks.example.com/"));
  });
}
