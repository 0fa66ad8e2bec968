import { describe, expect, test } from "vitest";
import { runSealpost } from "../../support/command.ts";
import { startNameServer } from "../../support/name-server.ts";

function check(input: string | Uint8Array, env: Record<string, string> = {}, ...options: string[]) {
  return runSealpost(["target", "check", ...options], { input, env });
}

test("every URL gets its verdict, in the order of the input", async () => {
  const urls = ["HTTPS://Example.COM/hook", "https://127.0.0.1/", "http://example.com/", "https://1.1.1.1/"];
  const { code, stdout, stderr } = await check(JSON.stringify(urls));
  expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
  expect(JSON.parse(stdout)).toEqual([
    { url: urls[0], verdict: "allow", code: null, message: null, href: "https://example.com/hook" },
    { url: urls[1], verdict: "refuse", code: "address_not_public", message: expect.any(String), href: null },
    { url: urls[2], verdict: "refuse", code: "url_not_https", message: expect.any(String), href: null },
    { url: urls[3], verdict: "allow", code: null, message: null, href: "https://1.1.1.1/" },
  ]);
});

test("an empty list is valid", async () => {
  expect(await check("[]")).toEqual({ code: 0, stdout: "[]\n", stderr: "" });
});

test("what is allowed unsafely is allowed", async () => {
  const env = { UNSAFE_ALLOWED_TARGETS: "localhost:8443" };
  const { stdout } = await check('["https://localhost:8443/", "https://localhost:8444/"]', env);
  expect(JSON.parse(stdout).map((answer: { verdict: string }) => answer.verdict)).toEqual([
    "allow",
    "refuse",
  ]);
});

describe("--resolve", () => {
  test("judges the addresses too, as every connection does", async () => {
    const names = await startNameServer();
    names.script("public.example.com", [["1.1.1.1", "2606:4700::1111"]]);
    names.script("private.example.com", [["10.0.0.1"]]);
    names.script("mixed.example.com", [["1.1.1.1", "127.0.0.1"]]);
    names.script("own.example.com", [["8.8.8.8"]]);
    names.script("broken.example.com", ["servfail"]);
    const hosts = ["public", "private", "mixed", "own", "broken", "missing"];
    const urls = [
      ...hosts.map((host) => `https://${host}.example.com/`),
      "https://localhost/",
      "https://1.0.0.1/",
    ];
    const env = { TARGET_DNS_SERVERS: names.address, OWN_ADDRESSES: "8.8.8.0/24" };
    const { stdout } = await check(JSON.stringify(urls), env, "--resolve");
    await names.close();
    const answers: { url: string; code: string | null; href: string | null }[] = JSON.parse(stdout);
    expect(answers.map(({ url, code }) => [url, code])).toEqual([
      ["https://public.example.com/", null],
      ["https://private.example.com/", "target_not_public"],
      ["https://mixed.example.com/", "target_not_public"],
      ["https://own.example.com/", "target_not_public"],
      ["https://broken.example.com/", "dns_failed"],
      ["https://missing.example.com/", "dns_not_found"],
      ["https://localhost/", "name_not_public"],
      ["https://1.0.0.1/", null],
    ]);
    expect(names.queries.some((query) => query.name === "localhost")).toBe(false);
  });

  test("asks no name server without it", async () => {
    const names = await startNameServer();
    const env = { TARGET_DNS_SERVERS: names.address };
    const { stdout } = await check('["https://private.example.com/"]', env);
    await names.close();
    expect(JSON.parse(stdout)).toMatchObject([{ verdict: "allow" }]);
    expect(names.queries).toEqual([]);
  });
});

describe("a usage error ends with 2 and one sentence", () => {
  test.each([
    ["no JSON", "https://example.com"],
    ["nothing", ""],
    ["no array", '"https://example.com"'],
    ["not only strings", '["https://example.com", 1]'],
    ["too many", JSON.stringify(Array.from({ length: 10_001 }, () => ""))],
    ["not UTF-8", Buffer.from([0x5b, 0x22, 0xff, 0x22, 0x5d])],
  ])("%s", async (_, input) => {
    const { code, stdout, stderr } = await check(input);
    expect({ code, stdout }).toEqual({ code: 2, stdout: "" });
    expect(stderr).toBe(
      "Standard input must be a JSON array of at most 10000 strings in UTF-8, " +
        'such as ["https://example.com/hook"].\n',
    );
  });

  test("in the configuration, one sentence for each", async () => {
    const { code, stderr } = await check("[]", { PORT: "x", RETRY_WINDOW_SECONDS: "0" });
    expect(code).toBe(2);
    expect(stderr.split("\n").map((line) => line.split(" ")[0])).toEqual([
      "PORT",
      "RETRY_WINDOW_SECONDS",
      "",
    ]);
  });

  test("a target that no URL is spelled like", async () => {
    const { code, stderr } = await check("[]", { UNSAFE_ALLOWED_TARGETS: "127.1:8443" });
    expect(code).toBe(2);
    expect(stderr).toMatch(/^UNSAFE_ALLOWED_TARGETS [^\n]*"127\.1:8443"[^\n]*\n$/);
  });
});
