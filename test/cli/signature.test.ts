import { closeSync, openSync } from "node:fs";
import { tmpdir } from "node:os";
import { describe, expect, test } from "vitest";
import { importSigningKey, signatureHeader } from "../../src/signing/index.ts";
import { runSealpost } from "../support/command.ts";

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

function verify(header: string, ...others: string[]) {
  return runSealpost(["signature", "verify", "--header", header, "--now", `${now}`, ...others], {
    input: body,
  });
}

describe("a valid signature", () => {
  test("ends with 0", async () => {
    const { code, stdout, stderr } = await verify(headerAt(now, secret), "--secret", secret, "--json");
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
    const args = ["signature", "verify", "--header", header, "--secret", secret];
    expect((await runSealpost(args, { input: body })).code).toBe(0);
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
    const { code, stdout, stderr } = await verify(header, "--secret", secret, ...others);
    expect(JSON.parse(stdout)).toEqual({ valid: false, reason });
    expect({ code, stderr }).toEqual({ code: 1, stderr: "" });
  });

  test("of changed bytes ends with 1", async () => {
    const args = ["signature", "verify", "--header", headerAt(now, secret), "--now", `${now}`];
    const { code } = await runSealpost([...args, "--secret", secret], { input: Buffer.concat([body, body]) });
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
    const args = ["signature", "verify", "--header", header, "--secret", secret];
    const { code, stderr } = await runSealpost(args, { input: folder });
    closeSync(folder);
    expect({ code, stderr }).toEqual({ code: 2, stderr: "Standard input cannot be read (EISDIR).\n" });
  });

  test("standard input without end is read no further than the limit", async () => {
    const zeros = openSync("/dev/zero", "r");
    const args = ["signature", "verify", "--header", header, "--secret", secret];
    const { code, stderr } = await runSealpost(args, { input: zeros });
    closeSync(zeros);
    expect({ code, stderr }).toEqual({ code: 2, stderr: "Standard input is longer than 33554432 bytes.\n" });
  });
});
