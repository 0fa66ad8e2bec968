import { defineConfig } from "vitest/config";

export default defineConfig({
  test: { include: ["test/tidy.test.ts"], maxWorkers: 1 },
});
