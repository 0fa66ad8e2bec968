import { globSync, readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { PROTECTIONS } from "./faults/prove.ts";
import { arrows, circles } from "./tidy/arrows.ts";
import { banRules } from "./tidy/bans.ts";
import { exceptions } from "./tidy/exceptions.ts";
import { lockFile } from "./tidy/lock-file.ts";
import { metrics } from "./tidy/metrics.ts";
import { fileLength, fileNames, lineLength, medianLength } from "./tidy/shapes.ts";
import { type Rule, readSourceFiles } from "./tidy/source-files.ts";

const rules: readonly Rule[] = [
  arrows,
  circles,
  ...banRules,
  lineLength,
  fileLength,
  medianLength,
  fileNames,
  metrics,
  lockFile,
];

function rule(name: string): Rule {
  const found = rules.find((candidate) => candidate.name === name);
  if (!found) throw new Error(`There is no rule "${name}".`);
  return found;
}

describe("the repository", () => {
  const files = readSourceFiles();

  test("is found", () => {
    expect(files.map((file) => file.path)).toContain("src/config/read-config.ts");
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
      "src/publish/analysis.ts": 'import { claim } from "../dispatch/claim.ts";',
      "src/api/keys.ts": 'import type { Key } from "../store/api-keys.ts";',
      "src/signing/header.ts": 'import { request } from "undici";',
      "src/egress/rules/address.ts": 'const config = await import("../../config/read-config.ts");',
      "src/store/deliveries.ts": 'import {\n  main,\n} from "../main.ts";',
      "src/config/table.ts": 'import { database } from "../../test/support/database.ts";',
      "src/operations/replays.ts": 'import { Command } from "@commander-js/extra-typings";',
      "src/leftovers/box.ts": "export const box = 1;",
      "src/app/serve.ts": 'import { spaces } from "../workspace/operations/spaces.ts";',
      "src/workspace/model/roles.ts": 'import { rows } from "../store/spaces.ts";',
      "src/workspace/box.ts": "export const box = 1;",
    },
    right: {
      "src/main.ts": 'import { createProgram } from "./cli/program.ts";',
      "src/cli/publish.ts": 'import { publish } from "../publish/publish.ts";',
      "src/publish/publish.ts": 'import { insert } from "../store/analyses.ts";',
      "src/store/secrets.ts": 'import { importSigningKey } from "../signing/index.ts";',
      "src/signing/header.ts": 'import { createHmac } from "node:crypto";',
      "src/app/areas.ts": 'import { spaces } from "../workspace/operations/spaces.ts";',
      "src/workspace/store/spaces.ts": 'import { roles } from "../model/roles.ts";',
      "src/egress/rules/url.ts":
        '// import { x } from "../../store/x.ts";\nimport { y } from "./address.ts";',
    },
  },
  circles: {
    wrong: {
      "src/store/a.ts": 'import type { B } from "./b.ts";',
      "src/store/b.ts": 'import { c } from "./c.ts";',
      "src/store/c.ts": 'export { a } from "./a.ts";',
    },
    right: {
      "src/store/d.ts": 'import { e } from "./e.ts"; import { f } from "./f.ts";',
      "src/store/e.ts": 'import { f } from "./f.ts";',
      "src/store/f.ts": "export const f = 1;",
    },
  },
  environment: {
    wrong: { "src/api/server.ts": "listen(process.env.PORT);" },
    right: {
      "src/main.ts": "readConfig(process.env);",
      "src/api/server.ts": "// never process.env\nlisten(config.port);",
    },
  },
  clock: {
    wrong: {
      "src/schedule/delay.ts": "const now = Date.now();",
      "src/schedule/due.ts": "const now = new Date( );",
      "src/schedule/text.ts": "const now = Date();",
      "src/schedule/bare.ts": "const now = new Date;",
    },
    right: {
      "src/main.ts": "const now = () => Date.now();",
      "src/schedule/delay.ts": "const due = new Date(now + 1); const t = performance.now();",
      "src/schedule/due.ts": 'isUpToDate(); parseDate(); throw new Error("Date.now() counts milliseconds");',
    },
  },
  chance: {
    wrong: { "src/schedule/jitter.ts": "return 0.8 + 0.4 * Math.random();" },
    right: { "src/schedule/jitter.ts": "return 0.8 + 0.4 * random();" },
  },
  sql: {
    wrong: {
      "src/dispatch/claim.ts": "const text = `\n  select id from sealpost.deliveries`;",
      "src/operations/keys.ts": 'pool.query("Insert into keys values (1)");',
      "src/cli/migrate.ts": 'await client.query("BEGIN");',
    },
    right: {
      "src/store/keys.ts": "pool.query(`select 1`);",
      "src/workspace/store/spaces.ts": "pool.query(`select 1`);",
      "src/cli/publish.ts": 'const text = "the selected one"; const q = request.query.limit;',
    },
  },
  webhook: {
    wrong: {
      "src/receivers/probing.ts": 'const headers = { "user-agent": "Sealpost/1" };',
      "src/demo/forgery.ts": 'const body = `{"created_at":"' + "$" + '{at}"}`;',
      "src/dispatch/deliver.ts": "const header = signatureHeader({ timestampSeconds, body, keys });",
    },
    right: {
      "src/webhook/headers.ts": 'headers["user-agent"] = "Sealpost/1";',
      "src/app/webhook-receiver.ts": "const header = request.headers[SIGNATURE_HEADER];",
    },
  },
  "queue internals": {
    wrong: {
      "src/store/gauges.ts": "const text = `select from graphile_worker._private_jobs`;",
      "src/store/migrate.ts": 'import { runMigrations } from "graphile-worker";',
    },
    right: {
      "src/store/graphile-worker.ts": 'import { run } from "graphile-worker";',
      "src/store/gauges.ts":
        '// as in graphile_worker\nimport { WAITING_WAKEUPS } from "./graphile-worker.ts";',
    },
  },
  "default export": {
    wrong: { "src/api/server.ts": "export default function serve() {}" },
    right: { "vitest.config.ts": "export default {};", "src/api/server.ts": "export function serve() {}" },
  },
  "vague name": {
    wrong: {
      "src/api/a.ts": `export class Key${"Manager"} {}`,
      "src/api/b.ts": `function string${"Utils"}() {}`,
    },
    right: { "src/api/a.ts": "const serviceTime = managed(helperless);" },
  },
  sleep: {
    wrong: {
      "test/api/a.test.ts": "\n    await sleep(100);",
      "test/api/b.test.ts": "\n  await new Promise((done) => setTimeout(done, 5));",
    },
    right: {
      "test/api/a.test.ts": "\n    await once(server, 'close');\n        await sleep(100);",
      "src/cli/a.ts": "\n  await sleep(100);",
    },
  },
  "put off": {
    wrong: { "sql/0001_start.sql": `-- ${"TO"}${"DO"}: an index` },
    right: { "README.md": "What is left to do" },
  },
  "mutant left out": {
    wrong: { "src/schedule/delay.ts": "// Stryker disable next-line all\nconst RATIO = 4;" },
    right: { "src/schedule/delay.ts": "// as Stryker says\nconst RATIO = 4;" },
  },
  "path of one machine": {
    wrong: { "README.md": `cd /${"home"}/ada/sealpost`, "src/cli/a.ts": `"/${"root"}/x"` },
    right: { "README.md": "see https://example.com/work/1 and ./tmp/x", "src/cli/a.ts": "join(tmpdir(), x)" },
  },
  "line length": {
    wrong: { "sql/0002_long.sql": `-- ${"x".repeat(118)}` },
    right: { "sql/0002_long.sql": `-- ${"x".repeat(117)}`, "README.md": "x".repeat(500) },
  },
  "file length": {
    wrong: { "src/api/long.ts": "x\n".repeat(401), "test/api/long.test.ts": "x\n".repeat(401) },
    right: { "src/api/long.ts": "x\n".repeat(400), "test/api/long.test.ts": "x\n".repeat(400) },
  },
  "median length": {
    wrong: { "src/a.ts": "x\n".repeat(100), "src/b.ts": "x\n".repeat(100), "src/c.ts": "x\n" },
    right: { "src/a.ts": "x\n".repeat(99), "src/b.ts": "x\n".repeat(300), "src/c.ts": "x\n" },
  },
  "file name": {
    wrong: {
      "src/api/requestId.ts": "",
      "src/api/utils.ts": "",
      "test/support/key-helper.ts": "",
      "src/common/key.ts": "",
      "sql/1_start.sql": "",
    },
    right: {
      "src/api/request-id.ts": "",
      "test/api/request-id.test.ts": "",
      "sql/0001_first_start.sql": "",
      "sql/workspace/0001_first_start.sql": "",
    },
  },
  metrics: {
    wrong: {
      "src/metrics/queue.ts": 'registry.gauge({\n name: "sealpost_unseen",\n labels: {},\n})',
      "grafana/dashboards/a.json": '{"expr": "rate(sealpost_undeclared_total[5m])"}',
      "grafana/prometheus/b.yml": "expr: sealpost_unseens > 1",
    },
    right: {
      "src/metrics/queue.ts":
        'registry.gauge({\n name: "sealpost_due",\n labels: { lane: null },\n})\n' +
        'registry.histogram({\n name: "sealpost_wait_seconds",\n labels: {},\n})',
      "grafana/dashboards/a.json": '{"expr": "sealpost_due{lane=\\"idle\\", job=\\"x\\"}"}',
      "grafana/prometheus/b.yml": "expr: rate(sealpost_wait_seconds_bucket[5m]) > 1",
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
    expect(caught).toEqual(new Set(name === "median length" ? ["src"] : Object.keys(wrong)));
    expect(caught.size).toBeGreaterThan(0);
    expect(rule(name).find(asFiles(right))).toEqual([]);
  });
});

/** What decides; of a folder that is mutated whole, everything else in it, too. */
const MUTATED = [
  "src/schedule/{backoff,life,retry-after,retry-schedule}.ts",
  "src/egress/rules/{address,host-name,port,target-url,unsafe-allowed-targets}.ts",
  "src/egress/post/{failures,result}.ts",
  "src/signing/{delivery-inbox,event,mismatch,sign,signature-header,system-clock,verification-error}.ts",
  "src/signing/{verification-input,verify,web,webhook-input}.ts",
  "src/webhook/{envelope,headers}.ts",
  "src/dispatch/{account-turns,lane,lanes}.ts",
  "src/api/{idempotency,idempotent-write}.ts",
  "src/store/idempotency.ts",
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

// They are taken out by `npm run faults -- --prove` alone, which nobody runs with every change.
test.each(PROTECTIONS)(
  "what the faults take out stands where they look for it: $name",
  ({ path, text, file }) => {
    const found = (name: string) => readSourceFiles().find((one) => one.path === name)?.text ?? "";
    expect(found(path).split(text), path).toHaveLength(2);
    expect(found(file), file).not.toBe("");
  },
);
