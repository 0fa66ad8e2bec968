import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["test/**/*.test.ts"],
    // Ended in the reverse order: what fails the run comes last.
    globalSetup: ["test/support/output-watch.ts", "test/support/database-setup.ts"],
    exclude: ["test/**/*.long.test.ts", "test/faults/long/**", "test/bench/**"],
    // For two cores: a third worker has time for tests that wait, and more would only make timing tests lie.
    maxWorkers: 3,
    testTimeout: 30_000,
    hookTimeout: 60_000,
  },
});
