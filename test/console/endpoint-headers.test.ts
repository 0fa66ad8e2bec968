import { afterAll, describe, expect, test } from "vitest";
import { setEndpoint } from "../../src/delivery/endpoint-sql.ts";
import { SIGNATURE_HEADER, verifyWebhook } from "../../src/signing/index.ts";
import { enter } from "../support/console.ts";
import { targetsEnv } from "../support/dispatching.ts";
import { openApi } from "../support/open.ts";
import { startReceiver } from "../support/receiver.ts";

let secret = "";
const receiver = await startReceiver({
  handler: ({ body, headers }) => {
    try {
      verifyWebhook({ rawBody: body, header: headers[SIGNATURE_HEADER], secret });
      return { status: 204 };
    } catch {
      return { status: 400 };
    }
  },
});
const { database, api } = await openApi(targetsEnv([receiver]));
afterAll(() => receiver.close());

async function visit() {
  const account = await api.newAccount();
  secret = account.secret;
  await setEndpoint(database.pool, account.accountId, receiver.url("/webhooks").href);
  return await enter(api, { key: account.ownKey, permissions: ["webhooks:read", "webhooks:write"] });
}

const formKey = (text: string) => /name="_key" value="([^"]+)"/.exec(text)?.[1] ?? "";

describe("the endpoint", () => {
  test("has headers of its own: one is added, refused, rotated and removed, and its value never shown", async () => {
    const hand = await visit();
    const path = `${hand.base}/endpoint/headers`;
    const first = await hand.get(path);
    expect(first.text).not.toContain("Remove");
    const form = { _key: formKey(first.text), name: " X-Gate ", value: "hush-hush", secret: "yes" };
    for (const _ of [1, 2]) expect(await hand.post(path, form)).toMatchObject({ status: 303 });
    await hand.post(path, { _key: "b", name: "x-tenant", value: "seven" });
    const { text } = await hand.get(path);
    expect(text).toMatch(/<code>X-Gate<\/code>.*secret.*<code>x-tenant<\/code>.*<code>seven<\/code>/s);
    const refused = await hand.post(path, { _key: "c", name: "Host", value: "hush-hush", secret: "yes" });
    expect(refused.status).toBe(422);
    expect(refused.text).toMatch(
      /value="Host".*id="name-refusal">.*host is set by HTTP or by the service itself/s,
    );
    await hand.post(path, { _key: "d", name: "x-gate", value: "next-secret", secret: "yes" });
    await hand.post(`${hand.base}/endpoint/test`, { _key: "e" });
    await hand.post(`${hand.base}/endpoint/check`, { _key: "f" });
    expect(receiver.requests.at(-1)!.headers).toMatchObject({ "x-gate": "next-secret", "x-tenant": "seven" });
    await hand.post(`${path}/remove`, { _key: "g", name: "x-tenant" });
    const screen = await hand.get(`${hand.base}/endpoint`);
    expect(screen.text).toMatch(/Of your own: <code>x-gate<\/code>\./);
    const shown = [first, { text }, refused, screen, await hand.get(`${hand.base}/audit`)];
    expect(JSON.stringify(shown)).not.toContain("hush-hush");
  });

  test("is signed as Standard Webhooks, too, while its account wants that", async () => {
    const hand = await visit();
    const { text } = await hand.get(`${hand.base}/endpoint`);
    expect(text).toContain("Sign as Standard Webhooks, too");
    const done = await hand.post(`${hand.base}/endpoint/standard`, { _key: formKey(text), to: "on" });
    expect(done.headers.get("location")).toBe(`${hand.base}/endpoint?done=signed`);
    const screen = await hand.get(`${hand.base}/endpoint?done=signed`);
    expect(screen.text).toMatch(/is signed so\..*as Standard Webhooks has it.*Stop signing/s);
    await hand.post(`${hand.base}/endpoint/check`, { _key: "a" });
    expect(receiver.requests.at(-1)!.headers).toHaveProperty("webhook-signature");
    await hand.post(`${hand.base}/endpoint/standard`, { _key: "b", to: "off" });
    expect((await hand.get(`${hand.base}/endpoint`)).text).toContain("Sign as Standard Webhooks, too");
  });
});
