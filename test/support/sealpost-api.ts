// The real API on a test database, without a process of its own.
import { randomUUID } from "node:crypto";
import { mkdtemp, rm } from "node:fs/promises";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Writable } from "node:stream";
import type pg from "pg";
import { pino } from "pino";
import { createAccount } from "../../src/accounts/accounts-sql.ts";
import { type ApiLimits, createApiServer } from "../../src/app/api-server.ts";
import { createApiKey } from "../../src/app/create-api-key.ts";
import { readConfig } from "../../src/base/config/config.ts";
import { createApiPool, readingLog } from "../../src/base/database/pools.ts";
import { scopes as everyScope, userScopes } from "../../src/base/model/api-keys.ts";
import { AccountNews } from "../../src/http/account-news.ts";
import { type TransferLimits, WORK_PLACES_MAX } from "../../src/http/limits.ts";
import type { TestDatabase } from "./database.ts";
import { fileHeaders } from "./file-headers.ts";
import { createTestUser, SECRETS_KEY } from "./installation.ts";
import { checkOutcome } from "./outcome-check.ts";

export type Json = Record<string, unknown>;

export type TestAccount = {
  readonly accountId: string;
  readonly secret: string;
  /** A user of this account, for whom `key` acts, with every scope that it can have. */
  readonly userId: string;
  readonly key: string;
  /** Acts for no user, with every scope. */
  readonly ownKey: string;
};

export type AskOptions = {
  /**
   * An API key; null sends none. Default: every scope of the API's first account, acting for its user only where
   * nobody else may ask.
   */
  readonly key?: string | null;
  /** Sent as JSON; a text or bytes are sent as they are. */
  readonly body?: unknown;
  /** In place of a body: sent as a file, with its digest. */
  readonly content?: Uint8Array;
  readonly headers?: Record<string, string>;
  /** Default: a fresh one for each write. */
  readonly idempotencyKey?: string | null;
};

export type Asked = {
  readonly status: number;
  readonly headers: Headers;
  readonly bytes: Buffer;
  /** The body as JSON; null where there is none. */
  readonly body: Json;
};

export type TestApi = {
  readonly url: string;
  readonly account: TestAccount;
  /** Where it keeps objects, in a folder `objects`. */
  readonly stateDir: string;
  /** Tells its readers of the feed; a test that has them told by the database connects the two. */
  readonly news: AccountNews;
  /** How many of them wait. */
  waiting(): number;
  /** Everything that it logged, as JSON. */
  readonly log: readonly Json[];
  /** Statements sent to the database so far. */
  statements(): readonly string[];
  ask(method: string, path: string, options?: AskOptions): Promise<Asked>;
  newAccount(): Promise<TestAccount>;
  /** Another user of an account, with a key of every scope that it can have. */
  newUser(accountId: string): Promise<Pick<TestAccount, "userId" | "key">>;
  /** `accountId` null: a staff key. It acts for no user. */
  newKey(accountId: string | null, scopes?: readonly string[], env?: Record<string, string>): Promise<string>;
  close(): Promise<void>;
};

/** With a mail server, to which the API does not talk. */
export const MAIL: Record<string, string> = {
  SMTP_URL: "smtp://127.0.0.1:1",
  NOTICES_FROM: "Sealpost <notices@example.com>",
  PUBLIC_URL: "https://api.example.com",
};

export type TestWorld = {
  readonly now?: () => number;
  readonly limits?: Partial<ApiLimits>;
  readonly transferLimits?: TransferLimits;
};

/** What only keys that act for a user may ask for. */
const NEEDS_USER = /^\/v1\/(?:spaces|documents|pages|page-links|workflows|workflow-runs)(?:[/?]|$)/;

const HOOK_KEY = /(?<=\/hooks\/).+/;

