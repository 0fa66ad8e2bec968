// The console as a viewer meets it: a link made with a key, opened by a browser or by hand.
import type { TestApi } from "./sealpost-api.ts";

export type LinkWish = {
  readonly key?: string;
  readonly permissions?: readonly string[];
  readonly [member: string]: unknown;
};

/** The link's address at the test API. */
export async function newLink(api: TestApi, { key, ...wish }: LinkWish = {}): Promise<URL> {
  const body = { viewer: { id: "u-1", label: "Sam Viewer" }, ...wish };
  const asked = await api.ask("POST", "/v1/console/links", { body, key: key ?? api.account.ownKey });
  if (asked.status !== 201) throw new Error(`no link: ${asked.status} ${asked.bytes}`);
  const { pathname, search, hash } = new URL(asked.body.url as string);
  return new URL(pathname + search + hash, api.url);
}

export type Got = {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
};

/** A viewer without a browser: a cookie, and the headers that a browser would send. */
export type Hand = {
  readonly cookie: string;
  readonly base: string;
  get(path: string, headers?: Record<string, string>): Promise<Got>;
  post(path: string, form?: Record<string, string>, headers?: Record<string, string>): Promise<Got>;
};

export async function enter(api: TestApi, wish: LinkWish = {}): Promise<Hand> {
  const link = await newLink(api, wish);
  const entered = await postForm(api.url, "/console/enter", { t: tokenOf(link) });
  const cookie = (entered.headers.get("set-cookie") ?? "").split(";")[0] ?? "";
  const location = entered.headers.get("location");
  if (entered.status !== 303 || location === null) throw new Error(`not entered: ${entered.status}`);
  const base = /^\/console\/a\/[^/]+/.exec(location)![0];
  return {
    cookie,
    base,
    get: (path, headers = {}) => request(api.url, "GET", path, { cookie, ...headers }),
    post: (path, form = {}, headers = {}) => postForm(api.url, path, form, { cookie, ...headers }),
  };
}

export function tokenOf(link: URL): string {
  return new URLSearchParams(link.hash.slice(1)).get("t") ?? "";
}

/** As a page of the same origin posts it. */
export async function postForm(
  url: string,
  path: string,
  form: Record<string, string>,
  headers: Record<string, string> = {},
): Promise<Got> {
  const type = "application/x-www-form-urlencoded";
  const given = { "content-type": type, "sec-fetch-site": "same-origin", ...headers };
  return await request(url, "POST", path, given, new URLSearchParams(form).toString());
}

export async function request(
  url: string,
  method: string,
  path: string,
  headers: Record<string, string>,
  body?: string,
): Promise<Got> {
  const response = await fetch(new URL(path, url), {
    method,
    headers,
    redirect: "manual",
    ...(body === undefined ? {} : { body }),
  });
  return { status: response.status, headers: response.headers, text: await response.text() };
}
