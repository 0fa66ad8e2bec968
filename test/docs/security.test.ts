import { existsSync, readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";

const fileOf = (name: string) => new URL(`../../${name}`, import.meta.url);
const document = readFileSync(fileOf("docs/security.md"), "utf8");

/** Rows of the tables of promises, with the tests that they name. */
const promises = [...document.matchAll(/^\| (.+) \| (.+) \| (`test\/.+) \|$/gm)].map(
  ([, promise = "", against = "", tests = ""]) => ({ promise, against, tests: testsIn(tests) }),
);

/** “`a.test.ts` “title”, “title”, `b.test.ts`” → a file with two titles, and one with none. */
function testsIn(cell: string) {
  return cell.split(/(?=`test\/)/).map((part) => ({
    path: /^`([^`]+)`/.exec(part)?.[1] ?? part,
    titles: [...part.matchAll(/“([^”]+)”/g)].map(([, title = ""]) => title),
  }));
}

describe("the document", () => {
  test("makes promises, each once", () => {
    expect(promises.length).toBeGreaterThan(25);
    expect(new Set(promises.map(({ promise }) => promise)).size).toBe(promises.length);
  });

  test.each(promises)("names tests that are there: $promise", ({ tests }) => {
    expect(tests.length).toBeGreaterThan(0);
    for (const { path, titles } of tests) {
      expect(existsSync(fileOf(path)), path).toBe(true);
      const text = readFileSync(fileOf(path), "utf8");
      for (const title of titles) expect(text, `“${title}” in ${path}`).toContain(title);
    }
  });

  test.each(promises)("names a test that npm test or npm run test:all runs: $promise", ({ tests }) => {
    expect(tests.some(({ path }) => !path.endsWith(".long.test.ts"))).toBe(true);
  });

  // What hostile reviews have broken at some time, each with the file that would notice if it broke again.
  test.each([
    ["search path", "Nothing in `public`", "test/base/database/search-path.slow.test.ts"],
    ["slow readers", "Slow readers take", "test/app/slow-readers.slow.test.ts"],
    ["a flood of host names", "A flood of host names", "test/delivery/silent-lanes.test.ts"],
    ["bulk replays", "Bulk replays have a budget", "test/log/replay-shares.test.ts"],
    ["slow requests to the API", "slow requests to the API", "test/api/fair-requests.test.ts"],
    ["colliding lanes", "No account shares a lane", "test/delivery/colliding-lanes.test.ts"],
    ["a proxy's refusal", "an egress proxy refuses", "test/delivery/egress-proxy.slow.test.ts"],
    ["packages that are not pinned", "`npm ci` takes no package", "test/tidy/lock-file.ts"],
    ["locks", "No role without rights holds a lock", "test/base/database/locks.test.ts"],
    ["a port in X-Forwarded-For", "an address's port", "test/http/rate-limits.test.ts"],
    ["costly texts", "A text costs PostgreSQL little", "test/publish/read-analysis.test.ts"],
    ["secrets in arguments", "No command needs a secret", "test/app/cli/signature.test.ts"],
    ["two Host headers", "two Host headers", "test/http/client-errors.test.ts"],
    ["another protocol's status line", "well-formed HTTP/1 answer", "test/delivery/hostile.slow.test.ts"],
    ["private names", "names that can never be public", "test/publish/webhook-url-fault.test.ts"],
  ])("has a wall against %s", (_what, words, path) => {
    const found = promises.filter(({ promise }) => promise.includes(words));
    expect(found).toHaveLength(1);
    expect(found[0]!.tests.map((one) => one.path)).toContain(path);
  });

  test("says what is left out, with its figure", () => {
    const figures = /endpoint (\d+ → \d+) µs, page of 50 (\d+ → \d+) µs/.exec(document)!;
    const measured = readFileSync(fileOf("test/bench/README.md"), "utf8");
    const row = measured.split("\n").find((line) => line.startsWith("| row-level security"));
    expect(row).toContain(`endpoint ${figures[1]} µs`);
    expect(row).toContain(`page of 50 ${figures[2]}`);
  });

  test("leads somewhere", () => {
    for (const [, target = "", anchor] of document.matchAll(/\]\(([^)#]+)(?:#([^)]+))?\)/g)) {
      const url = new URL(target, fileOf("docs/security.md"));
      expect(existsSync(url), target).toBe(true);
      if (anchor === undefined) continue;
      const titles = [...readFileSync(url, "utf8").matchAll(/^#+ (.+)$/gm)].map(([, title = ""]) =>
        title
          .toLowerCase()
          .replace(/[^a-z0-9 -]/g, "")
          .replaceAll(" ", "-"),
      );
      expect(titles).toContain(anchor);
    }
  });
});
