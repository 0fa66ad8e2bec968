import type { Command } from "@commander-js/extra-typings";
import type { Pool } from "pg";
import { type Announce, createAnnounce } from "../app/announcements.ts";
import { childPlans } from "../app/child-plans.ts";
import { createApiKey } from "../app/create-api-key.ts";
import { startOwnDatabase } from "../app/own-database.ts";
import { prepareDatabase, requireSecretsKey } from "../app/prepare-database.ts";
import type { ProcessContext } from "../app/process-context.ts";
import { secretsKeyOf } from "../app/state-folder.ts";
import { type ChildNews, supervise } from "../app/supervisor.ts";
import { inColumns } from "../app/terminal-text.ts";
import { UsageError } from "../app/usage-error.ts";
import type { Config } from "../config/config.ts";
import { readConfig } from "../config/read-config.ts";
import { scopes } from "../model/scopes.ts";
import { abortableDelay, createBackoff } from "../schedule/backoff.ts";
import { createAccount, hasAccounts } from "../store/accounts.ts";
import { createGeneralPool } from "../store/pools.ts";

/** A dispatcher ends within the deadline of its attempts and 2 s; then there is no more reason to wait. */
const graceBeyondDeadlineMs = 5_000;

export function addStartCommand(program: Command, context: ProcessContext): void {
  program
    .command("start")
    .description(
      "run the service: the API and a dispatcher, and a database of its own when DATABASE_URL is unset",
    )
    .option("--json", "say what happens in JSON, a line each")
    .action(async (options) => {
      const asked = context.untilAskedToEnd();
      const announce = createAnnounce(context, options);
      asked.addEventListener("abort", () =>
        announce("stopping", {}, "Stopping: what is under way is finished first."),
      );
      try {
        await run(context, asked, announce);
      } catch (error) {
        // Whoever asks it to end in the middle of its start cuts things short, and that is no failure.
        if (!asked.aborted) throw error;
      }
      announce("stopped", {}, "Stopped.");
    });
}

async function run(context: ProcessContext, asked: AbortSignal, announce: Announce): Promise<void> {
  const config = readConfig(context.env);
  await secretsKeyOf(config);
  warnOfUnsafe(config, announce);
  const own =
    config.databaseUrl === null ? await startOwnDatabase(config.stateDir, context.random, announce) : null;
  const databaseUrl = own?.databaseUrl ?? config.databaseUrl ?? "";
  try {
    await untilReachable(
      () => prepare(databaseUrl, config, own !== null, announce),
      context,
      asked,
      announce,
    );
    const code = await supervise({
      children: childPlans(context, config, databaseUrl),
      asked,
      hear: (news) => hear(news, announce),
      random: context.random,
      graceMs: config.attemptDeadlineMs + graceBeyondDeadlineMs,
    });
    context.setExitCode(code);
  } finally {
    await own?.stop();
  }
}

function warnOfUnsafe(config: Config, announce: Announce): void {
  if (!config.unsafeAllowedTargets) return;
  const targets = config.unsafeAllowedTargets.join(", ");
  announce(
    "unsafe",
    { targets },
    `UNSAFE: webhooks may go to ${targets}, public or not (UNSAFE_ALLOWED_TARGETS).`,
  );
}

/** Brings the schema up to date and, on an own database that nobody has used yet, makes a first account. */
async function prepare(
  databaseUrl: string,
  config: Config,
  isOwn: boolean,
  announce: Announce,
): Promise<void> {
  const pool = createGeneralPool({
    databaseUrl,
    connectionsMax: 2,
    applicationName: "sealpost start",
    onError: () => undefined,
  });
  try {
    const applied = await prepareDatabase(pool, databaseUrl, config, () => undefined);
    const files = applied.length === 1 ? "1 file" : `${applied.length} files`;
    if (applied.length > 0)
      announce("migrated", { applied }, `The database's schema is up to date (${files} applied).`);
    await requireSecretsKey(pool, await secretsKeyOf(config));
    if (isOwn && !(await hasAccounts(pool))) await makeFirstAccount(pool, config, announce);
  } finally {
    await pool.end();
  }
}

async function makeFirstAccount(pool: Pool, config: Config, announce: Announce): Promise<void> {
  const { accountId, signingSecret } = await createAccount(pool, "First account", await secretsKeyOf(config));
  const { keyId, apiKey } = await createApiKey(pool, config, {
    accountId,
    name: "First key",
    scopes,
    expiresInSeconds: null,
  });
  const fields = { account_id: accountId, key_id: keyId, api_key: apiKey, signing_secret: signingSecret };
  const columns = inColumns({ account: accountId, "API key": apiKey, "signing secret": signingSecret });
  announce(
    "first_account",
    fields,
    `\nThis is the first start, so there is a first account now. Its key is shown this once:\n\n${columns}\n`,
  );
}

/** Tries again for as long as it is the database that does not answer; a mistake is for people to mend. */
async function untilReachable(
  work: () => Promise<void>,
  { random }: ProcessContext,
  asked: AbortSignal,
  announce: Announce,
): Promise<void> {
  const backoff = createBackoff({ baseMs: 500, maxMs: 5_000 }, random);
  while (!asked.aborted) {
    try {
      return await work();
    } catch (error) {
      if (error instanceof UsageError) throw error;
      const ms = backoff.nextMs();
      const reason = reasonOf(error);
      announce(
        "database_away",
        { reason },
        `The database cannot be used (${reason}); trying again in ${(ms / 1_000).toFixed(1)} s.`,
      );
      await abortableDelay(ms, asked);
    }
  }
}

function reasonOf(error: unknown): string {
  const { code, message } = error as NodeJS.ErrnoException;
  return message || code || "no answer";
}

/** How a child ends that did as it was asked; a second signal may reach it on its way out. */
const ends = ["exit code 0", "SIGTERM", "SIGINT", "SIGHUP"];

function hear(news: ChildNews, announce: Announce): void {
  const { kind, name } = news;
  switch (kind) {
    case "started":
      return;
    case "told": {
      const { listening } = news.message as { listening?: string };
      const where = listening ? ` at ${listening}` : "";
      announce("running", { name, pid: news.pid, url: listening ?? null }, `The ${name} runs${where}.`);
      return;
    }
    case "ended": {
      const { how, againInMs } = news;
      const why = ends.includes(how) ? "" : ` (${how})`;
      const next = againInMs === null ? "" : ` Starting it again in ${(againInMs / 1_000).toFixed(1)} s.`;
      announce("ended", { name, how, again_in_ms: againInMs }, `The ${name} ended${why}.${next}`);
      return;
    }
    default:
      kind satisfies never;
  }
}
