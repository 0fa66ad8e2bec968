import { describe, expect, test } from "vitest";
import { auditedOperations } from "../../src/accounts/audit-api.ts";
import { SENTENCES } from "../../src/console/change-sentences.ts";
import { html } from "../../src/console/html.ts";
import { declaredOperations } from "../support/sealpost-operations.ts";

const ID = "01931e3c-7a5b-7c11-9d2e-0123456789ab";
const BASE = "/console/a/1";
const audited = Object.keys(auditedOperations(declaredOperations()));

type Options = { readonly base?: string | null; readonly scopes?: readonly string[] };

function sentence(operation: string, details: Record<string, unknown>, options: Options = {}): string {
  const { base = BASE, scopes = ["webhooks:read", "webhooks:replay", "keys:write"] } = options;
  const may = (scope: string) => scopes.includes(scope);
  return html`${SENTENCES[operation]!({ details, base, may, timeZone: "Europe/Berlin" })}`.text;
}

const plain = (text: string) => text.replaceAll(/<[^>]*>/g, "").replaceAll(/\s+/g, " ");

test("every operation that is audited has a sentence, and nothing else has", () => {
  expect(audited.length).toBeGreaterThan(40);
  expect(Object.keys(SENTENCES).sort()).toEqual(audited.sort());
});

