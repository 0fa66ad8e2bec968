// Can the suite fail? Takes one protection after the other out of a copy of the project, and runs what should notice.
import { execFile } from "node:child_process";
import { cp, mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const run = promisify(execFile);
const ROOT = fileURLToPath(new URL("../..", import.meta.url));

export type Guard = {
  readonly name: string;
  readonly path: string;
  /** What stands there, and what stands there without it. */
  readonly text: string;
  readonly without: string;
};

type Protection = Guard & {
  /** Who notices: a test file and the name of the scenario in it. */
  readonly file: string;
  readonly scenario: string;
};

const ANSWER_BEFORE_COMMIT = `    (async (work) => {
      const client = await (database as Pool).connect();
      await client.query("begin");
      const answer = await work(client);
      setTimeout(() => client.query("commit").catch(() => undefined).finally(() => client.release()), 20);
      return answer;
    })((client) =>
`;
const PARTITIONS = { file: "test/partitions/partitions.slow.test.ts" };

export const PROTECTIONS: readonly Protection[] = [
  {
    name: "the fence",
    path: "src/delivery/record-sql.ts",
    text: " and o.lease_token = i.lease_token",
    without: "",
    file: "test/faults/dispatchers.slow.test.ts",
    scenario: "late-result",
  },
  {
    name: "the lease sweep",
    path: "sql/0010_delivery.sql",
    text: "and wake_at <= at and due_at <= at and (lease_until is null or lease_until <= at)",
    without: "and wake_at <= at and due_at <= at and lease_until is null",
    file: "test/faults/dispatchers.slow.test.ts",
    scenario: "killed-before-recording",
  },
  {
    name: "the answer after the commit",
    path: "src/delivery/analyses-sql.ts",
    text: "    onConnection(database, (client) =>\n",
    without: ANSWER_BEFORE_COMMIT,
    file: "test/faults/publishing.slow.test.ts",
    scenario: "publishing-killed",
  },
  {
    name: "the address check",
    path: "src/egress/rules/address.ts",
    text: "  switch (isIP(address)) {\n",
    without: '  if (address !== "") return { verdict: "allow" };\n  switch (isIP(address)) {\n',
    file: "test/faults/receivers.slow.test.ts",
    scenario: "bad-names",
  },
  {
    name: "the answer after the commit that the standby has",
    path: "src/delivery/analyses-sql.ts",
    text: "    onConnection(database, (client) =>\n",
    without: ANSWER_BEFORE_COMMIT,
    ...PARTITIONS,
    scenario: "failover",
  },
  {
    name: "the hang-up when a commit's wait for the standby is cancelled",
    path: "src/base/database/timed-client.ts",
    text: "if (routine !== NOT_ON_STANDBY) return;",
    without: "if (routine !== null) return;",
    ...PARTITIONS,
    scenario: "failover",
  },
  {
    name: "the wait before an answer is repeated",
    path: "src/base/database/idempotency.ts",
    text: "await client.query(AFTER_ALL_ELSE);",
    without: "await client.query('select 1');",
    ...PARTITIONS,
    scenario: "failover",
  },
  {
    name: "the wait before an analysis is published again",
    path: "sql/0010_delivery.sql",
    text: "    perform pg_logical_emit_message(true, 'sealpost', '');\n",
    without: "",
    ...PARTITIONS,
    scenario: "failover",
  },
  {
    name: "the limit on waiting for an answer",
    path: "src/base/database/timed-client.ts",
    text: "}, ownMs ?? answerMs);",
    without: "}, 2 ** 30);",
    ...PARTITIONS,
    scenario: "line",
  },
];

/** Returns 0 when every protection that was asked for was missed by its scenario. */
export async function prove(
  tell: (line: string) => void,
  isAsked = ({ file }: Protection) => file !== PARTITIONS.file,
): Promise<number> {
  const folder = await mkdtemp(join(tmpdir(), "sealpost-prove-"));
  let failures = 0;
  const whole = new Map<string, boolean>();
  try {
    await copyProject(folder);
    for (const protection of PROTECTIONS.filter(isAsked)) {
      const withIt = whole.get(protection.scenario) ?? (await isGreen(folder, protection));
      whole.set(protection.scenario, withIt);
      const path = join(folder, protection.path);
      const text = await readFile(path, "utf8");
      if (!text.includes(protection.text))
        throw new Error(`${protection.path} no longer has ${protection.text}`);
      await writeFile(path, text.replace(protection.text, protection.without));
      const withoutIt = await isGreen(folder, protection);
      await writeFile(path, text);
      const isProven = withIt && !withoutIt;
      if (!isProven) failures++;
      const colour = (isGreenNow: boolean) => (isGreenNow ? "green" : "red");
      tell(
        `${protection.scenario} is ${colour(withIt)} with ${protection.name}, ${colour(withoutIt)} without: ` +
          (isProven ? "it notices" : "IT PROVES NOTHING"),
      );
    }
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
  return failures > 0 ? 1 : 0;
}

/** Everything that is in the repository or would be, as it is now. */
export async function copyProject(folder: string): Promise<void> {
  const { stdout } = await run("git", ["ls-files", "--cached", "--others", "--exclude-standard", "-z"], {
    cwd: ROOT,
    maxBuffer: 64 * 1024 * 1024,
  });
  for (const path of stdout.split("\0").filter((one) => one !== "" && one !== "node_modules")) {
    await cp(join(ROOT, path), join(folder, path), { recursive: true }).catch((error) => {
      // Deleted, and not yet committed.
      if (error.code !== "ENOENT") throw error;
    });
  }
  // With what was built and unpacked beside it, which the whole run wants.
  for (const name of ["node_modules", ".cache"]) await symlink(join(ROOT, name), join(folder, name), "dir");
}

async function isGreen(folder: string, { file, scenario }: Protection): Promise<boolean> {
  const vitest = join(folder, "node_modules/vitest/vitest.mjs");
  // The whole name, as other scenarios begin with the same words.
  const args = [vitest, "run", "--mode=all", file, "--testNamePattern", ` ${scenario}: `];
  const { stdout } = await run(process.execPath, args, { cwd: folder, maxBuffer: 64 * 1024 * 1024 }).catch(
    (error: { stdout: string; code: number }) => ({ stdout: `exit ${error.code} ${error.stdout}` }),
  );
  if (/No test files found|no tests/i.test(stdout))
    throw new Error(`nothing was run in ${dirname(file)}: ${stdout}`);
  return !stdout.startsWith("exit ");
}
