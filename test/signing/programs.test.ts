// The guide's programs, as a newcomer starts them: each in its own process, in an empty folder.
import { type ChildProcess, spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { sequenceEvents } from "../../src/feed/feed-sql.ts";
import { importSigningKey, SIGNATURE_HEADER, signatureHeader } from "../../src/signing/index.ts";

import { publish } from "../support/installation.ts";
import { openApi } from "../support/open.ts";
import { freePort } from "../support/ports.ts";
import type { TestAccount } from "../support/sealpost-api.ts";
import { patience } from "../support/time-limits.ts";

const pathOf = (file: string) => fileURLToPath(new URL(`../${file}`, import.meta.url));
const LANGUAGES = {
  "Node.js": {
    command: process.execPath,
    puller: "signing/examples/pull.ts",
    receiver: "signing/examples/receiver.ts",
    tags: [],
  },
  Python: {
    command: "python3",
    puller: "recipes/python/pull.py",
    receiver: "recipes/python/receiver.py",
    tags: ["slow"],
  },
};

type Program = { readonly child: ChildProcess; line(): Promise<string>; readonly errors: () => string };

const HOLDER = randomUUID();
const { database, api } = await openApi();
let account: TestAccount;
let folder: string;
let made = 0;
const running: ChildProcess[] = [];

beforeEach(async () => {
  account = await api.newAccount();
  folder = mkdtempSync(join(tmpdir(), "programs-"));
});
afterEach(async () => {
  for (const child of running.splice(0)) await end(child);
  rmSync(folder, { recursive: true });
});

async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  child.kill("SIGKILL");
  await once(child, "close");
}

async function publishInFeed(): Promise<string> {
  const { accountId } = account;
  const id = await publish(database.pool, accountId, `{"id":"p-${made++}","status":"failed","t":"é\\u0000"}`);
  await sequenceEvents(database.pool, HOLDER, 60_000);
  api.news.tell([accountId]);
  return `verified ${id} analysis.failed p-${made - 1}`;
}

for (const [language, { command, puller, receiver, tags }] of Object.entries(LANGUAGES))
  describe(`in ${language}`, { tags }, () => {
    function start(program: string, more: Record<string, string> = {}): Program {
      const env = {
        PATH: process.env.PATH,
        PYTHONDONTWRITEBYTECODE: "1",
        PYTHONPATH: pathOf("../packages/python/src"),
        SEALPOST_URL: api.url,
        SEALPOST_API_KEY: account.ownKey,
        SIGNING_SECRET: account.secret,
        ...more,
      };
      const child = spawn(command, [pathOf(program)], {
        cwd: folder,
        env,
        stdio: ["ignore", "pipe", "pipe"],
      });
      running.push(child);
      let errors = "";
      child.stderr.on("data", (data) => {
        errors += data;
      });
      const lines = createInterface(child.stdout)[Symbol.asyncIterator]();
      return {
        child,
        errors: () => errors,
        line: async () => String((await lines.next()).value ?? `ended: ${errors}`),
      };
    }

    test("pulls every event, verified, and goes on after its end where it left off", async () => {
      const first = [await publishInFeed(), await publishInFeed()];
      const one = start(puller);
      expect([await one.line(), await one.line()]).toEqual(first);
      await expect.poll(() => api.waiting()).toBe(1);
      expect(await publishInFeed()).toBe(await one.line());
      await expect.poll(() => api.waiting()).toBe(1);
      await end(one.child);
      expect(readFileSync(join(folder, "cursor.txt"), "utf8")).toMatch(/^[\w-]+$/);

      await expect.poll(() => api.waiting()).toBe(0);
      const meanwhile = await publishInFeed();
      const other = start(puller);
      expect(await other.line()).toBe(meanwhile);
    });

    test("takes nothing that does not verify, and no key along to where a redirect leads", async () => {
      await publishInFeed();
      const wrong = start(puller, { SIGNING_SECRET: "whsec_another" });
      await once(wrong.child, "close");
      expect(wrong.child.exitCode).toBe(1);
      expect(wrong.errors()).toMatch(/secret/);

      let asked = 0;
      const server = createServer((_, response) => {
        asked++;
        response.writeHead(302, { location: "/elsewhere" }).end();
      }).listen(0, "127.0.0.1");
      await once(server, "listening");
      const elsewhere = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
      const redirected = start(puller, { SEALPOST_URL: elsewhere });
      await once(redirected.child, "close");
      server.close();
      expect([redirected.child.exitCode, asked]).toEqual([1, 1]);
    });

    test("says that nobody answers, and where it asks", async () => {
      const url = `http://127.0.0.1:${await freePort()}`;
      const { errors } = start(puller, { SEALPOST_URL: url });
      const said = new RegExp(`${url}\\b.*refused.*[Aa]sking again in [\\d.]+ m?s\\.\\n`, "i");
      await expect.poll(errors, { timeout: patience(10_000) }).toMatch(said);
    });

    test("asks again when there is no answer", async () => {
      const expected = await publishInFeed();
      let failures = 2;
      const server = createServer((request, response) => {
        if (failures-- > 0) {
          if (failures === 0) response.writeHead(503).end();
          else response.destroy();
          return;
        }
        const headers = { authorization: request.headers.authorization ?? "" };
        fetch(`${api.url}${request.url}`, { headers }).then(async (answer) => {
          response.writeHead(answer.status, { "content-type": "application/json" }).end(await answer.text());
        });
      }).listen(0, "127.0.0.1");
      await once(server, "listening");
      const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
      const pulling = start(puller, { SEALPOST_URL: url });
      expect(await pulling.line()).toBe(expected);
      await end(pulling.child);
      server.closeAllConnections();
      server.close();
    });

    test("receives what is signed, and refuses what is forged", async () => {
      const port = String(await freePort());
      const program = start(receiver, { PORT: port });
      expect(await program.line()).toBe(`listening on http://localhost:${port}`);
      const event = { id: randomUUID(), event: "analysis.failed", created_at: "2027-01-15T08:00:00.000Z" };
      const body = Buffer.from(JSON.stringify({ ...event, data: { id: "r-1", status: "failed" } }));
      const post = (secret: string, body: Buffer<ArrayBuffer>) => {
        const keys = [importSigningKey(secret)];
        const header = signatureHeader({ timestampSeconds: Math.floor(Date.now() / 1_000), body, keys });
        const headers = { "content-type": "application/json", [SIGNATURE_HEADER]: header };
        return fetch(`http://localhost:${port}/webhooks`, { method: "POST", headers, body });
      };
      expect((await post("whsec_forged", body)).status).toBe(400);
      const challenge = Buffer.from('{"type":"webhook.challenge","challenge":"a-1"}');
      const answer = await post(account.secret, challenge);
      expect([answer.status, await answer.text()]).toEqual([200, "a-1"]);
      expect((await post(account.secret, body)).status).toBe(204);
      expect([await program.line(), await program.line()]).toEqual([
        expect.stringMatching(/^refused/),
        expect.stringMatching(/^verified \S+ analysis\.failed r-1$/),
      ]);
    });
  });
