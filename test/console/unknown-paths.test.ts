import { describe, expect, test } from "vitest";
import { enter, request } from "../support/console.ts";
import { openApi } from "../support/open.ts";
import { enterAsStaff } from "../support/staff.ts";

const { api } = await openApi();
const permissions = ["webhooks:read", "webhooks:replay", "audit:read"];
const HTML = "text/html; charset=utf-8";
const typeOf = ({ headers }: { readonly headers: Headers }) => headers.get("content-type");

describe("an address of the console that is none", () => {
  test.each(["/console", "/console/", "/console/nothing", "/console/a", "/console/enter/more?x=1"])(
    "%s is a page, for whoever asks",
    async (path) => {
      const got = await request(api.url, "GET", path, { accept: "text/html" });
      expect([got.status, typeOf(got)]).toEqual([404, HTML]);
      expect(got.text).toContain("<h1>Not found</h1>");
      expect(got.headers.get("content-security-policy")).toContain("frame-ancestors 'none'");
    },
  );

  test.each(["/nothing", "/deliveries/1/nothing", "/deliveries/1/replay", "/leave", "/"])(
    "is a page of the account with a way back: %s",
    async (path) => {
      const hand = await enter(api, { permissions });
      const got = await hand.get(hand.base + path);
      expect([got.status, typeOf(got)]).toEqual([404, HTML]);
      expect(got.text).toContain('aria-label="Console"');
      expect(got.text).toContain(`<a class="button" href="${hand.base}/deliveries">Back to deliveries</a>`);
    },
  );

  test("leads back to what the session may see, and with no session says that it has ended", async () => {
    const hand = await enter(api, { permissions: ["audit:read"], path: "/audit" });
    const { text } = await hand.get(`${hand.base}/nothing`);
    expect(text).toContain(`href="${hand.base}/audit">Back to changes</a>`);
    expect((await hand.get(`${hand.base}/deliveries`)).text).toContain("Back to changes");
    const stranger = await request(api.url, "GET", `${hand.base}/nothing`, {});
    expect([stranger.status, stranger.text.includes("This session has ended")]).toEqual([401, true]);
    expect(stranger.text).not.toContain("Back to");
  });

  test("leads staff to their first page, and with no session asks for a key", async () => {
    const staff = await enterAsStaff(api, { key: await api.newKey(null) });
    const account = `/console/staff/a/${api.account.accountId}`;
    const back = 'href="/console/staff">Back to support</a>';
    for (const path of ["/console/staff/nothing", `/console/staff/a/${"0".repeat(36)}/deliveries`]) {
      const got = await staff.get(path);
      expect([path, got.status, got.text.includes(back)]).toEqual([path, 404, true]);
    }
    const inAccount = await staff.get(`${account}/nothing`);
    expect(inAccount.text).toContain(`href="${account}/deliveries">Back to deliveries</a>`);
    expect((await staff.get(account)).headers.get("location")).toBe(`${account}/deliveries`);
    const stranger = await request(api.url, "GET", "/console/staff/nothing", {});
    expect([stranger.status, stranger.text.includes("Sign in to support")]).toEqual([401, true]);
  });

  test("with an id that is none is not found, either", async () => {
    const hand = await enter(api, { permissions });
    for (const path of ["/deliveries/7", "/replays/try"]) {
      const { text } = await hand.get(hand.base + path);
      expect([path, text.includes("<h1>Not found</h1>"), text.includes("UUID")]).toEqual([path, true, false]);
    }
  });

  test("of an account alone leads to its log", async () => {
    const hand = await enter(api, { permissions });
    const got = await hand.get(hand.base);
    expect([got.status, got.headers.get("location")]).toEqual([303, `${hand.base}/deliveries`]);
  });

  test.each(["/nothing", "/consoles", "/v1/nothing"])("elsewhere is a problem document: %s", async (path) => {
    const got = await request(api.url, "GET", path, { accept: "text/html" });
    expect([got.status, typeOf(got)]).toEqual([404, "application/problem+json"]);
  });
});
