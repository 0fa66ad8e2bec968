import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { setEndpoint } from "../../src/delivery/endpoint-sql.ts";
import { SIGNATURE_HEADER, verifyWebhook } from "../../src/signing/index.ts";
import { enter, type Hand } from "../support/console.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { targetsEnv } from "../support/dispatching.ts";
import { countRows, publish, rowsOf } from "../support/installation.ts";
import { type Receiver, startReceiver } from "../support/receiver.ts";
import { startTestApi, type TestAccount, type TestApi } from "../support/sealpost-api.ts";

const PERMISSIONS = ["webhooks:read", "webhooks:write", "webhooks:secrets"];
/** Every form of the screen. */
const FORMS = [
  "change",
  "remove",
  "test",
  "pause",
  "resume",
  "check",
  "secret",
  "secret/rotate",
  "standard",
  "headers",
  "headers/remove",
];

let database: TestDatabase;
let api: TestApi;
/** Accepts whatever comes. */
let gullible: Receiver;
/** Verifies with the secret of the account that it was told. */
let careful: Receiver;
let carefulSecret = "";
/** Answers once it is let. */
let held: Receiver;
const letGo = Promise.withResolvers<void>();

beforeAll(async () => {
  database = await createTestDatabase();
  gullible = await startReceiver();
  careful = await startReceiver({
    handler: ({ body, headers }) => {
      try {
        verifyWebhook({ rawBody: body, header: headers[SIGNATURE_HEADER], secret: carefulSecret });
        return { status: 204 };
      } catch {
        return { status: 400 };
      }
    },
  });
  held = await startReceiver({ handler: () => letGo.promise.then(() => ({ status: 204 })) });
  api = await startTestApi(database, targetsEnv([gullible, careful, held]));
});
afterAll(async () => {
  await api.close();
  await Promise.all([gullible.close(), careful.close(), held.close()]);
  await database.drop();
});

type Visit = Hand & { readonly account: TestAccount };

/** A session of a new account; `url` null: without an endpoint. */
async function visit(url: string | null, permissions: readonly string[] = PERMISSIONS): Promise<Visit> {
  const account = await api.newAccount();
  if (url !== null) await setEndpoint(database.pool, account.accountId, url);
  return { ...(await enter(api, { key: account.ownKey, permissions })), account };
}

const target = (receiver: Receiver) => receiver.url("/webhooks").href;
const formKey = (text: string) => /name="_key" value="([^"]+)"/.exec(text)?.[1] ?? "";
const auditOf = async ({ account }: Visit) =>
  (await rowsOf(database.pool, "audit_log", { account_id: account.accountId }))
    .map((row) => row.operation_key as string)
    .filter((key) => key !== "console.links.create");

