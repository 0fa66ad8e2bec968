// The long form: run-kills.long.test.ts.
import { test } from "vitest";
import { patience } from "../support/time-limits.ts";
import { expectRunsToSurvive } from "./support/killed-runs.ts";

test(
  "20 runs end once each, however often everything is killed",
  async () => {
    await expectRunsToSurvive({ runs: 20, liveMs: 100, kills: 3, endsLeases: true });
  },
  patience(120_000),
);
