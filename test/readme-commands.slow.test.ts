// The documents' curl lines, as somebody types them: in one bash, in their order, at a real API with a real dispatcher.
import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { afterAll, beforeAll, expect, test } from "vitest";
import { createApiKey } from "../src/app/create-api-key.ts";
import { readConfig } from "../src/base/config/config.ts";
import { createTestDatabase, type TestDatabase } from "./support/database.ts";
import { changeRows, createTestAccount, createTestKey, createTestUser } from "./support/installation.ts";
import { SealpostProcess, startProcess } from "./support/sealpost-process.ts";
import { patience } from "./support/time-limits.ts";

const README = readFileSync(new URL("../README.md", import.meta.url), "utf8");

/** A line that asks for something, with curl or a function of the document's around it. */
const ASKS = /^(?:curl|call|send) /m;

/** In the document's order: what is asked for, and the variables and functions that are set before. */
const commandsOf = (document: string) =>
  [...document.matchAll(/^```sh\n([\s\S]*?)^```$/gm)]
    .map(([, block = ""]) => block.replaceAll(/\\\n\s*/g, ""))
    .filter((block) => ASKS.test(block))
    .flatMap((block) => block.split("\n"))
    .filter((line) => ASKS.test(line) || /^(?:[A-Z_]+=|\w+\(\) )/.test(line));

/** As a reader goes on from the README. */
const commands = ["receivers", "support", "workspace"].flatMap((name) =>
  commandsOf(readFileSync(new URL(`../docs/${name}.md`, import.meta.url), "utf8")),
);

let database: TestDatabase;
let running: SealpostProcess[];
let api: SealpostProcess;
let shell: Shell;
let accountId: string;
let apiKey: string;
let staffKey: string;
let userKey: string;
let folder: string;

beforeAll(async () => {
  database = await createTestDatabase();
  folder = await mkdtemp(join(tmpdir(), "sealpost-readme-"));
  const env = {
    DATABASE_URL: database.url,
    // No name of the documents' is looked up in the world: every attempt fails at once, and there are no long waits.
    TARGET_DNS_SERVERS: "127.0.0.1:1",
    // Nor for the turns of a receiver that has proven nothing: it need not.
    UNSAFE_ALLOWED_TARGETS: "example.com:443",
    RETRY_WINDOW_SECONDS: "1",
    PAGES_URL: "http://localhost:8080",
    STATE_DIR: folder,
    // A line for each attempt.
    LOG_LEVEL: "debug",
  };
  running = await Promise.all([startProcess("serve", env), startProcess("dispatch", env)]);
  api = running[0]!;
  ({ accountId } = await createTestAccount(database));
  staffKey = (await createTestKey(database.pool, null, ["staff:read", "webhooks:read", "webhooks:replay"]))
    .apiKey;
  const { id: userId } = await createTestUser(database.pool, accountId);
  const both = ["spaces", "documents", "pages", "workflows"].flatMap((of) => [`${of}:read`, `${of}:write`]);
  const scopes = [...both, "workflows:run", "analyses:read"];
  const wish = { accountId, userId, name: null, scopes, expiresInSeconds: null };
  userKey = (await createApiKey(database.pool, readConfig({}), wish)).apiKey;
  shell = startShell();
});
afterAll(async () => {
  await shell.end();
  await Promise.all(running.map((one) => one.stop()));
  await database.drop();
  await rm(folder, { recursive: true });
});

/** Types the next command, and those before it that only set something. */
async function typeNext(left: string[], named: string, ids: Record<string, string>): Promise<Answer> {
  for (;;) {
    const command = left.shift();
    if (command === undefined) throw new Error(`The documents have no command for: ${named}`);
    const typed = filledIn(command, ids);
    if (!ASKS.test(command)) await shell.run(typed);
    else {
      expect(typed, "the command that was to come").toContain(named);
      return answerIn(await shell.run(typed));
    }
  }
}

/** From `npm ci` done, on an idle machine, by who types fast. */
const FIRST_WEBHOOK_WITHIN_MS = 60_000;

