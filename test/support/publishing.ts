import type { ClientBase, Pool } from "pg";

type Database = Pool | ClientBase;

/** An account with a current signing secret row (its sealed text is not a real one) and, if given, an endpoint. */
export async function insertAccount(database: Database, endpointUrl?: string): Promise<string> {
  const { rows } = await database.query<{ id: string }>(
    "insert into sealpost.accounts (name) values ('test') returning id",
  );
  const accountId = rows[0]!.id;
  if (endpointUrl !== undefined) {
    await database.query("insert into sealpost.endpoints (account_id, url) values ($1, $2)", [
      accountId,
      endpointUrl,
    ]);
  }
  return accountId;
}

/** The SQL form that a pipeline uses. */
export async function publish(
  database: Database,
  accountId: string,
  analysis: string,
  webhookUrl: string | null = null,
): Promise<string> {
  const { rows } = await database.query<{ id: string }>(
    "select sealpost.publish_analysis($1, $2, $3) as id",
    [accountId, analysis, webhookUrl],
  );
  return rows[0]!.id;
}

export async function publishMany(
  database: Database,
  accountIds: string[],
  analyses: string[],
  webhookUrls: (string | null)[],
): Promise<string[]> {
  const { rows } = await database.query<{ ids: string[] }>(
    "select sealpost.publish_analyses($1, $2, $3) as ids",
    [accountIds, analyses, webhookUrls],
  );
  return rows[0]!.ids;
}
