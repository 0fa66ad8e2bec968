// An API in which tests write pages, make links to them and open those.
import { request } from "undici";
import { afterAll, beforeAll } from "vitest";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { type Json, startTestApi, type TestAccount, type TestApi } from "../support/sealpost-api.ts";

export let database: TestDatabase;
export let api: TestApi;
export let world: PageWorld;

/** For every test of the file that calls it. */
export function usePages(): void {
  beforeAll(async () => {
    database = await createTestDatabase();
    api = await startTestApi(database);
    world = pageWorld(api);
  });
  afterAll(async () => {
    await api.close();
    await database.drop();
  });
}

type Person = Pick<TestAccount, "key">;

type Opening = {
  readonly method?: "GET" | "HEAD" | "POST";
  readonly body?: string;
  readonly headers?: Readonly<Record<string, string>>;
};

export type PageWorld = ReturnType<typeof pageWorld>;

/** What tests of pages ask for, by whomever. */
export function pageWorld(api: TestApi) {
  const by = (who: Person = api.account) => ({ key: who.key });
  const made = async (path: string, body: unknown, who?: Person) => {
    const answer = await api.ask("POST", path, { ...by(who), body });
    if (answer.status !== 201) throw new Error(`${path}: ${answer.status} ${JSON.stringify(answer.body)}`);
    return answer.body;
  };
  const newSpace = async (who?: Person) => String((await made("/v1/spaces", { name: "with pages" }, who)).id);
  const newPage = async (markdown = "Text.", space?: string, who?: Person) => {
    const space_id = space ?? (await newSpace(who));
    return String((await made("/v1/pages", { space_id, title: "A page", markdown }, who)).id);
  };
  const publish = (page: string, who?: Person) => made(`/v1/pages/${page}/publish`, undefined, who);
  const newLink = (page: string, settings: Json = {}, who?: Person) =>
    made(`/v1/pages/${page}/links`, { label: "A link", ...settings }, who);
  const published = async (markdown?: string) => {
    const page = await newPage(markdown);
    return { page, version: await publish(page) };
  };
  /** A link to a new page. */
  const linked = async (settings: Json = {}, markdown?: string) => {
    const { page, version } = await published(markdown);
    return { page, version, link: await newLink(page, settings) };
  };
  const save = async (page: string, markdown: string) => {
    const { body } = await api.ask("GET", `/v1/pages/${page}`);
    const { revision, title } = body;
    return await api.ask("PUT", `/v1/pages/${page}/draft`, { body: { revision, title, markdown } });
  };
  const linkOf = async (id: unknown) => (await api.ask("GET", `/v1/page-links/${id}`)).body;
  /** As a browser opens it; fetch would not say another host. */
  const open = async ({ url }: Json, options: Opening = {}) => {
    const { pathname, host } = new URL(String(url));
    const { method = "GET", body = null, headers = {} } = options;
    const all = { host, ...headers };
    const answer = await request(new URL(pathname, api.url), { method, body, headers: all });
    return { status: answer.statusCode, headers: answer.headers, text: await answer.body.text() };
  };
  const send = (link: Json, password: string, headers: Record<string, string> = {}) =>
    open(link, {
      method: "POST",
      body: String(new URLSearchParams({ password })),
      headers: { "content-type": "application/x-www-form-urlencoded", ...headers },
    });
  return { newSpace, newPage, publish, newLink, published, linked, save, linkOf, open, send };
}
