import { randomUUID } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { runSealpost } from "../../support/command.ts";
import { createTestDatabase } from "../../support/database.ts";
import { SECRETS_KEY } from "../../support/installation.ts";
import { OUTPUT_FOLDER_VARIABLE } from "../../support/output-watch.ts";
import { runProcess } from "../../support/sealpost-process.ts";

const isTerminal = true;

describe("on a terminal", () => {
  test("the output is text", async () => {
    const input = '["https://example.com","http://example.com"]';
    const { stdout } = await runSealpost(["target", "check"], { input, isTerminal });
    expect(stdout).toMatch(
      /^allow {3}https:\/\/example\.com\nrefuse {2}http:\/\/example\.com\n {8}url_not_https: /,
    );
  });

  test("--json gives JSON", async () => {
    const { stdout } = await runSealpost(["target", "check", "--json"], { input: "[]", isTerminal });
    expect(stdout).toBe("[]\n");
  });

  test("a signature that is not valid is explained", async () => {
    const env = { SEALPOST_SECRET: "x" };
    const { stdout, code } = await runSealpost(["signature", "verify", "--header", ""], { env, isTerminal });
    expect(stdout).toMatch(/^Not valid\. The request has no extract-signature header\./);
    expect(code).toBe(1);
  });
});

describe("the command line", () => {
  test("without a command shows the help and ends with 2", async () => {
    const { code, stdout, stderr } = await runProcess([]);
    expect({ code, stdout }).toEqual({ code: 2, stdout: "" });
    expect(stderr).toMatch(/^Usage: sealpost/);
  });

  test("shows help when asked and ends with 0", async () => {
    const { code, stdout, stderr } = await runSealpost(["signature", "verify", "--help"]);
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    expect(stdout).toMatch(/^Usage: sealpost signature verify/);
  });

  test.each(["--version", "-V"])("%s prints the version and ends with 0", async (option) => {
    const manifest = readFileSync(new URL("../../../package.json", import.meta.url), "utf8");
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
    const { stderr, code } = await runSealpost(args, { isTerminal });
    expect(code).toBe(2);
    expect(stderr).toContain(sentence);
  });

  test("help marks what is required", async () => {
    const { stdout } = await runSealpost(["account", "create", "--help"], { isTerminal });
    expect(stdout).toContain("display name (required)");
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

describe("a command that a test runs in its own process", () => {
  test("leaves nothing open there", async () => {
    const database = await createTestDatabase();
    const env = { DATABASE_URL: database.url, SECRETS_KEY: SECRETS_KEY.toString("base64") };
    const timers = () => process.getActiveResourcesInfo().filter((name) => name === "Timeout").length;
    const others = () => process.getActiveResourcesInfo().filter((name) => name !== "Timeout");
    const before = [timers(), others().sort()];
    for (const args of [
      ["migrate"],
      ["account", "create", "--name", "A"],
      ["key", "list"],
      ["key", "revoke"],
    ]) {
      await runSealpost(args, { env });
    }
    await runSealpost(["target", "check", "--resolve"], { input: '["https://localhost/"]' });
    // At once: a connection that nobody closes has a timer by which it ends after a while.
    expect(timers()).toBeLessThanOrEqual(Number(before[0]));
    await expect.poll(() => others().sort()).toEqual(before[1]);
    await database.drop();
  });

  test("is refused where it listens to what happens to the process", async () => {
    const env = { DATABASE_URL: "postgres://127.0.0.1:1/x", SECRETS_KEY: SECRETS_KEY.toString("base64") };
    const quarantine = runSealpost(["dispatch", "--alone", randomUUID()], { env });
    await expect(quarantine).rejects.toThrow("It wants a process of its own: dispatch");
  });

  test("is searched for secrets like one in a process of its own", async () => {
    for (const run of [runSealpost, runProcess]) {
      const mark = randomUUID();
      await run(["target", "check"], { input: "[]", env: { UNSAFE_ALLOWED_TARGETS: mark } });
      const folder = process.env[OUTPUT_FOLDER_VARIABLE]!;
      const kept = readdirSync(folder).map((file) => readFileSync(join(folder, file), "utf8"));
      const lines = kept.flatMap((text) => text.split("\n")).filter((line) => line.includes(mark));
      expect(lines).toEqual([expect.stringMatching(/^stderr UNSAFE_ALLOWED_TARGETS /)]);
    }
  });
});
