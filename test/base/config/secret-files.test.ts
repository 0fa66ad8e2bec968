import { randomUUID } from "node:crypto";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import { readConfig } from "../../../src/base/config/config.ts";
import { type Variable, variables } from "../../../src/base/config/variables.ts";
import { problemsOf } from "./problems.ts";

const secretsKey = Buffer.alloc(32, 7).toString("base64");

describe("a secret in a file", () => {
  const folder = mkdtempSync(join(tmpdir(), "sealpost-config-"));
  afterAll(() => rmSync(folder, { recursive: true }));
  const file = (text: string) => {
    const path = join(folder, randomUUID());
    writeFileSync(path, text);
    return path;
  };
  const secrets = Object.entries<Variable<unknown>>(variables).filter(([, { kind }]) => kind.isSecret);

  test.each(secrets.map(([name]) => name))(
    "is read by %s_FILE, and refused as the variable's own is",
    (name) => {
      const path = file("hunter2 \n");
      const [problem = "", ...others] = problemsOf({ [`${name}_FILE`]: path });
      if (name.startsWith("AWS_")) expect(problem).toContain("must be an access key's");
      expect(problem).toContain(
        `${name}_FILE is ${JSON.stringify(path)}, which has a value that is not shown here but must be `,
      );
      expect([others, problem.includes("hunter2")]).toEqual([[], false]);
      const missing = join(folder, "missing");
      expect(
        problemsOf({ [`${name}_FILE`]: missing, ENVIRONMENT: "production", SECRETS_KEY: secretsKey }),
      ).toContain(
        name === "SECRETS_KEY"
          ? "SECRETS_KEY and SECRETS_KEY_FILE are both set: unset one of them."
          : `${name}_FILE is ${JSON.stringify(missing)}, which cannot be read: ENOENT.`,
      );
    },
  );

  test.each([secretsKey, `${secretsKey}\n`, `${secretsKey}\r\n`])("may end with a line's end: %j", (text) => {
    const config = readConfig({ SECRETS_KEY_FILE: file(text), SECRETS_KEY: "", ENVIRONMENT: "production" });
    expect(config.secretsKey?.export().toString("base64")).toBe(secretsKey);
  });

  test("may not have two, a space or a byte order mark, nor be empty, nor a folder", () => {
    for (const text of [`${secretsKey}\n\n`, `${secretsKey} `, `\uFEFF${secretsKey}`]) {
      const path = file(text);
      expect(problemsOf({ SECRETS_KEY_FILE: path })).toEqual([
        `SECRETS_KEY_FILE is ${JSON.stringify(path)}, which has a value ` +
          "that is not shown here but must be exactly 32 bytes in base64, as `openssl rand -base64 32` prints them.",
      ]);
    }
    for (const text of ["", "\n"]) {
      const path = file(text);
      // Nothing is said of what else production lacks then.
      expect(problemsOf({ SECRETS_KEY_FILE: path, ENVIRONMENT: "production" })).toEqual([
        `SECRETS_KEY_FILE is ${JSON.stringify(path)}, which is empty.`,
      ]);
    }
    expect(problemsOf({ SECRETS_KEY_FILE: folder })).toEqual([
      `SECRETS_KEY_FILE is ${JSON.stringify(folder)}, which cannot be read: EISDIR.`,
    ]);
  });

  test("is read for no variable that is not secret", () => {
    expect(readConfig({ PORT_FILE: file("1"), SECRETS_KEY_FILE: "" })).toMatchObject({
      port: 8080,
      secretsKey: null,
    });
  });
});