describe("the endpoint", () => {
  test("that is not there is set by a form, once", async () => {
    const hand = await visit(null);
    const { text } = await hand.get(`${hand.base}/endpoint`);
    expect(text).toContain("No endpoint yet: set one");
    const form = { _key: formKey(text), url: " https://hooks.example.com/in " };
    for (const _ of [1, 2]) {
      const set = await hand.post(`${hand.base}/endpoint/change`, form);
      expect([set.status, set.headers.get("location")]).toEqual([303, `${hand.base}/endpoint?done=set`]);
    }
    expect((await hand.get(`${hand.base}/endpoint?done=set`)).text).toMatch(
      /Saved: every attempt.*<code>https:\/\/hooks\.example\.com\/in<\/code>.*Since <time/s,
    );
    expect(await auditOf(hand)).toEqual(["webhooks.endpoint.set"]);
  });

  test("that is refused keeps what was typed, beside the reason", async () => {
    const hand = await visit("https://hooks.example.com/in");
    const url = `http://hooks.example.com/"><b>x</b>`;
    const refused = await hand.post(`${hand.base}/endpoint/change`, { _key: "a", url });
    expect(refused.status).toBe(422);
    expect(refused.text).toContain('value="http://hooks.example.com/&#34;&#62;&#60;b&#62;x&#60;/b&#62;"');
    expect(refused.text).toMatch(/id="url-refusal">.*The URL does not begin with https:/);
    expect(await hand.get(`${hand.base}/endpoint`)).toMatchObject({
      text: expect.stringContaining("<code>https://hooks.example.com/in</code>"),
    });
  });

  test("is changed by a form that was sent before with another URL only when it is sent anew", async () => {
    const hand = await visit(null);
    await hand.post(`${hand.base}/endpoint/change`, { _key: "k", url: "https://hooks.example.com/one" });
    const other = await hand.post(`${hand.base}/endpoint/change`, {
      _key: "k",
      url: "https://hooks.example.com/two",
    });
    expect([other.status, other.text.includes("To save this URL, send it again")]).toEqual([422, true]);
    expect(formKey(other.text)).not.toBe("k");
  });

  test("is removed once somebody who has read what happens says so", async () => {
    const hand = await visit(target(gullible));
    await api.ask("POST", "/v1/webhooks/endpoint/test", { key: hand.account.ownKey });
    const asked = await hand.get(`${hand.base}/endpoint/remove`);
    expect(asked.text).toMatch(/1 delivery is open<\/a>.*abandoned as <code>no_target/s);
    const form = { _key: formKey(asked.text) };
    for (const _ of [1, 2]) {
      expect(await hand.post(`${hand.base}/endpoint/remove`, form)).toMatchObject({ status: 303 });
    }
    // Somebody else was faster.
    expect(await hand.post(`${hand.base}/endpoint/remove`, { _key: "late" })).toMatchObject({ status: 303 });
    expect((await hand.get(`${hand.base}/endpoint?done=removed`)).text).toMatch(/Removed\..*No endpoint/s);
    expect((await hand.get(`${hand.base}/endpoint/remove`)).status).toBe(303);
    expect((await auditOf(hand)).filter((key) => key === "webhooks.endpoint.remove")).toHaveLength(1);
  });

  test("gets a test event, one for each form, with a way to its delivery", async () => {
    const hand = await visit(target(gullible));
    const _key = formKey((await hand.get(`${hand.base}/endpoint`)).text);
    const [one, two] = [
      await hand.post(`${hand.base}/endpoint/test`, { _key }),
      await hand.post(`${hand.base}/endpoint/test`, { _key }),
    ];
    expect(one.headers.get("location")).toBe(two.headers.get("location"));
    expect(await countRows(database.pool, "deliveries", { account_id: hand.account.accountId })).toBe(1);
    const { text } = await hand.get(one.headers.get("location")!);
    const delivery = /href="([^"]+)">see its delivery/.exec(text)![1]!;
    expect((await hand.get(delivery)).text).toContain("This is a test event");
    const forged = await hand.get(`${hand.base}/endpoint?tested=../../evil`);
    expect(forged.text).not.toMatch(/href="[^"]*evil/);
  });

  test("takes only keys that could be a form's", async () => {
    const hand = await visit(target(gullible));
    for (const _key of ["", "x".repeat(201), "\0"]) {
      expect(await hand.post(`${hand.base}/endpoint/test`, { _key })).toMatchObject({ status: 400 });
    }
  });
});

