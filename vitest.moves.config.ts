// npm run moves: 100 random histories of accounts that move under load, where npm test plays 2. For changes of moving,
// of publishing and of what is kept of an account.
import { defineConfig } from "vitest/config";
import config from "./vitest.config.ts";

export default defineConfig({
  test: {
    ...config.test,
    include: ["test/moves/histories.test.ts"],
    provide: {
      suite: { minutes: 10, cores: 2 },
      fuzzRuns: 0,
      moveHistories: Number(process.env.MOVE_HISTORIES ?? 100),
    },
  },
});
