import { globSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { WEBHOOK_VERIFICATION_ERROR_CODES, WebhookVerificationError } from "../../src/signing/index.ts";

const REPOSITORY = new URL("../../", import.meta.url);
const readme = readFileSync(new URL("src/signing/README.md", REPOSITORY), "utf8");

const shown = new Map(
  [...readme.matchAll(/^<!-- (\S+) -->\n```\w+\n(.*?)\n```$/gms)].map(([, path, text]) => [path!, text!]),
);

/** As a receiver writes it, who has the package and not this repository. */
function asInAProject(source: string): string {
  return source
    .replaceAll('"../../../src/signing/index.ts"', '"sealpost-receiver"')
    .replaceAll('"../../../src/signing/web.ts"', '"sealpost-receiver/web"')
    .trimEnd();
}

const tested = globSync(
  ["test/recipes/*/recipe.*", "test/recipes/*/{pull,receiver}.*", "test/signing/examples/*.ts"],
  {
    cwd: fileURLToPath(REPOSITORY),
  },
);

test("shows every recipe and example", () => {
  expect(tested.length).toBeGreaterThanOrEqual(12);
  expect([...shown.keys()].sort()).toEqual(tested.sort());
});

test.each(tested)("shows %s as it is tested", (path) => {
  expect(shown.get(path)).toBe(asInAProject(readFileSync(new URL(path, REPOSITORY), "utf8")));
});

test("lists every error code with the status to answer", () => {
  for (const code of WEBHOOK_VERIFICATION_ERROR_CODES) {
    const row = readme.split("\n").find((line) => line.startsWith("|") && line.includes(`\`${code}\``));
    expect(row, code).toMatch(new RegExp(`\\| ${new WebhookVerificationError(code, "").statusCode} \\|$`));
  }
});
