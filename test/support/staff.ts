// Support staff as the console meets them: with a key, or vouched for by a proxy in front.
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { exportJWK, generateKeyPair, type JWTPayload, SignJWT } from "jose";
import { type Got, type Hand, postForm, request } from "./console.ts";
import type { TestApi } from "./sealpost-api.ts";

const ISSUER = "https://proxy.example.com";
const AUDIENCE = "support.example.com";
export const ASSERTION_HEADER = "x-staff-assertion";

/** By a staff key, or with other headers by what they say. */
export async function signIn(
  api: TestApi,
  form: Record<string, string>,
  headers: Record<string, string> = {},
): Promise<Got & { readonly cookie: string }> {
  const got = await postForm(api.url, "/console/staff/sign-in", form, headers);
  return { ...got, cookie: (got.headers.get("set-cookie") ?? "").split(";")[0] ?? "" };
}

export async function enterAsStaff(
  api: TestApi,
  form: Record<string, string>,
  always: Record<string, string> = {},
): Promise<Hand> {
  const { status, cookie } = await signIn(api, form, always);
  if (status !== 303) throw new Error(`not signed in: ${status}`);
  return {
    cookie,
    base: "/console/staff",
    get: (path, headers = {}) => request(api.url, "GET", path, { cookie, ...always, ...headers }),
    post: (path, form = {}, headers = {}) => postForm(api.url, path, form, { cookie, ...always, ...headers }),
  };
}

type Members = Readonly<Record<string, unknown>>;

export type StaffProxy = {
  /** For the API. */
  readonly env: Record<string, string>;
  /** How often its keys were asked for. */
  asked(): number;
  /** What it answers instead of its keys; null: its keys. */
  answerWith(body: string | "nothing" | null): void;
  /** Signed by the proxy; members replace the usual ones, undefined takes one away. */
  assert(members?: Members): Promise<string>;
  /** Signed by somebody else, who calls the key the same. */
  forge(members?: Members): Promise<string>;
  close(): Promise<void>;
};

const KEY_ID = "k-1";

export async function startStaffProxy(): Promise<StaffProxy> {
  const [own, other] = [await generateKeyPair("ES256"), await generateKeyPair("ES256")];
  const keys = JSON.stringify({ keys: [{ ...(await exportJWK(own.publicKey)), kid: KEY_ID, alg: "ES256" }] });
  let answer: string | null = null;
  let count = 0;
  const server = createServer((_request, response) => {
    count += 1;
    if (answer === "nothing") return;
    response.setHeader("content-type", "application/json").end(answer ?? keys);
  });
  server.listen(0, "127.0.0.1");
  await new Promise((resolve) => server.once("listening", resolve));
  const { port } = server.address() as AddressInfo;
  const sign = (key: typeof own.privateKey, members: Members) => {
    const now = Math.floor(Date.now() / 1_000);
    const usual = {
      iss: ISSUER,
      aud: AUDIENCE,
      sub: "u-7",
      name: "Sam Support",
      groups: ["support"],
      exp: now + 600,
    };
    return new SignJWT({ ...usual, ...members } as JWTPayload)
      .setProtectedHeader({ alg: "ES256", kid: KEY_ID })
      .sign(key);
  };
  const settings = {
    header: ASSERTION_HEADER,
    issuer: ISSUER,
    audience: AUDIENCE,
    jwks_url: `http://127.0.0.1:${port}/keys`,
    scopes: {
      support: ["staff:read", "webhooks:read", "webhooks:replay", "audit:read"],
      readers: ["webhooks:read"],
      leads: ["staff:read"],
    },
  };
  return {
    env: {
      STAFF_JWT: JSON.stringify(settings),
    },
    asked: () => count,
    answerWith: (body) => {
      answer = body;
    },
    assert: (members = {}) => sign(own.privateKey, members),
    forge: (members = {}) => sign(other.privateKey, members),
    close: async () => {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
