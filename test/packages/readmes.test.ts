import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { WEBHOOK_VERIFICATION_ERROR_CODES, WebhookVerificationError } from "../../src/signing/index.ts";

const read = (path: string) => readFileSync(new URL(`../../${path}`, import.meta.url), "utf8");
const { version } = JSON.parse(read("package.json"));

const packages = [
  { name: "python", shows: 2, without: ["web_crypto_missing"] },
  { name: "go", shows: 1, without: ["web_crypto_missing", "body_already_parsed"] },
].map((one) => ({ ...one, readme: read(`packages/${one.name}/README.md`) }));

test.each(packages)("the README for $name shows code as it is tested", ({ readme, shows }) => {
  const blocks = [...readme.matchAll(/^<!-- (\S+) -->\n```\w+\n(.*?)\n```$/gms)];
  expect(blocks).toHaveLength(shows);
  for (const [, path = "", text] of blocks) expect(text, path).toBe(read(path).trimEnd());
});

test.each(packages)("the README for $name lists every code with the status to answer", (one) => {
  for (const code of WEBHOOK_VERIFICATION_ERROR_CODES) {
    const row = one.readme.split("\n").find((line) => line.startsWith("|") && line.includes(`\`${code}\``));
    if (one.without.includes(code)) expect(row).toBeUndefined();
    else
      expect(row, code).toMatch(new RegExp(`\\| ${new WebhookVerificationError(code, "").statusCode} \\|$`));
  }
});

test("all packages have the service's version, and so have the archives that documents name", () => {
  expect(read("packages/python/pyproject.toml")).toMatch(new RegExp(`^version = "${version}"`, "m"));
  const documents = [
    ...packages.map(({ readme }) => readme),
    read("docs/receivers.md"),
    read("src/signing/README.md"),
  ];
  const archives = documents.flatMap((text) => [
    ...text.matchAll(/sealpost[_-]receiver-(?:go-)?(\d[\d.]*\d)/g),
  ]);
  expect(archives.length).toBeGreaterThan(6);
  expect(new Set(archives.map(([, named]) => named))).toEqual(new Set([version]));
});
