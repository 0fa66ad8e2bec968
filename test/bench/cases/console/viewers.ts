// Viewers of an account's console, without a browser: a session each, and the pages that they open.
import { Pool } from "undici";
import { openConsole } from "../../../../src/app/console-sessions.ts";
import { postForm, tokenOf } from "../../../support/console.ts";
import type { SealpostProcess } from "../../../support/sealpost-process.ts";
import type { BenchDatabase } from "../../database.ts";

const LINK_SECONDS = 60;

export type Viewers = {
  /** The address of the account's part, as `/console/a/ACCOUNT`. */
  readonly base: string;
  /** Opens a page, as that viewer, and resolves with its text once it is whole. */
  open(viewer: number, path: string): Promise<Opened>;
  /** As the page's script asks for it again. `tag`: what it has of it already; null: nothing. */
  refresh(viewer: number, path: string, tag: string | null): Promise<Opened>;
  close(): Promise<void>;
};

export type Opened = { readonly status: number; readonly text: string; readonly tag: string | null };

export async function enterViewers(
  database: BenchDatabase,
  api: SealpostProcess,
  accountId: string,
  count: number,
): Promise<Viewers> {
  const cookies: string[] = [];
  for (let entered = 0; entered < count; entered++) cookies.push(await enter(database, api, accountId));
  const connections = new Pool(api.url, { connections: count });
  const ask = async (
    viewer: number,
    path: string,
    asked: Readonly<Record<string, string>>,
  ): Promise<Opened> => {
    const headers = { cookie: cookies[viewer % count] ?? "", ...asked };
    const {
      statusCode,
      headers: answered,
      body,
    } = await connections.request({ path, method: "GET", headers });
    const text = await body.text();
    // A search that finds one thing leads to it.
    if (statusCode === 303) return await ask(viewer, String(answered.location), asked);
    if (statusCode !== 200 && statusCode !== 304) throw new Error(`${path}: ${statusCode} ${text}`);
    return { status: statusCode, text, tag: answered.etag?.toString() ?? null };
  };
  return {
    base: `/console/a/${accountId}`,
    open: (viewer, path) => ask(viewer, path, {}),
    refresh: (viewer, path, tag) =>
      ask(viewer, path, { "x-refresh": "1", ...(tag !== null && { "if-none-match": tag }) }),
    close: () => connections.close(),
  };
}

async function enter({ pool }: BenchDatabase, api: SealpostProcess, accountId: string): Promise<string> {
  const { url } = await openConsole(pool, accountId, { publicUrl: api.url, linkSeconds: LINK_SECONDS });
  const entered = await postForm(api.url, "/console/enter", { t: tokenOf(new URL(url)) });
  const cookie = entered.headers.get("set-cookie")?.split(";")[0];
  if (cookie === undefined) throw new Error(`A viewer was not let in: ${entered.status}`);
  return cookie;
}
