// Can the suite fail? Takes one protection after the other out of a copy of the project, and runs what should notice.
import { execFile } from "node:child_process";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import { type Change, inCopy, without } from "../support/broken-twins.ts";

const run = promisify(execFile);

type Protection = Change & {
  readonly name: string;
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
    text: "await client.query(WAIT_FOR_STANDBY);",
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
  let failures = 0;
  const whole = new Map<string, boolean>();
  await inCopy(async (folder) => {
    for (const protection of PROTECTIONS.filter(isAsked)) {
      const withIt = whole.get(protection.scenario) ?? (await isGreen(folder, protection));
      whole.set(protection.scenario, withIt);
      const withoutIt = await without(folder, [protection], () => isGreen(folder, protection));
      const isProven = withIt && !withoutIt;
      if (!isProven) failures++;
      const colour = (isGreenNow: boolean) => (isGreenNow ? "green" : "red");
      tell(
        `${protection.scenario} is ${colour(withIt)} with ${protection.name}, ${colour(withoutIt)} without: ` +
          (isProven ? "it notices" : "IT PROVES NOTHING"),
      );
    }
  });
  return failures > 0 ? 1 : 0;
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
