import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["test/**/*.test.ts"],
    // Ended in the reverse order: what fails the run comes last.
    globalSetup: ["test/support/output-watch.ts", "test/support/database-setup.ts"],
    exclude: ["test/faults/long/**", "test/bench/**"],
    // Two cores: more workers than that only make timing tests lie.
    maxWorkers: 2,
    testTimeout: 30_000,
    hookTimeout: 60_000,
  },
});