/** Listens on loopback. `env`: environment variables; by default with a very high rate limit. */
export async function startTestApi(
  database: TestDatabase,
  env: Record<string, string> = {},
  world: TestWorld = {},
): Promise<TestApi> {
  // Nothing listens at that port: no test asks a name server of the world.
  const ownDir = await mkdtemp(join(tmpdir(), "sealpost-api-"));
  const config = readConfig({
    STATE_DIR: ownDir,
    RATE_LIMIT_REQUESTS: "1000000",
    TARGET_DNS_SERVERS: "127.0.0.1:1",
    PAGES_URL: "http://pages.localhost",
    ...env,
  });
  const secretsKey = config.secretsKey?.export() ?? SECRETS_KEY;
  const log: Json[] = [];
  const statements: string[] = [];
  const options = { databaseUrl: database.url, applicationName: "test api", onError: () => undefined };
  const pool = createApiPool({ ...options, connectionsMax: WORK_PLACES_MAX + 3 });
  pool.on("connect", (client) => countStatements(client, statements));
  let waiting = 0;
  const news = new AccountNews(100, (count) => {
    waiting = count;
  });
  const app = await createApiServer({
    config,
    pool,
    logPool: readingLog(pool),
    secretsKey,
    publicUrl: "https://api.sealpost.test",
    log: pino({ level: "info" }, linesInto(log)),
    now: world.now ?? Date.now,
    limits: world.limits,
    ...(world.transferLimits && { transferLimits: world.transferLimits }),
    news,
    check: checkOutcome,
  });
  await app.listen({ host: "127.0.0.1", port: 0 });
  const url = `http://127.0.0.1:${(app.server.address() as AddressInfo).port}`;

  async function newKey(accountId: string | null, scopes = everyScope as readonly string[], keyEnv = env) {
    const asked = { accountId, name: null, scopes, expiresInSeconds: null };
    return (await createApiKey(database.pool, readConfig(keyEnv), asked)).apiKey;
  }
  async function newAccount(): Promise<TestAccount> {
    const { accountId, signingSecret } = await createAccount(database.pool, "test", secretsKey);
    const ownKey = await newKey(accountId);
    return { accountId, secret: signingSecret, ownKey, ...(await newUser(accountId)) };
  }
  async function newUser(accountId: string) {
    const { id: userId } = await createTestUser(database.pool, accountId);
    const asked = { accountId, userId, name: null, scopes: userScopes, expiresInSeconds: null };
    return { userId, key: (await createApiKey(database.pool, readConfig(env), asked)).apiKey };
  }
  const account = await newAccount();

  return {
    url,
    account,
    stateDir: config.stateDir,
    news,
    waiting: () => waiting,
    log,
    statements: () => [...statements],
    newKey,
    newAccount,
    newUser,
    ask: async (method, path, asked = {}) => {
      const key = NEEDS_USER.test(path) ? account.key : account.ownKey;
      const answer = await ask(url, method, path, { key, ...asked });
      // No test here means to provoke one.
      if (answer.status === 500)
        throw new Error(
          `${method} ${path.replace(HOOK_KEY, "…")} met a fault: ${JSON.stringify(log.at(-2))}`,
        );
      return answer;
    },
    close: async () => {
      await app.close();
      await pool.end();
      await rm(ownDir, { recursive: true });
    },
  };
}

/** One request to any API. */
export async function ask(url: string, method: string, path: string, options: AskOptions): Promise<Asked> {
  const {
    key,
    content,
    idempotencyKey = method === "GET" || method === "HEAD" ? null : randomUUID(),
  } = options;
  const body = content ?? options.body;
  const isRaw = typeof body === "string" || body instanceof Uint8Array;
  const response = await fetch(new URL(path, url), {
    method,
    headers: {
      ...(key == null ? {} : { authorization: `Bearer ${key}` }),
      ...(idempotencyKey === null ? {} : { "idempotency-key": idempotencyKey }),
      ...(body === undefined ? {} : { "content-type": "application/json" }),
      ...(content === undefined ? {} : fileHeaders(content)),
      ...options.headers,
    },
    redirect: "manual",
    ...(body === undefined ? {} : { body: isRaw ? (body as string) : JSON.stringify(body) }),
  });
  const bytes = Buffer.from(await response.arrayBuffer());
  const isJson = /json/.test(response.headers.get("content-type") ?? "") && bytes.length > 0;
  return {
    status: response.status,
    headers: response.headers,
    bytes,
    body: isJson ? (JSON.parse(bytes.toString()) as Json) : (null as unknown as Json),
  };
}

/** Every statement of a connection goes through its `query`. */
function countStatements(client: pg.ClientBase, statements: string[]): void {
  const query = client.query.bind(client) as (...args: unknown[]) => unknown;
  Object.assign(client, {
    query: (...args: unknown[]) => {
      const [first] = args;
      statements.push(typeof first === "string" ? first : String((first as { text?: string }).text));
      return query(...args);
    },
  });
}

function linesInto(log: Json[]): Writable {
  return new Writable({
    write: (line, _encoding, done) => {
      log.push(JSON.parse(String(line)));
      done();
    },
  });
}
