// The long form: schedule-kills.long.test.ts.
import { test } from "vitest";
import { patience } from "../support/time-limits.ts";
import { expectOneRunEach } from "./support/killed-schedules.ts";

test(
  "1,000 workflows that are due at once have one run each, however often dispatchers are killed",
  () => expectOneRunEach(40, 3),
  patience(120_000),
);
