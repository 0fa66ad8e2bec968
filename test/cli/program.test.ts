import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { runSealpost } from "../support/command.ts";
import { runAtTerminal } from "../support/terminal.ts";

describe("on a terminal", () => {
  test("the output is text", async () => {
    const { text } = await runAtTerminal(["target", "check"], '["https://example.com","http://example.com"]');
    expect(text).toMatch(
      /^allow {3}https:\/\/example\.com\nrefuse {2}http:\/\/example\.com\n {8}url_not_https: /,
    );
  });

  test("--json gives JSON", async () => {
    const { text } = await runAtTerminal(["target", "check", "--json"], "[]");
    expect(text).toBe("[]\n");
  });

  test("a signature that is not valid is explained", async () => {
    const { text, code } = await runAtTerminal(["signature", "verify", "--header", ""], "", {
      SEALPOST_SECRET: "x",
    });
    expect(text).toMatch(/^Not valid\. The request has no extract-signature header\./);
    expect(code).toBe(1);
  });
});

describe("the command line", () => {
  test("without a command shows the help and ends with 2", async () => {
    const { code, stdout, stderr } = await runSealpost([]);
    expect({ code, stdout }).toEqual({ code: 2, stdout: "" });
    expect(stderr).toMatch(/^Usage: sealpost/);
  });

  test("shows help when asked and ends with 0", async () => {
    const { code, stdout, stderr } = await runSealpost(["signature", "verify", "--help"]);
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    expect(stdout).toMatch(/^Usage: sealpost signature verify/);
  });

  test.each(["--version", "-V"])("%s prints the version and ends with 0", async (option) => {
    const manifest = readFileSync(new URL("../../package.json", import.meta.url), "utf8");
    const { code, stdout, stderr } = await runSealpost([option]);
    expect({ code, stdout, stderr }).toEqual({
      code: 0,
      stdout: `${JSON.parse(manifest).version}\n`,
      stderr: "",
    });
  });

  test("names the command that was probably meant", async () => {
    const { code, stderr } = await runSealpost(["signatur"]);
    expect({ code, stderr }).toEqual({
      code: 2,
      stderr: "Unknown command 'signatur' (Did you mean signature?)\n",
    });
  });

  test.each([
    [["bogus"], "Unknown command 'bogus'. See `sealpost --help`."],
    [["serve", "--port", "9"], "Unknown option '--port'. See `sealpost serve --help`."],
    [["key", "revoke"], "Missing required argument 'key-id'. See `sealpost key revoke --help`."],
    [
      ["key", "create", "--name", "key"],
      "Required option '--scopes <a,b>' not specified. See `sealpost key create --help`.",
    ],
    [
      ["secret", "rotate", "--overlap", "8d"],
      "Option '--overlap <time>' is invalid. It must be a duration such as 90d, 12h, 30m or 45s, at most 7d.",
    ],
    [["dispatch", "--alone", "x"], "Option '--alone <delivery-ids...>' is invalid. It must be an id"],
  ])("says what to do about %j", async (args, sentence) => {
    const { text, code } = await runAtTerminal(args, "");
    expect(code).toBe(2);
    expect(text).toContain(sentence);
  });

  test("help marks what is required", async () => {
    const { text } = await runAtTerminal(["account", "create", "--help"], "");
    expect(text).toContain("display name (required)");
  });

  test.each([
    ["an unknown option", ["migrate", "--secrt=whsec_x"], "Unknown option '--secrt'"],
    ["an argument", ["key", "revoke", "whsec_x"], "Invalid value for argument 'key-id'. It must be an id"],
    [
      "an option",
      ["endpoint", "set", "--account", "whsec_x"],
      "Option '--account <id>' is invalid. It must be an id",
    ],
  ])("does not repeat what may be a secret in the place of %s", async (_, args, sentence) => {
    const { code, stderr } = await runSealpost(args);
    expect(code).toBe(2);
    expect(stderr).toContain(sentence);
    expect(stderr).not.toContain("whsec_x");
  });
});
