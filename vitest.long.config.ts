// npm run test:long: what npm test is better off without, for every night and for changes of these parts.
// - *.long.test.ts: how many statements a request or a delivery costs, and the words of the Dockerfile and
//   compose.yaml. They break with changes that break nothing for anybody.
// - The memory that a thousand hostile receivers cost a dispatcher.
// - The fuzz tests of the API, with 300 requests for each operation instead of a few dozen.
// It needs what npm test needs, and says at its start how long it takes.
import { defineConfig } from "vitest/config";
import config from "./vitest.config.ts";

export default defineConfig({
  test: {
    ...config.test,
    include: ["test/**/*.long.test.ts", "test/{api,operations}/fuzz.test.ts"],
    exclude: [],
    provide: { suite: { minutes: 1.5, cores: 2 }, fuzzRuns: 300, moveHistories: 2 },
  },
});
