import { expect, it } from "vitest";
import { openForDispatch } from "../support/open.ts";
import { patience } from "../support/time-limits.ts";
import { SqlTwin } from "./sql-twin.ts";

/** `npm run faults` plays 2,000 of them. */
const SEEDS = 200;

const { pool } = await openForDispatch();

it(
  `PostgreSQL answers and holds the same as the simulation, in ${SEEDS} histories, after every step`,
  async () => {
    const twin = await SqlTwin.open(pool);
    let operations = 0;
    for (let seed = 1; seed <= SEEDS; seed++) operations += await twin.play(seed);
    expect(operations).toBeGreaterThan(SEEDS * 10);
  },
  patience(120_000),
);
