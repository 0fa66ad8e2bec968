import pg from "pg";
import { onTestFinished } from "vitest";
import {
  type EmbeddedPostgres,
  type EmbeddedPostgresOptions,
  startEmbeddedPostgres,
} from "../../src/base/embedded/embedded.ts";
import { type Owner, type OwnerOptions, type OwnerProcess, startOwner } from "./owner.ts";

const settings = { fsync: "off" };

/** The servers of one test file, started here or in other processes, and stopped together. */
export function createEmbeddedServers() {
  const started: (EmbeddedPostgres | Owner)[] = [];
  return {
    start: async (options: EmbeddedPostgresOptions): Promise<EmbeddedPostgres> => {
      const server = await startEmbeddedPostgres({ settings, ...options });
      started.push(server);
      return server;
    },
    own: async (options: OwnerOptions, from: OwnerProcess = {}): Promise<Owner> => {
      const owner = await startOwner({ settings, ...options }, from);
      started.push(owner);
      return owner;
    },
    stopAll: async (): Promise<void> => {
      for (const server of started.splice(0)) await ("stop" in server ? server.stop() : server.kill());
    },
  };
}

export type Connection = {
  /** The first column of the first row. */
  value(sql: string): Promise<unknown>;
  /** Resolves when the server has cut the connection. */
  readonly lost: Promise<void>;
};

export async function connect({ databaseUrl }: { databaseUrl: string }): Promise<Connection> {
  const client = new pg.Client(databaseUrl);
  // A server that ends says so and then closes: two errors, of which the second must not end the run.
  const { promise: lost, resolve: lose } = Promise.withResolvers<void>();
  client.on("error", () => lose());
  await client.connect();
  onTestFinished(() => client.end().catch(() => undefined));
  const value = async (sql: string) => (await client.query({ text: sql, rowMode: "array" })).rows[0]?.[0];
  return { value, lost };
}

/** What a test writes before it stops a server, and looks for afterwards. */
export async function writeRow({ value }: Connection): Promise<void> {
  await value("drop table if exists kept");
  await value("create table kept as select 7 as n");
}

/** 7 if the row that `writeRow` wrote exists. */
export async function readRow(server: { databaseUrl: string }): Promise<unknown> {
  return await (await connect(server)).value("select n from kept");
}