test("the README's first commands bring a verified webhook within a minute, and nothing is restarted", {
  timeout: patience(2 * FIRST_WEBHOOK_WITHIN_MS),
}, async () => {
  const blocks = [...README.matchAll(/^```sh\n([\s\S]*?)^```$/gm)].map(([, block = ""]) => block);
  const typed = blocks.slice(0, 2).map((block) => block.replace(/#.*/, "").trim());
  expect(typed).toEqual(["npm ci && npm start", "npm run -s sealpost -- receiver try"]);

  const own = { STATE_DIR: join(folder, "first"), PORT: "0", LOG_LEVEL: "silent" };
  const startedAtMs = performance.now();
  const service = new SealpostProcess(["start", "--json"], own);
  const { api_key, signing_secret } = await service.waitForLine((line) => line.event === "first_account");
  const receiver = new SealpostProcess(["receiver", "try"], { STATE_DIR: own.STATE_DIR });
  await receiver.waitForLine(({ msg }) =>
    / → 204 {2}verified analysis\.succeeded, .*\(an example\)$/.test(String(msg)),
  );
  const tookMs = performance.now() - startedAtMs;
  expect(signing_secret).toMatch(/^whsec_/);

  const running = service.lines.find(({ name, url }) => name === "API" && url);
  const [key = "", id = "", publish = ""] = commandsOf(README);
  await shell.run(key.replace("svc_test_…", String(api_key)));
  await shell.run(id);
  const published = await shell.run(publish.replaceAll("http://127.0.0.1:8080", String(running?.url)));
  expect(answerIn(published).status).toBe(202);
  // Printed below the line that says that it verifies.
  await receiver.waitForLine(({ data }) =>
    /^quick-\d+$/.test((data as { id?: string } | undefined)?.id ?? ""),
  );
  expect(tookMs).toBeLessThan(patience(FIRST_WEBHOOK_WITHIN_MS));
  await receiver.stop();
  await service.stop();
});

test("the README's quickstart publishes and pulls", async () => {
  const left = commandsOf(README);
  const { accountId } = await createTestAccount(database);
  ({ apiKey } = await createTestKey(database.pool, accountId));
  const published = await typeNext(left, "/v1/analyses -H", {});
  expect(published).toMatchObject({
    status: 202,
    body: { analysis_id: expect.stringMatching(/^quick-\d+$/) },
  });
  const { delivery_id } = published.body as Record<string, string>;
  const page = { items: [{ delivery_id, signature: expect.stringMatching(/^t=\d+,v1=/) }] };
  expect(await typeNext(left, "/v1/webhooks/events", {})).toMatchObject({ status: 200, body: page });
  expect(left).toEqual([]);
});

test("every command is answered as the documents say", async () => {
  const left = [...commands];
  const ids: Record<string, string> = { ACCOUNT_ID: accountId };
  ({ apiKey } = await createTestKey(database.pool, accountId));
  const runNext = (named: string) => typeNext(left, named, ids);

  expect(await runNext("-X PUT")).toMatchObject({ status: 200, body: { url: "https://example.com/hooks" } });

  const published = await runNext("/v1/analyses -H");
  const { analysis_id, delivery_id } = published.body as Record<string, string>;
  expect(published).toMatchObject({
    status: 202,
    body: { analysis_id: expect.stringMatching(/^first-\d+$/) },
  });
  ids.DELIVERY_ID = delivery_id!;
  await attempted(8);
  const delivery = { id: delivery_id, analysis_id, status: "abandoned", explanation: expect.any(String) };
  expect(await runNext("/deliveries -H")).toMatchObject({
    status: 200,
    body: { items: [delivery], total: 1 },
  });
  expect(await runNext("/v1/analyses/first-")).toEqual({
    status: 200,
    body: { id: analysis_id, status: "succeeded" },
  });

  expect(await runNext("/replay ")).toMatchObject({ status: 202, body: { id: delivery_id, run: 2 } });
  await attempted(16);
  const counts = { matched: 1, own_url: 0, expired: 0 };
  expect(await runNext('"dry_run":true')).toEqual({ status: 200, body: { dry_run: true, ...counts } });
  const replay = await runNext('"rate_per_second":10');
  expect(replay).toMatchObject({ status: 202, body: { status: "running", matched: 1 } });
  ids.REPLAY_ID = (replay.body as Record<string, string>).id!;
  await attempted(24);
  const listed = { items: [{ id: ids.REPLAY_ID, replayed: 1 }], total: 1 };
  expect(await runNext("/replays -H")).toMatchObject({ status: 200, body: listed });
  expect(await runNext("/cancel ")).toMatchObject({ status: 200, body: { id: ids.REPLAY_ID } });

  expect(await runNext("/refusals/lift")).toMatchObject({ status: 404, body: { code: "not_found" } });
  expect(await runNext("/notices/recipients")).toMatchObject({
    status: 409,
    body: { code: "mail_not_configured" },
  });

  const failing = { items: expect.any(Array), next_cursor: null };
  expect(await runNext("/v1/accounts?failing=true")).toMatchObject({ status: 200, body: failing });
  expect(await runNext("X-Account-Id")).toEqual({ status: 200, body: { dry_run: true, ...counts } });
  const link = { status: 201, body: { url: expect.stringContaining("/console/enter#t=") } };
  expect(await runNext("/v1/console/links")).toMatchObject(link);

  const space = await runNext("/v1/spaces -d");
  expect(space).toMatchObject({ status: 201, body: { name: "Contracts", is_owner: true } });
  ids.SPACE_ID = (space.body as Record<string, string>).id!;
  ids.USER_ID = (await createTestUser(database.pool, accountId)).id;
  expect(await runNext("/members/")).toMatchObject({ status: 200, body: { role: "VIEWER" } });
  const spaces = { items: [{ id: ids.SPACE_ID, role: "ADMIN", member_count: 2 }], total: 1 };
  expect(await runNext("/v1/spaces")).toMatchObject({ status: 200, body: spaces });

  const idOf = (answer: Answer) => (answer.body as Record<string, string>).id!;
  const added = await runNext("/v1/documents -d");
  expect(added).toMatchObject({ status: 201, body: { status: "PENDING_UPLOAD" } });
  ids.DOCUMENT_ID = idOf(added);
  expect(await runNext("-X PUT")).toMatchObject({ status: 200, body: { status: "UPLOADED" } });
  expect(await runNext("-X PATCH")).toMatchObject({ status: 200, body: { file_name: "Read me.md" } });
  expect(await runNext("-X PATCH")).toMatchObject({ status: 200, body: { name: "Old contracts" } });
  const saved = join(folder, "Read me.md");
  expect(await runNext("/content -OJ")).toEqual({ status: 200, body: null });
  expect(readFileSync(saved, "utf8")).toBe(README);

  const written = await runNext("/v1/pages -d");
  expect(written).toMatchObject({ status: 201, body: { title: "Results", revision: 1 } });
  ids.PAGE_ID = idOf(written);
  const current = await runNext("/publish");
  expect(current).toMatchObject({ status: 201, body: { number: 1 } });
  ids.VERSION_ID = idOf(current);
  const opened = await runNext("/links");
  expect(opened).toMatchObject({ status: 201, body: { max_visits: 50, pinned: false } });
  ids.LINK_ID = idOf(opened);
  const { url } = opened.body as Record<string, string>;
  const shown = await fetch(url!.replace(":8080", `:${new URL(api.url).port}`));
  expect(await shown.text()).toContain("<p><strong>3</strong> of 4 contracts are signed.</p>");
  expect(await runNext("/draft")).toMatchObject({ status: 200, body: { revision: 2, draft_differs: true } });
  expect(await runNext("/retarget")).toMatchObject({ status: 200, body: { pinned: true } });
  expect(await runNext("-X PATCH")).toMatchObject({ status: 200, body: { pinned: false, visit_count: 1 } });

  const workflow = await runNext("/v1/workflows -d");
  expect(workflow).toMatchObject({ status: 201, body: { name: "Untitled", node_count: 1 } });
  ids.WORKFLOW_ID = (workflow.body as Record<string, string>).id!;
  const draft = { draft_revision: 2, node_count: 3, current_version: null };
  expect(await runNext("/draft -d")).toMatchObject({ status: 200, body: draft });
  const version = { version: 1, change_note: "Counts words" };
  expect(await runNext("/publish -d")).toMatchObject({ status: 200, body: { current_version: version } });
  const versions = await runNext("/versions");
  expect(versions).toMatchObject({ status: 200, body: { items: [version], total: 1 } });
  ids.VERSION_ID = (versions.body as { items: Record<string, string>[] }).items[0]!.id!;
  const restored = { draft_revision: 3, draft_differs: false };
  expect(await runNext("/restore -d")).toMatchObject({ status: 200, body: restored });
  const run = await runNext("/runs -d");
  expect(run).toMatchObject({ status: 202, body: { status: "QUEUED", input: { note: "first" } } });
  ids.RUN_ID = (run.body as Record<string, string>).id!;
  expect(await runNext("/v1/workflow-runs/")).toMatchObject({ status: 200, body: { id: ids.RUN_ID } });
  expect(await runNext("/nodes/words/items")).toMatchObject({ status: 200, body: { next_cursor: null } });
  const events = { items: expect.arrayContaining([expect.objectContaining({ kind: "run.created" })]) };
  expect(await runNext("/events?after=0")).toMatchObject({ status: 200, body: events });
  const statusOf = async () => {
    const url = `${api.url}/v1/workflow-runs/${ids.RUN_ID}`;
    const answer = await fetch(url, { headers: { authorization: `Bearer ${userKey}` } });
    return ((await answer.json()) as Record<string, string>).status;
  };
  await expect.poll(statusOf, { timeout: patience(30_000) }).toBe("SUCCEEDED");
  const analysis = { id: ids.RUN_ID, status: "succeeded" };
  expect(await runNext("/v1/analyses/")).toMatchObject({ status: 200, body: analysis });

  const tested = { test_node_id: "files" };
  expect(await runNext('"test_node_id"')).toMatchObject({ status: 202, body: tested });
  await changeRows(database.pool, "workspace.runs", { id: ids.RUN_ID }, { status: "FAILED" });
  const retried = { retry_of: ids.RUN_ID };
  expect(await runNext("/retry")).toMatchObject({ status: 202, body: retried });
  const failed = { items: [{ id: ids.RUN_ID }], total: 1 };
  expect(await runNext("status=FAILED")).toMatchObject({ status: 200, body: failed });
  const three = { items: [retried, tested, failed.items[0]], total: 3 };
  expect(await runNext("/runs")).toMatchObject({ status: 200, body: three });
  expect(await runNext('"enabled":false')).toMatchObject({ status: 200, body: { enabled: false } });
  expect(await runNext("/archive")).toMatchObject({ status: 200, body: { status: "ARCHIVED" } });
  const archived = { items: [{ id: ids.WORKFLOW_ID }], total: 1 };
  expect(await runNext("status=ARCHIVED")).toMatchObject({ status: 200, body: archived });
  expect(await runNext("/unarchive")).toMatchObject({ status: 200, body: { status: "ACTIVE" } });
  ids.WORKFLOW_ID = idOf(await runNext("/v1/workflows -d"));
  expect(await runNext("/draft -d")).toMatchObject({
    status: 200,
    body: { trigger_kinds: ["schedule_trigger"] },
  });
  const trigger = { kind: "schedule", active: true, next_fire_at: expect.any(String) };
  expect(await runNext("/publish")).toMatchObject({ status: 200, body: { triggers: [trigger] } });
  expect(await runNext("/v1/workflows/")).toMatchObject({ status: 200, body: { triggers: [trigger] } });
  expect(await runNext("/draft -d")).toMatchObject({ status: 200, body: { draft_revision: 3 } });
  const inactive = [{ id: null, active: false }];
  expect(await runNext("/publish")).toMatchObject({
    status: 200,
    body: { triggers: [], webhooks: inactive },
  });
  const hook = await runNext("/hook -d");
  expect(hook).toMatchObject({ status: 201, body: { previous_ends_at: null } });
  ids.HOOK_URL = (hook.body as Record<string, string>).url!;
  expect(await runNext("order-7")).toMatchObject({ status: 202, body: { run_id: expect.any(String) } });
  expect(await runNext("-X DELETE")).toMatchObject({ status: 204 });

  const document = { kind: "document", id: ids.DOCUMENT_ID, name: "Read me.md" };
  expect(await runNext("-X DELETE")).toMatchObject({ status: 200, body: document });
  expect(await runNext("/bin")).toMatchObject({ status: 200, body: { items: [document] } });
  expect(await runNext("/restore")).toMatchObject({ status: 200, body: { file_name: "Read me.md" } });
  expect(await runNext("?permanently=true")).toMatchObject({ status: 200, body: { kind: "page" } });
  expect(await runNext("-X DELETE")).toMatchObject({ status: 200, body: { kind: "space" } });
  expect(await runNext("?deleted=true")).toMatchObject({
    status: 200,
    body: { items: [{ id: ids.SPACE_ID }] },
  });
  expect(await runNext("/restore")).toMatchObject({
    status: 200,
    body: { id: ids.SPACE_ID, document_count: 1 },
  });
  // Its key is of somebody who may not: it has another scope.
  expect(await runNext("-X DELETE")).toMatchObject({ status: 403, body: { code: "access_denied" } });
  expect(left).toEqual([]);
});

test("the commands for replaying can be typed again, for another delivery or count", async () => {
  const replaying = commands.filter((command) => /-X POST \S+\/(?:deliveries|replays)\b/.test(command));
  expect(replaying).toHaveLength(5);
  for (const command of replaying) {
    const keyOf = async () => {
      const [, key = ""] = /-H "Idempotency-Key: ([^"]*)"/.exec(command) ?? [];
      return (await shell.run(`printf '%s\\n' "${key}"`)).trim();
    };
    const keys = [await keyOf(), await keyOf()];
    expect(keys[0]).toMatch(/^\d+-\d+-\d+$/);
    expect(keys[1]).not.toBe(keys[0]);
  }
});

