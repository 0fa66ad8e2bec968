import { test } from "vitest";
import { patience } from "../support/time-limits.ts";
import { expectRunsToSurvive } from "./support/killed-runs.ts";

test(
  "200 runs end once each while everything is killed every second",
  async () => {
    await expectRunsToSurvive({ runs: 200, liveMs: 1_000, kills: 120, endsLeases: false });
  },
  patience(600_000),
);
