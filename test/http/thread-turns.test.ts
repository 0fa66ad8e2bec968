// Large bodies and answers keep the one thread that serves everybody: small requests have to come in between.
import { randomUUID } from "node:crypto";
import { describe, expect, onTestFinished, test } from "vitest";
import { z } from "zod";
import { operationDefiners } from "../../src/http/define-operation.ts";
import { ANSWER_BYTES_IN_TURN_MIN, BODY_BYTES_IN_TURN_MIN } from "../../src/http/limits.ts";
import { jsonBody, jsonResponse, rawBody } from "../../src/http/operation.ts";
import { TemporarilyUnavailable } from "../../src/http/problems.ts";
import { createThreadTurns } from "../../src/http/turns.ts";
import { ALL_SCOPES, createToyApi } from "../support/api-toy-server.ts";
import { patience } from "../support/time-limits.ts";

/** Of one piece of work. */
const BUSY_MS = 10;
/** Of all accounts. */
const AT_ONCE = 20;
/** Of one account, and of more than any place has shares. */
const ACCOUNTS = [1, 20];

const LARGE = JSON.stringify({ text: "x".repeat(BODY_BYTES_IN_TURN_MIN) });

function keepThreadBusy(): void {
  for (const endsAtMs = performance.now() + BUSY_MS; performance.now() < endsAtMs; );
}

/** Operations of which each keeps the thread busy, and tells when it does. */
function busyOperations(busy: () => void) {
  const { read, write, batchedWrite } = operationDefiners("Boxes");
  const named = (name: string) => ({
    key: `boxes.${name}` as const,
    summary: name,
    description: name,
    path: `/v1/${name}` as const,
  });
  const writing = {
    method: "POST",
    scope: "boxes:write",
    risk: "reversible",
    mode: "sync",
    audit: { elsewhere: "nowhere: it is a test" },
    response: jsonResponse(200, z.object({})),
  } as const;
  const reading = { method: "GET", scope: "boxes:read" } as const;
  const text = z.string().superRefine(busy);
  return [
    write({
      ...named("json"),
      ...writing,
      body: jsonBody(z.strictObject({ text })),
      handle: async () => ({ body: {} }),
    }),
    batchedWrite({
      ...named("raw"),
      ...writing,
      body: rawBody({ documentedAs: z.unknown(), bytesMax: 100_000 }),
      prepare: () => {
        busy();
        return { item: null, name: null };
      },
      handleEach: async (items) => items.map(() => ({ body: {} })),
    }),
    read({
      ...named("answer"),
      ...reading,
      response: jsonResponse(200, z.object({ text: z.string() })),
      handle: async () => {
        const body = { text: "x".repeat(ANSWER_BYTES_IN_TURN_MIN) };
        return { body: Object.defineProperty(body, "toJSON", { value: busy, enumerable: false }) };
      },
    }),
    write({
      ...named("small"),
      ...writing,
      body: jsonBody(z.strictObject({})),
      handle: async () => ({ body: {} }),
    }),
  ];
}

describe.each(ACCOUNTS)("beside %i accounts with", (accounts) => {
  test.each([
    ["large bodies of JSON", "/v1/json", LARGE],
    ["large raw bodies", "/v1/raw", LARGE],
    ["large answers", "/v1/answer", undefined],
  ] as const)("%s a small request waits for one of them at most", async (_, path, body) => {
    let pieces = 0;
    let begun = Promise.withResolvers<void>();
    let endedAtMs = 0;
    const busy = () => {
      pieces++;
      keepThreadBusy();
      endedAtMs = performance.now();
      begun.resolve();
      return {};
    };
    const { app, key, keys, listen } = await createToyApi({ more: busyOperations(busy) });
    onTestFinished(() => app.close());
    const base = await listen();
    const ask = async (path: string, askedKey: string, body?: string) => {
      const headers = { authorization: `Bearer ${askedKey}`, "idempotency-key": randomUUID() };
      const type = { "content-type": "application/json" };
      const response = await (body === undefined
        ? fetch(base + path, { headers })
        : fetch(base + path, { method: "POST", headers: { ...headers, ...type }, body }));
      await response.arrayBuffer();
      return response.status;
    };
    const greedy = Array.from({ length: accounts }, () =>
      keys.add({ accountId: randomUUID(), scopes: new Set(ALL_SCOPES) }),
    );
    expect(await ask("/v1/small", key, "{}")).toBe(200);
    const waitedFor: number[] = [];
    for (let round = 0; round < 3; round++) {
      const before = pieces;
      begun = Promise.withResolvers();
      const large = Array.from({ length: AT_ONCE }, (_, n) => ask(path, greedy[n % accounts]!, body));
      await begun.promise;
      const firstEndedAtMs = endedAtMs;
      const sentAt = pieces;
      expect(await ask("/v1/small", key, "{}")).toBe(200);
      waitedFor.push(pieces - sentAt);
      expect(new Set(await Promise.all(large))).toEqual(new Set([200]));
      expect(pieces - before).toBe(AT_ONCE);
      expect(endedAtMs - firstEndedAtMs).toBeGreaterThan((2 * AT_ONCE - 4) * BUSY_MS);
    }
    // A machine that is busy with others may stop the process at any moment.
    expect(Math.min(...waitedFor), `${waitedFor}`).toBeLessThanOrEqual(1);
  });
});

const turn = { waitMs: patience(10_000) };

test("an account whose pieces took much comes behind one whose pieces did not", async () => {
  const onThread = createThreadTurns();
  const order: string[] = [];
  const work = (accountId: string) =>
    onThread(accountId, turn, () => order.push(accountId) && keepThreadBusy());
  await Promise.all([...["a", "a", "a", "b", "a", "b", "c"].map(work)]);
  expect(order.slice(0, 3)).toEqual(["a", "b", "c"]);
});

test.each(ACCOUNTS)("pieces of %i accounts have half of the thread together", async (accounts) => {
  const onThread = createThreadTurns();
  const startMs = performance.now();
  let [pieces, lastMs] = [0, 0];
  const work = (_: unknown, n: number) =>
    onThread(`${n % accounts}`, turn, () => {
      pieces++;
      keepThreadBusy();
      lastMs = performance.now() - startMs;
    });
  await Promise.all(Array.from({ length: 20 }, work));
  expect(lastMs).toBeGreaterThan((2 * pieces - 1.5) * BUSY_MS);
});

test("what fails fails for whoever asked, and what does not come in time is not begun", async () => {
  const onThread = createThreadTurns();
  const failing = () => {
    throw new Error("x");
  };
  await expect(onThread("c", turn, failing)).rejects.toThrow("x");
  const busy = onThread("a", turn, keepThreadBusy);
  let isBegun = false;
  const late = onThread("b", { waitMs: 1 }, () => {
    isBegun = true;
  });
  await expect(late).rejects.toThrow(TemporarilyUnavailable);
  await busy;
  expect(await onThread("b", turn, () => 1)).toBe(1);
  expect(isBegun).toBe(false);
});
