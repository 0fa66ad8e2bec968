// A pipeline that does as it is told on the command line, says how far it came, and then waits to be killed:
// `commit`: publishes and commits; `leave-open`: publishes, and its transaction stays open.
import pg from "pg";

const [databaseUrl, end, accountId, ...analyses] = process.argv.slice(2);
const client = new pg.Client({ connectionString: databaseUrl! });
await client.connect();
await client.query("begin");
const { rows } = await client.query<{ ids: string[] }>(
  "select sealpost.publish_analyses($1, $2, $3) as ids",
  [analyses.map(() => accountId), analyses, analyses.map(() => null)],
);
if (end === "commit") await client.query("commit");
process.send!(rows[0]!.ids);
// Whoever waits for nothing would end, and end its session politely.
setInterval(() => undefined, 60_000);
