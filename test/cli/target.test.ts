import { describe, expect, test } from "vitest";
import { runSealpost } from "../support/command.ts";

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

test("no URL is no mistake", async () => {
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

describe("a mistake ends with 2 and one sentence", () => {
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
    const { code, stderr } = await check("[]", { PORT: "x", RETRY_ATTEMPTS: "9" });
    expect(code).toBe(2);
    expect(stderr.split("\n").map((line) => line.split(" ")[0])).toEqual(["PORT", "RETRY_ATTEMPTS", ""]);
  });

  test("a target that no URL is spelled like", async () => {
    const { code, stderr } = await check("[]", { UNSAFE_ALLOWED_TARGETS: "127.1:8443" });
    expect(code).toBe(2);
    expect(stderr).toMatch(/^UNSAFE_ALLOWED_TARGETS [^\n]*"127\.1:8443"[^\n]*\n$/);
  });
});
