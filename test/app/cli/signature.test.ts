import { closeSync, mkdtempSync, openSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import { importSigningKey, signatureHeader } from "../../../src/signing/index.ts";
import { runSealpost } from "../../support/command.ts";
import { runProcess } from "../../support/sealpost-process.ts";

const secret = "whsec_c2VhbHBvc3QtdGVzdC1zZWNyZXQtMzItYnl0ZXMtbG9uZw==";
const now = 1_763_600_000;
// Not UTF-8 on purpose: the signature is over bytes.
const body = Buffer.concat([
  Buffer.from('{"id":"'),
  Buffer.from([0xff, 0x00, 0x0d, 0x0a]),
  Buffer.from('"}'),
]);

function headerAt(timestampSeconds: number, ...secrets: string[]): string {
  return signatureHeader({ timestampSeconds, body, keys: secrets.map(importSigningKey) });
}

const env = { SEALPOST_SECRET: secret };

function verify(header: string, ...others: string[]) {
  return runSealpost([...verifyArgs(header), ...others], { input: body, env });
}
const verifyArgs = (header: string) => ["signature", "verify", "--header", header, "--now", `${now}`];

describe("a valid signature", () => {
  test("ends with 0", async () => {
    const args = [...verifyArgs(headerAt(now, secret)), "--json"];
    const { code, stdout, stderr } = await runProcess(args, { input: body, env });
    expect(JSON.parse(stdout)).toEqual({ valid: true, reason: null });
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
  });

  test("may be by any of several secrets", async () => {
    const header = headerAt(now, secret);
    const { code } = await verify(header, "--secret", "whsec_other", "--secret", secret);
    expect(code).toBe(0);
  });

  test("is judged by the clock when no time is given", async () => {
    const header = headerAt(Math.floor(Date.now() / 1_000), secret);
    const args = ["signature", "verify", "--header", header];
    expect((await runSealpost(args, { input: body, env })).code).toBe(0);
  });
});

describe("the secret", () => {
  const folder = mkdtempSync(join(tmpdir(), "sealpost-secret-"));
  afterAll(() => rmSync(folder, { recursive: true }));
  const args = verifyArgs(headerAt(now, secret));
  const run = (more: readonly string[], variable = "") =>
    runSealpost([...args, ...more], { input: body, env: { SEALPOST_SECRET: variable } });

  function file(content: string): readonly string[] {
    const path = join(folder, `${content.length}.txt`);
    writeFileSync(path, content);
    return ["--secret-file", path];
  }

  test.each([
    ["a file", file(`${secret}\n`), ""],
    ["a file of several, as in a rotation", file(`whsec_other\n\n${secret}`), "whsec_unused"],
    ["the environment", [], secret],
    ["the environment, several", [], `whsec_other ${secret}`],
  ])("is taken from %s, without a word", async (_, more, variable) => {
    expect(await run(more, variable)).toMatchObject({ code: 0, stderr: "" });
  });

  test("on the command line works, and is warned of", async () => {
    const { code, stderr } = await run(["--secret", secret], "whsec_unused");
    expect(code).toBe(0);
    expect(stderr).toBe(
      "--secret is visible to everyone on this machine, for example with ps: use --secret-file or SEALPOST_SECRET.\n",
    );
  });

  test.each([
    ["no such file", ["--secret-file", join(folder, "none.txt")], "cannot be read (ENOENT)."],
    ["a folder", ["--secret-file", folder], "cannot be read (EISDIR)."],
    ["an empty file", file("\n"), "is empty."],
    ["an endless file", ["--secret-file", "/dev/zero"], "is longer than 16384 bytes."],
    ["nothing", [], "No signing secret: give --secret-file, or set SEALPOST_SECRET."],
  ])("that is not there ends with 2: %s", async (_, more, message) => {
    const { code, stderr } = await run(more);
    expect(code).toBe(2);
    expect(stderr).toMatch(/^[A-Z][^\n]+[.]\n$/);
    expect(stderr).toContain(message);
  });
});

describe("a signature that is not valid", () => {
  test.each([
    ["by another secret", headerAt(now, "whsec_other"), [], "no_signature_matches"],
    ["300 s old", headerAt(now - 300, secret), [], "timestamp_too_old"],
    ["300 s ahead", headerAt(now + 300, secret), [], "timestamp_ahead"],
    ["outside a smaller tolerance", headerAt(now - 10, secret), ["--tolerance", "10"], "timestamp_too_old"],
    ["missing", "", [], "header_missing"],
    ["malformed", "t=now,v1=abc", [], "header_malformed"],
  ])("%s ends with 1", async (_, header, others, reason) => {
    const { code, stdout, stderr } = await verify(header, ...others);
    expect(JSON.parse(stdout)).toEqual({ valid: false, reason });
    expect({ code, stderr }).toEqual({ code: 1, stderr: "" });
  });

  test("of changed bytes ends with 1", async () => {
    const args = verifyArgs(headerAt(now, secret));
    const { code } = await runProcess(args, { input: Buffer.concat([body, body]), env });
    expect(code).toBe(1);
  });
});

describe("a usage error ends with 2 and one sentence", () => {
  const header = headerAt(now, secret);

  test.each([
    ["no secret", ["--header", header]],
    ["no header", ["--secret", secret]],
    ["an empty secret", ["--header", header, "--secret", ""]],
    ["a time that is not a number", ["--header", header, "--secret", secret, "--now", "today"]],
    ["a tolerance of nothing", ["--header", header, "--secret", secret, "--tolerance", "0"]],
    ["an unknown option", ["--header", header, "--secret", secret, "--key", "x"]],
    ["an argument too many", ["--header", header, "--secret", secret, "body.json"]],
  ])("%s", async (_, args) => {
    const { code, stdout, stderr } = await runSealpost(["signature", "verify", ...args], { input: body });
    expect({ code, stdout }).toEqual({ code: 2, stdout: "" });
    expect(stderr).toMatch(/^[A-Z][^\n]+[.?)]\n$/);
    expect(stderr).not.toContain(secret);
  });

  test("standard input that cannot be read", async () => {
    const folder = openSync(tmpdir(), "r");
    const args = ["signature", "verify", "--header", header];
    const { code, stderr } = await runProcess(args, { input: folder, env });
    closeSync(folder);
    expect({ code, stderr }).toEqual({ code: 2, stderr: "Standard input cannot be read (EISDIR).\n" });
  });

  test("standard input without end is read no further than the limit", async () => {
    const zeros = openSync("/dev/zero", "r");
    const args = ["signature", "verify", "--header", header];
    const { code, stderr } = await runProcess(args, { input: zeros, env });
    closeSync(zeros);
    expect({ code, stderr }).toEqual({ code: 2, stderr: "Standard input is longer than 33554432 bytes.\n" });
  });
});