describe("a pause", () => {
  test("holds what would be sent, says since when and how many, and ends", async () => {
    const hand = await visit(target(gullible));
    const { text } = await hand.get(`${hand.base}/endpoint`);
    expect(text).not.toMatch(/are held|Resume/);
    for (const _ of [1, 2]) {
      const paused = await hand.post(`${hand.base}/endpoint/pause`, { _key: "pause" });
      expect([paused.status, paused.headers.get("location")]).toEqual([
        303,
        `${hand.base}/endpoint?done=paused`,
      ]);
    }
    await publish(database.pool, hand.account.accountId, '{"id":"p-1","status":"succeeded"}');
    const page = await hand.get(`${hand.base}/endpoint?done=paused`);
    expect(page.text).toMatch(
      /Paused: deliveries to this URL.*paused<\/span> since\s+<time.*1 delivery is held/s,
    );
    expect(page.text).toMatch(/up to 100 a second, the oldest first/);
    expect(page.text).not.toContain("/endpoint/pause");
    expect((await hand.get(`${hand.base}/deliveries`)).text).toMatch(/p-1<\/a>.*held while paused/s);

    await hand.post(`${hand.base}/endpoint/resume`, { _key: "resume" });
    const after = await hand.get(`${hand.base}/endpoint?done=resumed`);
    expect(after.text).toMatch(/Resumed: new deliveries go out at once.*1 delivery is held/s);
    expect(await auditOf(hand)).toEqual(["webhooks.endpoint.pause", "webhooks.endpoint.resume"]);
  });

  test("of an endpoint that somebody has removed leads back", async () => {
    const hand = await visit(null);
    for (const act of ["pause", "resume"]) {
      const posted = await hand.post(`${hand.base}/endpoint/${act}`, { _key: act });
      expect([posted.status, posted.headers.get("location")]).toEqual([303, `${hand.base}/endpoint`]);
    }
  });
});

describe("the check", () => {
  test("tells forgeries that were accepted first, each with what was right and the remedy", async () => {
    const hand = await visit(target(gullible));
    const _key = formKey((await hand.get(`${hand.base}/endpoint`)).text);
    const { status, text } = await hand.post(`${hand.base}/endpoint/check`, { _key });
    expect(status).toBe(200);
    expect(text).toMatch(/<h1>Receiver check<\/h1>.*dangerous/);
    const [first, rest] = text.split("What it does right");
    expect(first).toContain("It does not verify signatures: anyone who knows its URL can forge events.");
    expect(first).toContain("Verify the signature over the raw bytes before anything else");
    expect(first?.match(/ accepted<\/span>/g)).toHaveLength(8);
    expect(rest?.match(/ right<\/span>/g)).toHaveLength(6);
    expect(first).toMatch(/Slowest response<\/dt><dd>[\d.]+ m?s</);
    expect(first).toMatch(/Certificate<\/dt><dd>364 days left/);

    const sent = gullible.requests.length;
    const again = await hand.post(`${hand.base}/endpoint/check`, { _key });
    expect([again.status, again.text.includes("dangerous")]).toEqual([200, true]);
    const soon = await hand.post(`${hand.base}/endpoint/check`, { _key: "another" });
    expect(soon.status).toBe(429);
    expect(soon.text).toMatch(/A receiver can be checked once a minute.*Check again in\s+\d+ seconds?\./s);
    expect(gullible.requests).toHaveLength(sent);
  });

  test("says of a right receiver that it is right", async () => {
    const hand = await visit(target(careful));
    carefulSecret = hand.account.secret;
    const { text } = await hand.post(`${hand.base}/endpoint/check`, { _key: "a" });
    expect(text).toMatch(/<h1>Receiver check<\/h1>.*right/);
    expect(text.match(/ right<\/span>/g)).toHaveLength(15);
    expect(text).not.toContain("Remedy");
  });

  test("is not begun a second time by a second click; that leads to the same report", async () => {
    const hand = await visit(target(held));
    const check = () => hand.post(`${hand.base}/endpoint/check`, { _key: "clicked" });
    const first = check();
    await held.waitForRequests(1);
    const second = await check();
    expect([second.status, second.text.includes("The check is still running")]).toEqual([409, true]);
    expect(formKey(second.text)).toBe("clicked");
    letGo.resolve();
    expect((await first).status).toBe(200);
    expect((await check()).text).toContain("Receiver check");
    expect(await auditOf(hand)).toEqual(["webhooks.endpoint.check"]);
  });

  test("without an endpoint leads back, as does its address", async () => {
    const hand = await visit(null);
    for (const got of [
      await hand.post(`${hand.base}/endpoint/check`, { _key: "a" }),
      await hand.post(`${hand.base}/endpoint/test`, { _key: "b" }),
      await hand.get(`${hand.base}/endpoint/check`),
    ]) {
      expect([got.status, got.headers.get("location")]).toEqual([303, `${hand.base}/endpoint`]);
    }
  });
});

