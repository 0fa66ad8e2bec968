// Runs before each test file: sets the limits that end a hanging test.
import { vi } from "vitest";
import { patience } from "./time-limits.ts";

vi.setConfig({
  testTimeout: patience(60_000),
  hookTimeout: patience(120_000),
  expect: { poll: { timeout: patience(20_000) } },
});
