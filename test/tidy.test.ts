import { globSync, readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { PROTECTIONS } from "./faults/prove.ts";
import { GUARDS as HISTORY_GUARDS } from "./histories/guards.ts";
import { GUARDS as SCHEDULE_GUARDS } from "./schedules/prove.ts";
import { arrows, circles } from "./tidy/arrows.ts";
import { banRules } from "./tidy/bans.ts";
import { weight } from "./tidy/budgets.ts";
import { exceptions } from "./tidy/exceptions.ts";
import { lockFile } from "./tidy/lock-file.ts";
import { metrics } from "./tidy/metrics.ts";
import { fileLength, fileNames, lineLength, readByNode } from "./tidy/shapes.ts";
import { type Rule, readSourceFiles } from "./tidy/source-files.ts";

const rules: readonly Rule[] = [
  arrows,
  circles,
  ...banRules,
  lineLength,
  fileLength,
  fileNames,
  readByNode,
  metrics,
  lockFile,
  weight,
];

function rule(name: string): Rule {
  const found = rules.find((candidate) => candidate.name === name);
  if (!found) throw new Error(`There is no rule "${name}".`);
  return found;
}

describe("the repository", () => {
  const files = readSourceFiles();

  test("is found", () => {
    expect(files.map((file) => file.path)).toContain("src/base/config/config.ts");
    expect(files.map((file) => file.path)).toContain("test/tidy.test.ts");
  });

  test.each(rules)("keeps to: $name", ({ name, find }) => {
    const breaches = find(files);
    const letThrough = exceptions.filter((exception) => exception.rule === name);
    for (const { path, count } of letThrough) {
      const left = breaches.filter((breach) => breach.path === path).length;
      expect(left, `${path} has ${left} breaches left: lower its number in exceptions.ts`).toBe(count);
    }
    const paths = new Set(letThrough.map((exception) => exception.path));
    const forbidden = breaches.filter((breach) => !paths.has(breach.path));
    expect(forbidden.map(({ path, message }) => `${path} ${message}`)).toEqual([]);
  });
});

const SHA512 = `sha512-${"a".repeat(86)}==`;
const locked = (entry: object) =>
  JSON.stringify({ packages: { "": { name: "sealpost" }, "node_modules/a": entry } });

test.each([
  { integrity: "sha1-0000000000000000000000000000" },
  { integrity: SHA512, resolved: "https://registry.example.com/a.tgz" },
  { integrity: SHA512, resolved: "" },
])("a package that is locked with %j is no better", (entry) => {
  const files = [{ path: "package-lock.json", text: locked({ version: "1.0.0", ...entry }) }];
  expect(rule("lock file").find(files)).toHaveLength(1);
});

/** For each rule: files that breach it, and their neighbours that do not. */
const planted: Record<string, { wrong: Record<string, string>; right: Record<string, string> }> = {
  arrows: {
    wrong: {
      "src/feed/events-api.ts": 'import { record } from "../log/deliveries-sql.ts";',
      "src/http/keys.ts": 'import type { Key } from "../accounts/api-keys-sql.ts";',
      "src/signing/header.ts": 'import { request } from "undici";',
      "src/egress/rules/address.ts": 'const config = await import("../../base/config/config.ts");',
      "src/delivery/claim-sql.ts": 'import {\n  main,\n} from "../main.ts";',
      "src/base/config/table.ts": 'import { database } from "../../../test/support/database.ts";',
      "src/log/replays-api.ts": 'import { Command } from "commander";',
      "src/leftovers/box.ts": "export const box = 1;",
      "src/base/box.ts": "export const box = 1;",
      "src/app/serve.ts": 'import { spaces } from "../workspace/operations/spaces.ts";',
      "src/app/demo/demo.ts": 'import { keys } from "../cli/keys.ts";',
      "src/workspace/model/roles.ts": 'import { rows } from "../store/spaces.ts";',
      "src/workspace/box.ts": "export const box = 1;",
    },
    right: {
      "src/main.ts": 'import { createProgram } from "./app/cli/program.ts";',
      "src/app/cli/publish.ts": 'import { publish } from "../../publish/publish.ts";',
      "src/delivery/analyses-api.ts": 'import { insert } from "../publish/publish-call-sql.ts";',
      "src/delivery/secrets.ts": 'import { importSigningKey } from "../signing/index.ts";',
      "src/signing/header.ts": 'import { createHmac } from "node:crypto";',
      "src/app/areas.ts": 'import { spaces } from "../workspace/operations/spaces.ts";',
      "src/workspace/store/spaces.ts": 'import { roles } from "../model/roles.ts";',
      "src/egress/rules/url.ts":
        '// import { x } from "../../store/x.ts";\nimport { y } from "./address.ts";',
    },
  },
  circles: {
    wrong: {
      "src/log/a.ts": 'import type { B } from "./b.ts";',
      "src/log/b.ts": 'import { c } from "./c.ts";',
      "src/log/c.ts": 'export { a } from "./a.ts";',
    },
    right: {
      "src/log/d.ts": 'import { e } from "./e.ts"; import { f } from "./f.ts";',
      "src/log/e.ts": 'import { f } from "./f.ts";',
      "src/log/f.ts": "export const f = 1;",
    },
  },
  environment: {
    wrong: { "src/http/server.ts": "listen(process.env.PORT);" },
    right: {
      "src/main.ts": "readConfig(process.env);",
      "src/http/server.ts": "// never process.env\nlisten(config.port);",
    },
  },
  clock: {
    wrong: {
      "src/delivery/schedule/delay.ts": "const now = Date.now();",
      "src/delivery/schedule/due.ts": "const now = new Date( );",
      "src/delivery/schedule/text.ts": "const now = Date();",
      "src/delivery/schedule/bare.ts": "const now = new Date;",
    },
    right: {
      "src/main.ts": "const now = () => Date.now();",
      "src/delivery/schedule/delay.ts": "const due = new Date(now + 1); const t = performance.now();",
      "src/delivery/schedule/due.ts":
        'isUpToDate(); parseDate(); throw new Error("Date.now() counts milliseconds");',
    },
  },
  chance: {
    wrong: { "src/delivery/schedule/jitter.ts": "return 0.8 + 0.4 * Math.random();" },
    right: { "src/delivery/schedule/jitter.ts": "return 0.8 + 0.4 * random();" },
  },
  sql: {
    wrong: {
      "src/delivery/claim.ts": "const text = `\n  select id from sealpost.deliveries`;",
      "src/accounts/keys-api.ts": 'pool.query("Insert into keys values (1)");',
      "src/app/cli/migrate.ts": 'await client.query("BEGIN");',
    },
    right: {
      "src/accounts/keys-sql.ts": "pool.query(`select 1`);",
      "src/workspace/store/spaces.ts": "pool.query(`select 1`);",
      "src/app/cli/publish.ts": 'const text = "the selected one"; const q = request.query.limit;',
    },
  },
  webhook: {
    wrong: {
      "src/receivers/probing.ts": 'const headers = { "user-agent": "Sealpost/1" };',
      "src/app/demo/forgery.ts": 'const body = `{"created_at":"' + "$" + '{at}"}`;',
      "src/delivery/deliver.ts": "const header = signatureHeader({ timestampSeconds, body, keys });",
    },
    right: {
      "src/delivery/webhook.ts": 'headers["user-agent"] = "Sealpost/1";',
      "src/app/webhook-receiver.ts": "const header = request.headers[SIGNATURE_HEADER];",
    },
  },
  "queue internals": {
    wrong: {
      "src/app/gauges-sql.ts": "const text = `select from graphile_worker._private_jobs`;",
      "src/base/database/migrate.ts": 'import { runMigrations } from "graphile-worker";',
    },
    right: {
      "src/base/database/graphile-worker.ts": 'import { run } from "graphile-worker";',
      "src/app/gauges-sql.ts":
        '// as in graphile_worker\nimport { WAITING_WAKEUPS } from "./graphile-worker.ts";',
    },
  },
  "default export": {
    wrong: { "src/http/server.ts": "export default function serve() {}" },
    right: { "vitest.config.ts": "export default {};", "src/http/server.ts": "export function serve() {}" },
  },
  "vague name": {
    wrong: {
      "src/http/a.ts": `export class Key${"Manager"} {}`,
      "src/http/b.ts": `function string${"Utils"}() {}`,
    },
    right: { "src/http/a.ts": "const serviceTime = managed(helperless);" },
  },
  sleep: {
    wrong: {
      "test/api/a.test.ts": "\n    await sleep(100);",
      "test/api/b.test.ts": "\n  await new Promise((done) => setTimeout(done, 5));",
    },
    right: {
      "test/api/a.test.ts": "\n    await once(server, 'close');\n        await sleep(100);",
      "src/app/cli/a.ts": "\n  await sleep(100);",
    },
  },
  "put off": {
    wrong: { "sql/0001_start.sql": `-- ${"TO"}${"DO"}: an index` },
    right: { "README.md": "What is left to do" },
  },
  "mutant left out": {
    wrong: { "src/delivery/schedule/delay.ts": "// Stryker disable next-line all\nconst RATIO = 4;" },
    right: { "src/delivery/schedule/delay.ts": "// as Stryker says\nconst RATIO = 4;" },
  },
  "path of one machine": {
    wrong: { "README.md": `cd /${"home"}/ada/sealpost`, "src/app/cli/a.ts": `"/${"root"}/x"` },
    right: {
      "README.md": "see https://example.com/work/1 and ./tmp/x",
      "src/app/cli/a.ts": "join(tmpdir(), x)",
    },
  },
  "line length": {
    wrong: {
      "sql/0002_long.sql": `-- ${"x".repeat(118)}`,
      "packages/python/src/a.py": `# ${"x".repeat(119)}`,
      "packages/go/a.go": `\t// ${"x".repeat(117)}`,
    },
    right: {
      "sql/0002_long.sql": `-- ${"x".repeat(117)}`,
      "README.md": "x".repeat(500),
      "sql/schema.sql": "x".repeat(500),
    },
  },
  "file length": {
    wrong: {
      "src/http/long.ts": "x\n".repeat(401),
      "test/api/long.test.ts": "x\n".repeat(401),
      "packages/go/long.go": "x\n".repeat(401),
    },
    right: { "src/http/long.ts": "x\n".repeat(400), "test/api/long.test.ts": "x\n".repeat(400) },
  },
  "file name": {
    wrong: {
      "src/http/requestId.ts": "",
      "src/http/utils.ts": "",
      "test/support/key-helper.ts": "",
      "src/common/key.ts": "",
      "sql/1_start.sql": "",
    },
    right: {
      "src/http/request-id.ts": "",
      "test/api/request-id.test.ts": "",
      "packages/python/src/sealpost_receiver/__init__.py": "",
      "sql/0001_first_start.sql": "",
      "sql/workspace/0001_first_start.sql": "",
    },
  },
  "read by Node": {
    wrong: { "src/http/a.ts": "for (const of of [1]) all(of);" },
    right: { "src/http/a.ts": "for (const one of [1]) all(one as number);" },
  },
  metrics: {
    wrong: {
      "src/base/metrics/queue.ts": 'registry.gauge({\n name: "sealpost_unseen",\n labels: {},\n})',
      "grafana/dashboards/a.json": '{"expr": "rate(sealpost_undeclared_total[5m]) + sealpost_unseen"}',
      "grafana/prometheus/b.yml": "expr: sealpost_unseens > 1",
    },
    right: {
      "src/base/metrics/queue.ts":
        'registry.gauge({\n name: "sealpost_due",\n labels: { lane: null },\n})\n' +
        'registry.histogram({\n name: "sealpost_wait_seconds",\n labels: {},\n})',
      "grafana/dashboards/a.json": '{"expr": "sealpost_due{lane=\\"idle\\", job=\\"x\\"}"}',
      "grafana/prometheus/alerts.yml": "expr: rate(sealpost_wait_seconds_bucket[5m]) > 1",
      "docs/operating.md": "| How large is the backlog? | `sealpost_due` |",
    },
  },
  weight: {
    wrong: {
      "README.md": "x\n".repeat(201),
      "src/base/config/variables.ts": "  A: optional(\n".repeat(48),
      "src/base/metrics/many.ts": 'registry.gauge({\n name: "a"'.repeat(53),
      "package-lock.json": JSON.stringify({
        packages: {
          "": { dependencies: Object.fromEntries(Array.from({ length: 24 }, (_, n) => [n, "1"])) },
        },
      }),
    },
    right: {
      "README.md": "x\n".repeat(200),
      "src/base/config/variables.ts": "  A: optional(\n".repeat(47),
      "src/base/metrics/many.ts": 'registry.gauge({\n name: "a"'.repeat(52),
    },
  },
  "lock file": {
    wrong: { "package-lock.json": locked({ version: "1.0.0" }) },
    right: { "package-lock.json": locked({ version: "1.0.0", integrity: SHA512 }) },
  },
};

describe("a planted breach", () => {
  test.each(rules)("of $name is caught, and its neighbour is not", ({ name }) => {
    const { wrong, right } = planted[name] ?? { wrong: {}, right: {} };
    const asFiles = (texts: Record<string, string>) =>
      Object.entries(texts).map(([path, text]) => ({ path, text }));
    const caught = new Set(
      rule(name)
        .find(asFiles(wrong))
        .map((breach) => breach.path),
    );
    expect(caught).toEqual(new Set(Object.keys(wrong)));
    expect(caught.size).toBeGreaterThan(0);
    expect(rule(name).find(asFiles(right))).toEqual([]);
  });
});

/** What decides; of a folder that is mutated whole, everything else in it, too. */
const MUTATED = [
  "src/base/model/backoff.ts",
  "src/delivery/schedule/{life,retry-schedule}.ts",
  "src/egress/rules/{address,host,target-url}.ts",
  "src/egress/post/result.ts",
  "src/signing/{delivery-inbox,event,sign,signature-header,system-clock}.ts",
  "src/signing/{verification-error,verification-input,verify,web}.ts",
  "src/delivery/webhook.ts",
  "src/delivery/{account-turns,lane,lanes}.ts",
  "src/http/idempotent-write.ts",
  "src/base/database/idempotency.ts",
  "src/workspace/model/roles.ts",
  "src/workspace/operations/workspace-operation.ts",
];

test("npm run mutants changes everything that decides, in every way, and asks for nine of ten", () => {
  const config = JSON.parse(readFileSync("test/mutants/stryker.config.json", "utf8"));
  const mutated = new Set(globSync(config.mutate));
  for (const each of MUTATED) {
    const [files, count] = [globSync(each), each.split(",").length];
    expect(files, each).toHaveLength(count);
    for (const file of files) expect(mutated).toContain(file);
  }
  expect(config.thresholds.break).toBe(90);
  for (const option of ["ignoreStatic", "ignorers", "mutator"]) expect(config).not.toHaveProperty(option);
});

// They are taken out by `-- --prove` alone, which nobody runs with every change.
const TAKEN_OUT = [
  ...PROTECTIONS.map((one) => ({ name: `faults: ${one.name}`, changes: [one] })),
  ...SCHEDULE_GUARDS.map((one) => ({ name: `schedules: ${one.name}`, changes: [one] })),
  ...HISTORY_GUARDS.map(({ name, changes }) => ({ name: `histories: ${name}`, changes })),
];
test.each(TAKEN_OUT)("what a proof takes out stands where it looks for it: $name", ({ changes }) => {
  for (const { path, text } of changes) expect(readFileSync(path, "utf8").split(text), path).toHaveLength(2);
});

test.each(PROTECTIONS)("what proves the faults is there: $name", ({ file }) => {
  expect(globSync(file)).toEqual([file]);
});
