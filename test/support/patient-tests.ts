// Run before each test file: the limits that end a test that hangs.
import { vi } from "vitest";
import { patience } from "./time-limits.ts";

vi.setConfig({
  testTimeout: patience(60_000),
  hookTimeout: patience(120_000),
  expect: { poll: { timeout: patience(20_000) } },
});
