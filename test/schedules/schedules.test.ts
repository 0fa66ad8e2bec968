// The short form of `npm run schedules`.
import { test } from "vitest";
import { patience } from "../support/time-limits.ts";
import { type PartName, playSchedules, SHARES } from "./schedules.ts";

const RUNS = 2_000;

test.each(Object.entries(SHARES))(
  "%s does what it must, whatever settles first",
  async (part, share) => {
    await playSchedules(part as PartName, RUNS * share, 1);
  },
  patience(30_000),
);