/** Resolves when the dispatcher has written down so many attempts, and the log shows the last of them. */
async function attempted(count: number): Promise<void> {
  const logged = () => running[1]!.output().split('"msg":"attempt"').length - 1;
  await expect.poll(logged).toBe(count);
}

/** With what the documents leave to be put in. */
function filledIn(command: string, ids: Record<string, string>): string {
  return command
    .replaceAll("http://127.0.0.1:8080", api.url)
    .replace(/ -OJ$/, ` -OJ --output-dir "${folder}"`)
    .replace(/^KEY=svc_test_…/, `KEY=${apiKey}`)
    .replace(/^STAFF_KEY=svc_test_…/, `STAFF_KEY=${staffKey}`)
    .replace(/^USER_KEY=svc_test_…/, `USER_KEY=${userKey}`)
    .replaceAll(/\b[A-Z]+_(?:ID|URL)\b/g, (name) => ids[name] ?? name);
}

type Answer = { readonly status: number; readonly body: unknown };

function answerIn(output: string): Answer {
  const [, body = "", status = ""] = /^([\s\S]*)\n(\d{3})\n$/.exec(output) ?? [];
  expect(status, output).not.toBe("");
  return { status: Number(status), body: body === "" ? null : JSON.parse(body) };
}

type Shell = {
  /** Types a line; resolves to what it has written when it is done. */
  run(line: string): Promise<string>;
  end(): Promise<void>;
};

/** One bash for all, so that variables stay; its curl also tells the status. */
function startShell(): Shell {
  const child = spawn("bash", ["--noprofile", "--norc"], { stdio: ["pipe", "pipe", "inherit"] });
  const lines = createInterface(child.stdout)[Symbol.asyncIterator]();
  child.stdin.write("curl() { command curl --write-out '\\n%{http_code}\\n' \"$@\"; }\n");
  return {
    run: async (line) => {
      child.stdin.write(`${line}\necho '-- done'\n`);
      let output = "";
      for (;;) {
        const { value, done } = await lines.next();
        if (done) throw new Error(`bash has ended at: ${line}`);
        if (value === "-- done") return output;
        output += `${value}\n`;
      }
    },
    end: async () => {
      child.stdin.end();
      while (!(await lines.next()).done);
    },
  };
}