describe("the secret", () => {
  test("is in no page before it is revealed, in none that is kept, and in no log", async () => {
    const hand = await visit(target(gullible));
    const { secret } = hand.account;
    for (const path of ["/endpoint", "/endpoint/secret/rotate", "/endpoint/change"]) {
      expect((await hand.get(hand.base + path)).text).not.toContain(secret.slice(6));
    }
    const { text, headers } = await hand.post(`${hand.base}/endpoint/secret`, { _key: "a" });
    expect(text).toContain(`<pre>${secret}</pre>`);
    expect(headers.get("cache-control")).toBe("no-store");
    // Nothing asks for this page again by itself.
    expect(text).not.toContain("data-morph");
    const address = await hand.get(`${hand.base}/endpoint/secret`);
    expect([address.status, address.text.includes(secret)]).toEqual([303, false]);
    expect(JSON.stringify(api.log)).not.toContain(secret.slice(6));
  });

  test("is rotated once by a form, and the old one also signs for as long as it says", async () => {
    const hand = await visit(target(gullible));
    const asked = await hand.get(`${hand.base}/endpoint/secret/rotate`);
    expect(asked.text).toContain("What your receivers must do");
    expect(asked.text).not.toContain("A rotation is under way");
    const form = { _key: formKey(asked.text), overlap_seconds: "3600" };
    for (const _ of [1, 2]) {
      const rotated = await hand.post(`${hand.base}/endpoint/secret/rotate`, form);
      expect([rotated.status, rotated.headers.get("location")]).toEqual([
        303,
        `${hand.base}/endpoint?done=rotated`,
      ]);
    }
    const { body } = await api.ask("GET", "/v1/webhooks/signing-secret", { key: hand.account.ownKey });
    const previous = body.previous as { signing_secret: string; expires_at: string };
    expect(previous.signing_secret).toBe(hand.account.secret);
    expect(Date.parse(previous.expires_at) - Date.parse(body.created_at as string)).toBe(3_600_000);
    const page = await hand.get(`${hand.base}/endpoint?done=rotated`);
    expect(page.text).toMatch(/a new secret signs from now on.*also signs until <time/s);
    const revealed = await hand.post(`${hand.base}/endpoint/secret`, { _key: "a" });
    for (const secret of [body.signing_secret, previous.signing_secret]) {
      expect(revealed.text).toContain(`<pre>${secret}</pre>`);
      expect(page.text).not.toContain(secret);
      expect(JSON.stringify(api.log)).not.toContain(String(secret).slice(6));
    }
    expect((await hand.get(`${hand.base}/endpoint/secret/rotate`)).text).toContain("A rotation is under way");
  });
});

test("a rotation's form offers to send the new signature alone", async () => {
  const hand = await visit(target(gullible));
  const asked = await hand.get(`${hand.base}/endpoint/secret/rotate`);
  expect(asked.text).toMatch(
    /name="previous_signature">\s*<option value="after" selected>[^<]+<\/option><option value="omit">/,
  );
  const form = { _key: formKey(asked.text), overlap_seconds: "3600", previous_signature: "omit" };
  expect((await hand.post(`${hand.base}/endpoint/secret/rotate`, form)).status).toBe(303);
  const { body } = await api.ask("GET", "/v1/webhooks/signing-secret", { key: hand.account.ownKey });
  expect([body.signing_secret === hand.account.secret, body.previous]).toEqual([false, null]);
  await hand.post(`${hand.base}/endpoint/secret/rotate`, { _key: "b", overlap_seconds: "3600" });
  const refused = await hand.post(`${hand.base}/endpoint/secret/rotate`, { ...form, _key: "c" });
  expect([refused.status, refused.text.includes('value="omit" selected')]).toEqual([409, true]);
});