test.each(audited)("%s reads well without any details, as old entries have none", (operation) => {
  const text = plain(sentence(operation, {}));
  expect(text).toMatch(/^[a-z]+(?: \S+)+$/);
  expect(text).not.toMatch(/undefined|null|NaN|\[object/);
});

const URL_BEFORE = "https://hooks.example.com/one";
const URL_AFTER = "https://hooks.example.com/two";
const PLAIN: readonly (readonly [operation: string, details: Record<string, unknown>, text: string])[] = [
  ["webhooks.endpoint.set", { url: URL_AFTER }, `set the endpoint to ${URL_AFTER}`],
  [
    "webhooks.endpoint.set",
    { url: URL_AFTER, previous_url: URL_BEFORE },
    `changed the endpoint: ${URL_BEFORE} → ${URL_AFTER}`,
  ],
  [
    "webhooks.endpoint.set",
    { url: URL_AFTER, previous_url: URL_AFTER, payload: "reference", forget_after_success: false },
    `saved the endpoint ${URL_AFTER} again: webhooks carry a reference, analyses are kept after their delivery`,
  ],
  ["webhooks.events.consumers.remove", { name: "billing" }, "removed the consumer billing of events"],
  ["webhooks.deliveries.replay", { delivery_id: ID }, "replayed delivery 456789ab"],
  [
    "documents.delete",
    { document_id: ID, space_id: ID, name: "a.txt", permanently: true },
    "deleted the document “a.txt” in space 456789ab for good",
  ],
  ["workflows.update", { workflow_id: ID, enabled: false }, "switched workflow 456789ab off"],
  [
    "workflows.update",
    { workflow_id: ID, name: "Bills", enabled: true },
    "renamed workflow 456789ab to “Bills”, and switched it on",
  ],
  ["workflows.runs.create", { workflow_id: ID, version: 3 }, "ran workflow 456789ab, version 3"],
  [
    "workflows.runs.create",
    { workflow_id: ID, version: 3, test_node_id: "words" },
    "tested the node words of workflow 456789ab, version 3",
  ],
  ["folders.restore", { space_id: ID, name: "2026" }, "restored the folder “2026” in space 456789ab"],
  ["spaces.delete", { space_id: ID, name: "Plans", permanently: false }, "deleted the space “Plans”"],
  [
    "webhooks.replays.create",
    { replay_id: ID, filter: { status: "abandoned" }, rate_per_second: 10, matched: 48 },
    "replayed 48 abandoned deliveries at 10 a second",
  ],
  [
    "webhooks.replays.create",
    {
      replay_id: ID,
      filter: { status: ["failed"], target_host: "a.example", created_after: "2026-11-22T13:00:00.000Z" },
      rate_per_second: 5,
      matched: 1,
    },
    "replayed 1 failing delivery (host a.example, published from 22 Nov 2026, 14:00:00) at 5 a second",
  ],
  [
    "webhooks.replays.create",
    {
      replay_id: ID,
      filter: { status: ["failed", "abandoned"], reason: ["no_target", "attempts_exhausted"] },
      matched: 2_000,
    },
    "replayed 2,000 deliveries (reason no_target or attempts_exhausted)",
  ],
  ["webhooks.replays.cancel", { replay_id: ID }, "stopped bulk replay 456789ab"],
  ["analyses.erase", { analysis_id: "inv/7" }, "erased analysis inv/7"],
  [
    "webhooks.signing_secret.rotate",
    { overlap_seconds: 86_400 },
    "rotated the signing secret; the old one signs for 24 hours more",
  ],
  [
    "webhooks.signing_secret.rotate",
    { overlap_seconds: 86_400, previous_signature: "omit" },
    "rotated the signing secret; the old one signs no more",
  ],
  [
    "api_keys.create",
    {
      key_id: ID,
      name: "CI",
      scopes: ["webhooks:read", "keys:write"],
      expires_at: "2027-01-01T00:00:00.000Z",
    },
    "made the API key “CI” (webhooks:read, keys:write), until 1 Jan 2027, 01:00:00",
  ],
  ["api_keys.revoke", { key_id: ID }, "revoked API key 456789ab"],
  ["users.create", { user_id: ID, idp_user_id: "auth|1" }, "added the user auth|1"],
  ["users.disable", { user_id: ID }, "disabled user 456789ab"],
  [
    "console.links.create",
    {
      permissions: ["webhooks:read"],
      viewer: { id: "u-1", label: "Sam" },
      embed_origin: "https://app.example",
    },
    "opened the console for Sam (webhooks:read), framed by https://app.example",
  ],
  ["console.sessions.revoke", { viewer_id: "u-1" }, "ended the console sessions of u-1"],
  [
    "accounts.quota",
    { documents: 10, bytes: null },
    "set the account's quotas: documents 10, bytes without limit",
  ],
  ["accounts.move", { from: "one" }, "moved the account here from the cell one"],
  ["accounts.move", { to: "two" }, "moved the account to the cell two"],
  ["pages.links_update", { link_id: ID, status: "REVOKED" }, "revoked link 456789ab to a page"],
  [
    "spaces.members.set",
    { space_id: ID, user_id: ID, role: "EDITOR" },
    "made user 456789ab EDITOR in space 456789ab",
  ],
  [
    "workflows.publish",
    { workflow_id: ID, version: 3, change_note: "Faster" },
    "published workflow 456789ab as version 3: Faster",
  ],
  ["workflows.hook.create", { workflow_id: ID, previous_ends_at: null }, "made a hook of workflow 456789ab"],
  [
    "workflows.hook.create",
    { workflow_id: ID, previous_ends_at: ID },
    "rotated the hook of workflow 456789ab",
  ],
  ["workflows.hook.delete", { workflow_id: ID }, "ended the hook of workflow 456789ab"],
];

test.each(PLAIN)("%s of %j", (operation, details, text) => {
  expect(plain(sentence(operation, details))).toBe(text);
});

describe("what a sentence is about", () => {
  const LINKS: readonly (readonly [operation: string, details: Record<string, unknown>, href: string])[] = [
    ["webhooks.deliveries.replay", { delivery_id: ID }, `/deliveries/${ID}`],
    ["webhooks.endpoint.test", { delivery_id: ID }, `/deliveries/${ID}`],
    ["webhooks.replays.create", { replay_id: ID, matched: 2 }, `/replays/${ID}`],
    ["webhooks.replays.cancel", { replay_id: ID }, `/replays/${ID}`],
    ["webhooks.endpoint.set", { url: URL_AFTER }, "/endpoint"],
    ["api_keys.create", { key_id: ID, name: "CI" }, `/keys#k-${ID}`],
    ["api_keys.revoke", { key_id: ID }, `/keys#k-${ID}`],
    ["analyses.erase", { analysis_id: 'a"b&c' }, "/deliveries?analysis_id=a%22b%26c"],
  ];

  test.each(LINKS)("%s %j is linked, for whoever may see it", (operation, details, href) => {
    expect(sentence(operation, details)).toContain(`<a href="${BASE}${href}">`);
    const texts = [
      sentence(operation, details, { scopes: [] }),
      sentence(operation, details, { base: null }),
    ];
    for (const text of texts) {
      expect(text).not.toContain("<a ");
      expect(plain(text)).toBe(plain(sentence(operation, details)));
    }
  });

  test("is never markup, and what comes from outside never a link", () => {
    const evil = '"><script>1</script>';
    const asked = {
      url: evil,
      previous_url: evil,
      name: evil,
      viewer: { label: evil },
      note: evil,
      filter: { reason: evil },
    };
    for (const operation of audited) expect(sentence(operation, asked)).not.toContain("<script");
    expect(sentence("webhooks.endpoint.set", { url: URL_AFTER }, { scopes: [] })).not.toContain("href");
  });
});
