import { test } from "vitest";
import { patience } from "../support/time-limits.ts";
import { expectOneRunEach } from "./support/killed-schedules.ts";

test(
  "10,000 workflows that are due at once have one run each, however often dispatchers are killed",
  () => expectOneRunEach(400, 6),
  patience(300_000),
);
