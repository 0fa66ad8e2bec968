import { randomUUID } from "node:crypto";
import type { AddressInfo } from "node:net";
import type { FastifyInstance } from "fastify";
import { z } from "zod";
import { NO_SPACES } from "../../src/base/model/reader.ts";
import type { ConnectionCut, ConnectionRefusal } from "../../src/http/connections.ts";
import type { RecordedWrite } from "../../src/http/idempotent-write.ts";
import type { OpenApiInfo } from "../../src/http/openapi.ts";
import type { Operation } from "../../src/http/operation.ts";
import { createOperationRegistry } from "../../src/http/operation-registry.ts";
import { standardProblems } from "../../src/http/problem-catalogue.ts";
import type { CompletedRequest } from "../../src/http/request-context.ts";
import { type ApiOptions, createApi } from "../../src/http/server.ts";
import { keepInMemory } from "./api-box-files.ts";
import { type Boxes, boxProblems, createBoxOperations } from "./api-boxes.ts";
import {
  createToyCounter,
  createToyIdempotencyStore,
  createToyKeys,
  type ToyIdempotencyStore,
  type ToyKeys,
  toyTx,
} from "./api-toy-stores.ts";
import { checkOutcome } from "./outcome-check.ts";

export const ADA = "11111111-1111-4111-8111-111111111111";
export const BOB = "22222222-2222-4222-8222-222222222222";
export const TOY_NOW = Date.parse("2026-03-01T00:00:00Z");
export const ALL_SCOPES = ["boxes:read", "boxes:write", "locks:read", "locks:write", "operations:read"];

export const toyInfo: OpenApiInfo = {
  title: "Boxes",
  description: "An API of boxes, for the tests of the kernel.",
  pages: [{ path: "/errors", title: "What can go wrong" }],
  sends: [
    {
      event: "box.opened",
      tag: "Boxes",
      summary: "A box was opened",
      description: "Tells that a box was opened.",
      headers: [
        { name: "seal", description: "The seal.", isAlwaysSent: true, pattern: /^[0-9]+$/, example: "42" },
      ],
      body: z.strictObject({ box: z.string() }).meta({ id: "BoxOpened" }),
      example: { box: "box-1" },
      responses: { "2XX": "Heard.", "4XX": "Not heard." },
    },
  ],
  tags: [
    { name: "Boxes", description: "Things to put things in." },
    { name: "Locks", description: "Things to keep boxes shut." },
    { name: "Operations", description: "What there is to do." },
  ],
};

export type ToyApi = {
  readonly app: FastifyInstance;
  readonly boxes: Boxes;
  readonly keys: ToyKeys;
  readonly store: ToyIdempotencyStore;
  readonly counter: ReturnType<typeof createToyCounter>;
  /** A key of Ada's with every scope. */
  readonly key: string;
  readonly answered: CompletedRequest[];
  readonly faults: unknown[];
  readonly limiterFailures: unknown[];
  readonly recorded: RecordedWrite[];
  readonly connections: {
    open: number;
    readonly refused: ConnectionRefusal[];
    readonly cut: ConnectionCut[];
  };
  /** `http://127.0.0.1:port`, once it listens. */
  listen(): Promise<string>;
  readonly port: () => number;
};

export type ToyOverrides = Partial<ApiOptions> & { readonly more?: readonly Operation[] };

/** The API of boxes with in-memory stores; `overrides` replace its parts. */
export async function createToyApi(overrides: ToyOverrides = {}): Promise<ToyApi> {
  const { more = [], ...options } = overrides;
  const boxes: Boxes = {
    rows: new Map(),
    texts: new Map(),
    calls: 0,
    gate: async () => {},
    files: new Map(),
    keep: keepInMemory,
  };
  const keys = createToyKeys();
  const store = createToyIdempotencyStore();
  const counter = createToyCounter();
  const answered: CompletedRequest[] = [];
  const faults: unknown[] = [];
  const limiterFailures: unknown[] = [];
  const recorded: RecordedWrite[] = [];
  const connections: ToyApi["connections"] = { open: 0, refused: [], cut: [] };
  const operations = [...createBoxOperations(boxes), ...more];

  const app = await createApi({
    registry: createOperationRegistry(operations, { ...standardProblems, ...boxProblems }),
    info: toyInfo,
    documents: [],
    codeGroups: [],
    publicUrl: "https://boxes.test",
    docsUrl: "https://docs.boxes.test",
    checkReady: async () => {},
    translateError: (error) => error,
    findApiKey: keys.find,
    findSpaces: async () => NO_SPACES,
    keyPrefixes: ["svc_test_"],
    accountExists: async (id) => id === ADA || id === BOB,
    countRequest: counter.count,
    policies: {
      key: { name: "default", requestsMax: 600, windowSeconds: 60 },
      address: { name: "address", requestsMax: 60, windowSeconds: 60 },
    },
    idempotencyStore: store,
    recordWrite: async (tx, write) => {
      recorded.push(write);
      toyTx(tx).undo.push(() => recorded.pop());
      return 0;
    },
    isTrustedProxy: null,
    onConnections: (open) => {
      connections.open = open;
    },
    onConnectionRefused: (limit) => connections.refused.push(limit),
    onConnectionCut: (reason) => connections.cut.push(reason),
    now: () => TOY_NOW,
    newId: randomUUID,
    check: checkOutcome,
    onCompleted: (summary) => answered.push(summary),
    onInternalError: (error) => faults.push(error),
    onRateLimitFailure: (error) => limiterFailures.push(error),
    ...options,
  });
  const key = keys.add({ accountId: ADA, scopes: new Set(ALL_SCOPES) });
  const port = (): number => (app.server.address() as AddressInfo).port;
  return {
    ...{
      app,
      boxes,
      keys,
      store,
      counter,
      key,
      answered,
      faults,
      limiterFailures,
      recorded,
      connections,
      port,
    },
    listen: () => app.listen({ host: "127.0.0.1", port: 0 }),
  };
}
