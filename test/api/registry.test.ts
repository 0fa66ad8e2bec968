import { describe, expect, test } from "vitest";
import { scopes } from "../../src/base/model/api-keys.ts";
import { areaTests } from "../support/areas.ts";
import { operationsTable } from "../support/operations-table.ts";
import { declaredRegistry } from "../support/sealpost-operations.ts";

const { operations, problems } = declaredRegistry();

test("the scopes that keys can have are those that operations require", () => {
  expect([...new Set(operations.map(({ scope }) => scope))].sort()).toEqual([...scopes]);
});

test("every code of our own is raised by some operation, and explained", () => {
  const raised = new Set(operations.flatMap(({ errors }) => errors));
  const own = ["analysis_conflict"];
  const ofReplays = ["delivery_not_replayable", "replayed_too_often", "too_many_replays", "replay_changed"];
  const ofKeys = ["exceeds_own_key", "too_many_api_keys", "user_exists"];
  const ofConsole = ["too_many_sessions"];
  const ofNotices = ["too_many_recipients", "mail_not_configured"];
  const others = [
    "account_moved",
    "analysis_erased",
    "analysis_expired",
    "cursor_expired",
    "endpoint_changed",
    "endpoint_options_conflict",
    "rotation_in_progress",
    "too_many_consumers",
    "invalid_analysis",
    "not_found",
    "receiver_not_proven",
    "refused_by_receiver",
    "target_refused",
  ];
  const ofAreas = areaTests.flatMap(({ codes }) => codes);
  const all = [...own, ...ofReplays, ...ofKeys, ...ofConsole, ...ofNotices, ...others, ...ofAreas];
  expect([...raised].sort()).toEqual(all.sort());
  for (const code of raised) {
    const { meaning, remedy } = problems[code]!;
    expect(meaning).toMatch(/^[A-Z].*\.$/);
    expect(remedy).toMatch(/^[A-Z].*\.$/);
  }
});

/** The table of the design, in its order of groups. */
const DECLARED = `
analyses.erase DELETE /v1/analyses/{analysis_id} analyses:erase irreversible write sync
analyses.get GET /v1/analyses/{analysis_id} analyses:read none read sync
analyses.publish POST /v1/analyses analyses:publish irreversible write async
webhooks.events.list GET /v1/webhooks/events analyses:read none read sync
webhooks.events.ack POST /v1/webhooks/events/consumers/{name}/ack analyses:read reversible write sync
webhooks.events.consumers.list GET /v1/webhooks/events/consumers webhooks:read none read sync
webhooks.events.consumers.remove DELETE /v1/webhooks/events/consumers/{name} webhooks:write irreversible write sync
webhooks.endpoint.get GET /v1/webhooks/endpoint webhooks:read none read sync
webhooks.endpoint.set PUT /v1/webhooks/endpoint webhooks:write reversible write sync
webhooks.endpoint.remove DELETE /v1/webhooks/endpoint webhooks:write reversible write sync
webhooks.endpoint.test POST /v1/webhooks/endpoint/test webhooks:write reversible write async
webhooks.endpoint.check POST /v1/webhooks/endpoint/check webhooks:write reversible write sync
webhooks.endpoint.pause POST /v1/webhooks/endpoint/pause webhooks:write reversible write sync
webhooks.endpoint.resume POST /v1/webhooks/endpoint/resume webhooks:write reversible write sync
webhooks.refusals.lift POST /v1/webhooks/refusals/lift webhooks:write reversible write sync
webhooks.signing_secret.get GET /v1/webhooks/signing-secret webhooks:secrets none read sync
webhooks.signing_secret.rotate POST /v1/webhooks/signing-secret/rotate webhooks:secrets irreversible write sync
webhooks.deliveries.list GET /v1/webhooks/deliveries webhooks:read none read sync
webhooks.deliveries.get GET /v1/webhooks/deliveries/{delivery_id} webhooks:read none read sync
webhooks.deliveries.body GET /v1/webhooks/deliveries/{delivery_id}/body analyses:read none read sync
webhooks.deliveries.replay POST /v1/webhooks/deliveries/{delivery_id}/replay webhooks:replay irreversible write async
webhooks.activity GET /v1/webhooks/activity webhooks:read none read sync
webhooks.endpoint.health GET /v1/webhooks/endpoint/health webhooks:read none read sync
webhooks.replays.create POST /v1/webhooks/replays webhooks:replay irreversible write async
webhooks.replays.list GET /v1/webhooks/replays webhooks:replay none read sync
webhooks.replays.get GET /v1/webhooks/replays/{replay_id} webhooks:replay none read sync
webhooks.replays.cancel POST /v1/webhooks/replays/{replay_id}/cancel webhooks:replay irreversible write async
webhooks.notices.list GET /v1/webhooks/notices webhooks:read none read sync
webhooks.notices.recipients.list GET /v1/webhooks/notices/recipients webhooks:read none read sync
webhooks.notices.recipients.add POST /v1/webhooks/notices/recipients webhooks:write reversible write async
webhooks.notices.recipients.remove DELETE /v1/webhooks/notices/recipients/{recipient_id} \
webhooks:write reversible write sync
api_keys.list GET /v1/api-keys keys:write none read sync
api_keys.create POST /v1/api-keys keys:write irreversible write sync
api_keys.revoke DELETE /v1/api-keys/{key_id} keys:write irreversible write sync
users.list GET /v1/users users:write none read sync
users.create POST /v1/users users:write reversible write sync
users.disable DELETE /v1/users/{user_id} users:write irreversible write sync
console.links.create POST /v1/console/links console:link reversible write sync
console.sessions.list GET /v1/console/sessions console:link none read sync
console.sessions.revoke POST /v1/console/sessions/revoke console:link irreversible write sync
accounts.list GET /v1/accounts staff:read none read sync
accounts.replays.list GET /v1/accounts/replays staff:read none read sync
accounts.audit.list GET /v1/accounts/audit audit:read none read sync
search.find GET /v1/search staff:read none read sync
audit.list GET /v1/audit audit:read none read sync
operations.list GET /v1/operations operations:read none read sync
usage.get GET /v1/usage usage:read none read sync
`;

describe("the operations are those that were agreed upon", () => {
  const lines = [DECLARED, ...areaTests.map(({ declared }) => declared)].flatMap((text) =>
    text.trim().split("\n"),
  );
  test.each(lines)("%s", (line) => {
    const [key] = line.split(" ", 1);
    const operation = operations.find((one) => one.key === key);
    if (!operation) throw new Error("It is not declared.");
    const { method, path, scope, risk, effect, mode, isIdempotent } = operation;
    expect([key, method, path, scope, risk, effect, mode].join(" ")).toBe(line);
    expect(isIdempotent).toBe(effect === "read");
  });

  test("and no others", () => {
    expect(operations.map(({ key }) => key).sort()).toEqual(lines.map((line) => line.split(" ")[0]).sort());
    expect(operationsTable(operations).trim().split("\n")).toHaveLength(lines.length + 2);
  });
});

test("only the operations on secrets hold secrets", () => {
  const keys = operations.filter(({ holdsSecret }) => holdsSecret).map(({ key }) => key);
  const ofSecrets = ["webhooks.signing_secret.get", "webhooks.signing_secret.rotate"];
  const ofAreas = areaTests.flatMap(({ secrets }) => secrets);
  expect(keys.sort()).toEqual([...ofSecrets, ...ofAreas, "api_keys.create", "console.links.create"].sort());
});