describe("a rotation while another is under way", () => {
  test("is explained where it was asked for, and goes on from there", async () => {
    const hand = await visit(target(gullible));
    const rotate = (form: Record<string, string>) =>
      hand.post(`${hand.base}/endpoint/secret/rotate`, { overlap_seconds: "3600", ...form });
    await rotate({ _key: "one" });
    const refused = await rotate({ _key: "two" });
    expect(refused.status).toBe(409);
    expect(refused.text).toMatch(/Nothing was rotated\. Another rotation was in progress/);
    expect(refused.text).toMatch(/value="3600" selected/);
    const going = await rotate({ _key: formKey(refused.text), end_previous: "yes" });
    expect([going.status, going.headers.get("location")]).toEqual([
      303,
      `${hand.base}/endpoint?done=rotated`,
    ]);
    // Back in the browser, and sent again with another choice.
    const again = await rotate({ _key: formKey(refused.text), overlap_seconds: "0", end_previous: "yes" });
    expect([again.status, again.text.includes("This form has been sent before")]).toEqual([409, true]);
  });
});

describe("who may not", () => {
  test("finds no control, is told who may, and is refused", async () => {
    const hand = await visit(target(gullible), ["webhooks:read"]);
    const { text } = await hand.get(`${hand.base}/endpoint`);
    const actions = [...text.matchAll(/<form method="post" action="([^"]*)"/g)].map(([, action]) => action);
    expect(new Set(actions)).toEqual(new Set([`${hand.base}/leave`, "/console/time-zone"]));
    expect(text.match(/<form [^>]*method="post"/g)).toHaveLength(actions.length);
    expect(text).not.toMatch(/endpoint\/(?:change|remove|secret)/);
    expect(text).toMatch(/<code>webhooks:write<\/code>.*<code>webhooks:secrets<\/code>/s);
    for (const path of FORMS) {
      const body = { _key: "a", url: "https://hooks.example.com/in", overlap_seconds: "0" };
      const posted = await hand.post(`${hand.base}/endpoint/${path}`, body);
      expect([path, posted.status, posted.text.includes("whsec_")]).toEqual([path, 403, false]);
    }
    for (const path of ["change", "remove", "secret/rotate"]) {
      expect([path, (await hand.get(`${hand.base}/endpoint/${path}`)).status]).toEqual([path, 403]);
    }
    expect(await auditOf(hand)).toEqual([]);
  });

  test("without the secret's permission sees everything else", async () => {
    const hand = await visit(target(gullible), ["webhooks:read", "webhooks:write"]);
    const { text } = await hand.get(`${hand.base}/endpoint`);
    expect(text).toContain("Check the receiver");
    expect(text).not.toMatch(/Reveal|Rotate/);
    const none = await visit(null, ["webhooks:read"]);
    expect((await none.get(`${none.base}/endpoint`)).text).toMatch(/No endpoint yet<\/h2>/);
  });

  test("comes from elsewhere is refused, and changes nothing", async () => {
    const hand = await visit(target(gullible));
    for (const site of ["cross-site", "same-site", "none"]) {
      for (const path of FORMS) {
        const form = { _key: "a", url: "https://hooks.example.com/in", overlap_seconds: "0" };
        const headers = { "sec-fetch-site": site };
        const posted = await hand.post(`${hand.base}/endpoint/${path}`, form, headers);
        expect([site, path, posted.status]).toEqual([site, path, 403]);
      }
    }
    expect(await auditOf(hand)).toEqual([]);
  });

  test("belongs to another account is unknown there", async () => {
    const hand = await visit(target(gullible));
    const other = await visit(target(careful));
    const form = { _key: "a", url: "https://hooks.example.com/in", overlap_seconds: "0" };
    for (const path of FORMS) {
      const posted = await hand.post(`${other.base}/endpoint/${path}`, form);
      expect([path, posted.status, posted.text.includes("whsec_")]).toEqual([path, 401, false]);
    }
    expect((await hand.get(`${other.base}/endpoint`)).status).toBe(401);
    expect(await auditOf(other)).toEqual([]);
  });
});
