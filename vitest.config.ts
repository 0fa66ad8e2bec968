// One configuration; its mode says which tests run. Durations are those last measured on two idle cores.
import { globSync, readFileSync } from "node:fs";
import { defineConfig } from "vitest/config";

/** The second tier: needs more programs than Node and npm, or seconds that a change does not always have. */
const SLOW = "test/**/*.slow.test.ts";
/** A night's: how many statements a request or a delivery costs, what a thousand hostile receivers cost. */
const LONG = "test/**/*.long.test.ts";
/** Needs a container engine, and an image that .ci/image has built. */
const ENGINE = "test/**/*.engine.test.ts";
/** Tests of the second tier in files that have fast ones, too. */
const TAG = "slow";

const modes: Readonly<Record<string, Mode>> = {
  /** `npm test`: on a machine with Node and npm, and nothing else. */
  test: { minutes: 3, exclude: [SLOW, LONG, ENGINE], tagsFilter: [`!${TAG}`] },
  /** `npm run test:all`: every test, with every program of test/support/programs.ts. */
  all: { minutes: 20, exclude: [LONG, ENGINE], needsPrograms: true },
  /** Part of `.ci/run`, which has run `npm test` as an ordinary user: the files with tests that this leaves out. */
  get slow() {
    return { minutes: 18, include: [SLOW, ...filesLeftOutInPart()], needsPrograms: true };
  },
  /** `npm run test:long`: beside the long files the fuzz tests, with more requests for each operation. */
  long: { minutes: 1.5, include: [LONG, "test/{http,api}/fuzz*.test.ts"], fuzzRuns: 300 },
  /** Part of `.ci/image`: what runs in containers, and the upgrade to it. */
  image: { minutes: 2, include: [ENGINE, "test/upgrade/upgrade.slow.test.ts"] },
  /** `npm run moves`: 100 random histories of accounts that move under load, where `npm run test:all` plays two. */
  moves: {
    minutes: 10,
    include: ["test/cells/histories.slow.test.ts"],
    moveHistories: Number(process.env.MOVE_HISTORIES ?? 100),
  },
  /** Part of `npm run check`: how the repository is written. */
  tidy: { minutes: 0.1, include: ["test/tidy.test.ts"], isBare: true },
};

type Mode = {
  readonly minutes: number;
  readonly include?: readonly string[];
  readonly exclude?: readonly string[];
  readonly tagsFilter?: string[];
  /** Requests that a fuzz test makes of each operation. */
  readonly fuzzRuns?: number;
  readonly moveHistories?: number;
  readonly needsPrograms?: boolean;
  /** Without a database and all else that tests share. */
  readonly isBare?: boolean;
};

function filesLeftOutInPart(): readonly string[] {
  const leftOut = new RegExp(`tags: .*"${TAG}"|isRoot`);
  return globSync("test/**/*.test.ts").filter((path) => leftOut.test(readFileSync(path, "utf8")));
}

export default defineConfig(({ mode }) => {
  const chosen = modes[mode];
  if (!chosen) throw new Error(`There is no mode "${mode}". Modes: ${Object.keys(modes).join(", ")}.`);
  const { minutes, fuzzRuns = 45, moveHistories = 2, needsPrograms = false, isBare = false } = chosen;
  // Ended in the reverse order: what fails the run comes last.
  const setups = [
    ...(needsPrograms ? ["test/support/programs.ts"] : []),
    "test/support/output-watch.ts",
    "test/support/run-folder.ts",
    "test/support/suite-setup.ts",
    "test/support/database-setup.ts",
  ];
  return {
    test: {
      include: [...(chosen.include ?? ["test/**/*.test.ts"])],
      exclude: ["test/bench/**", ...(chosen.exclude ?? [])],
      tags: [{ name: TAG, description: "of the second tier: npm run test:all" }],
      ...(chosen.tagsFilter && { tagsFilter: chosen.tagsFilter }),
      globalSetup: isBare ? [] : setups,
      setupFiles: isBare ? [] : ["test/support/patient-tests.ts"],
      provide: { suite: { mode, minutes, cores: 2 }, fuzzRuns, moveHistories },
      // Half of a file's time would go into loading what the last one had: modules are shared, state is the files' own.
      isolate: false,
      // For two cores: a third worker has time for tests that wait, and more would only make timing tests lie.
      maxWorkers: isBare ? 1 : 3,
    },
  };
});
