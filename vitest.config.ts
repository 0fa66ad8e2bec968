import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["test/**/*.test.ts"],
    // Ended in the reverse order: what fails the run comes last.
    globalSetup: [
      "test/support/output-watch.ts",
      "test/support/compile-cache.ts",
      "test/support/slowness-setup.ts",
      "test/support/database-setup.ts",
    ],
    setupFiles: ["test/support/patient-tests.ts"],
    exclude: ["test/**/*.long.test.ts", "test/bench/**"],
    provide: {
      // As last measured on an otherwise idle machine.
      suite: { minutes: 21, cores: 2 },
      fuzzRuns: 45,
      moveHistories: 2,
    },
    // For two cores: a third worker has time for tests that wait, and more would only make timing tests lie.
    maxWorkers: 3,
  },
});
