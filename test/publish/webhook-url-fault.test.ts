import { readFileSync } from "node:fs";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { REFUSED_IPV4_RANGES } from "../../src/egress/rules/address.ts";
import { PRIVATE_NAMES, parseUnsafeAllowedTargets } from "../../src/egress/rules/host.ts";
import { judgeTargetUrl } from "../../src/egress/rules/target-url.ts";
import { openDatabase } from "../support/open.ts";

type Case = { url: string; verdict: "allow" | "refuse"; category: string };

const CASES = JSON.parse(
  readFileSync(new URL("../fixtures/target-urls.json", import.meta.url), "utf8"),
) as Case[];

const database = await openDatabase();

async function faults(urls: readonly string[], unsafe: readonly string[] = []): Promise<(string | null)[]> {
  const { rows } = await database.pool.query<{ fault: string | null }>(
    `select sealpost.webhook_url_fault(url, $2) as fault
     from unnest($1::text[]) with ordinality as u (url, n) order by n`,
    [urls, unsafe],
  );
  return rows.map((row) => row.fault);
}

describe("what SQL says of a webhook_url", () => {
  // PostgreSQL's text holds no NUL, so such a URL never gets as far as our function.
  const cases = CASES.filter(({ url }) => !url.includes("\0"));

  it("never refuses what the full rules allow", async () => {
    const allowed = cases.filter(({ url }) => judgeTargetUrl(url).verdict === "allow");
    expect(allowed.length).toBeGreaterThan(50);
    expect(await faults(allowed.map(({ url }) => url))).toEqual(allowed.map(() => null));
  });

  it("refuses the names that can never be public, and what is under them, as the full rules do", async () => {
    const names = [...PRIVATE_NAMES].flatMap((name) => [name, `x.${name}`, `x.y.${name}`]);
    const urls = names.map((name) => `https://${name}/`);
    expect(urls.filter((url) => judgeTargetUrl(url).verdict === "allow")).toEqual([]);
    const found = await faults(urls);
    expect(urls.filter((_, at) => found[at] === null)).toEqual([]);
  });

  it("refuses each range of IPv4 that the full rules refuse", async () => {
    const urls = REFUSED_IPV4_RANGES.map(({ cidr }) => `https://${cidr.split("/")[0]}/`);
    const found = await faults(urls);
    expect(urls.filter((_, at) => found[at] === null)).toEqual([]);
  });

  it("allows their neighbours, as the full rules do", async () => {
    const names = [...PRIVATE_NAMES].flatMap((name) => [`${name}.com`, `${name}.example.com`]);
    const urls = names.map((name) => `https://${name}/`);
    expect(urls.filter((url) => judgeTargetUrl(url).verdict === "refuse")).toEqual([]);
    expect((await faults(urls)).filter((fault) => fault !== null)).toEqual([]);
  });

  it.each(["ipv4-plain", "backslash", "fragment-query", "scheme", "userinfo"])(
    "refuses all that is plainly refused: %s",
    async (category) => {
      const refused = cases.filter((one) => one.category === category && one.verdict === "refuse");
      expect(refused.length).toBeGreaterThan(0);
      const found = await faults(refused.map(({ url }) => url));
      expect(refused.filter((_, i) => found[i] === null).map(({ url }) => url)).toEqual([]);
    },
  );

  it("agrees in that for any host, port and path one can think of", async () => {
    const label = fc.stringMatching(/^[a-zA-Z0-9_-]{1,12}$/);
    const octet = fc.oneof(
      fc.integer({ min: 0, max: 300 }).map(String),
      fc.constantFrom("010", "0x7f", "08"),
    );
    const host = fc.oneof(
      fc.array(label, { minLength: 1, maxLength: 4 }).map((labels) => labels.join(".")),
      fc.array(octet, { minLength: 1, maxLength: 5 }).map((octets) => octets.join(".")),
      fc.integer({ min: 0, max: 2 ** 32 - 1 }).map(String),
      fc.integer({ min: 0, max: 2 ** 32 - 1 }).map((n) => `0x${n.toString(16)}`),
      fc.ipV6().map((address) => `[${address}]`),
      fc.constantFrom("[2606:4700:4700::1111]", "bücher.example.com", "例え.jp", "1。1。1。1", "%31.1.1.1"),
      fc.tuple(label, fc.constantFrom(...PRIVATE_NAMES)).map((labels) => labels.join(".")),
    );
    const port = fc.oneof(
      fc.constant(""),
      fc.integer({ min: 0, max: 70_000 }).map((n) => `:${n}`),
      fc.constantFrom(":0443", ":0000000443", ":000000000000443"),
    );
    const rest = fc.oneof(
      fc.constant(""),
      fc.webPath(),
      fc.constantFrom("/@x", "?a=@b", "/#", "/%00", "/\\x"),
    );
    const url = fc
      .tuple(fc.constantFrom("https://", "HTTPS://", "http://"), host, port, rest)
      .map((p) => p.join(""));
    await fc.assert(
      fc.asyncProperty(fc.array(url, { minLength: 50, maxLength: 50 }), async (urls) => {
        const found = await faults(urls);
        for (const [i, text] of urls.entries()) {
          if (judgeTargetUrl(text).verdict === "allow") expect(found[i], text).toBeNull();
        }
      }),
      { numRuns: 100 },
    );
  });

  it("lifts its rules for exactly what is allowed unsafely", async () => {
    const unsafe = ["localhost:8443", "*.many.localhost:9000", "127.0.0.1:443"];
    const urls = [
      "https://localhost:8443/x",
      "https://LOCALHOST:08443",
      "https://a.many.localhost:9000/",
      "https://127.0.0.1/",
      "https://localhost:8444/",
      "https://many.localhost:9000/",
      "https://xmany.localhost:9000/",
      "http://localhost:8443/",
      "https://u@localhost:8443/",
    ];
    const found = await faults(urls, unsafe);
    expect(found.map((fault) => fault === null)).toEqual([
      true,
      true,
      true,
      true,
      false,
      false,
      false,
      false,
      false,
    ]);
    const rules = { unsafeAllowedTargets: parseUnsafeAllowedTargets(unsafe) };
    expect(urls.map((url) => judgeTargetUrl(url, rules).verdict === "allow")).toEqual(
      found.map((f) => f === null),
    );
  });
});
