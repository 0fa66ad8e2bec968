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

const seenIn = (text: string) => /name="seen" value="([^"]+)"/.exec(text)?.[1] ?? "";

describe("the endpoint", () => {
  test("has headers of its own: one is added, refused, rotated and removed, and its value never shown", async () => {
    const hand = await visit();
    const path = `${hand.base}/endpoint/headers`;
    const first = await hand.get(path);
    expect(first.text).not.toContain("Remove");
    const form = {
      _key: formKey(first.text),
      seen: seenIn(first.text),
      name: " X-Gate ",
      value: "hush-hush",
      secret: "yes",
    };
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

  test("loses none of its headers where several are added at once, in pages that were opened before", async () => {
    const hand = await visit();
    const path = `${hand.base}/endpoint/headers`;
    const seen = seenIn((await hand.get(path)).text);
    const names = ["x-one", "x-two", "x-three", "x-four"];
    const added = names.map((name) => hand.post(path, { _key: name, seen, name, value: "seven" }));
    expect((await Promise.all(added)).map(({ status }) => status)).toEqual(names.map(() => 303));
    const { text } = await hand.get(path);
    for (const name of names) expect(text).toContain(`<code>${name}</code>`);
    // One that is removed while another is added, and the same form again, after which somebody has changed more.
    const form = { _key: "again", seen: seenIn(text), name: "x-five", value: "seven" };
    await Promise.all([
      hand.post(path, form),
      hand.post(`${path}/remove`, { _key: "r", seen, name: "x-one" }),
    ]);
    expect((await hand.post(path, { ...form, _key: "once more", value: "eight" })).status).toBe(303);
    const after = (await hand.get(path)).text;
    for (const name of [...names.slice(1), "x-five", "eight"])
      expect(after).toContain(`<code>${name}</code>`);
    expect(after).not.toContain("<code>x-one</code>");
  });

  test("keeps a URL that is changed while its signatures are", async () => {
    const hand = await visit();
    const url = `${receiver.url("/webhooks").href}?next`;
    const done = [
      hand.post(`${hand.base}/endpoint/change`, { _key: "a", url }),
      hand.post(`${hand.base}/endpoint/standard`, { _key: "b", to: "on" }),
    ];
    expect((await Promise.all(done)).map(({ status }) => status)).toEqual([303, 303]);
    const { text } = await hand.get(`${hand.base}/endpoint`);
    expect(text).toContain(`<code>${url}</code>`);
    expect(text).toContain("Stop signing as Standard Webhooks");
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
