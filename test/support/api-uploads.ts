// The API of boxes, and uploads to it: by a client, or as bytes on a socket.
import { afterEach, expect } from "vitest";
import { TRANSFER_LIMITS, type TransferLimits } from "../../src/http/limits.ts";
import { keepInMemory } from "./api-box-files.ts";
import { ADA, createToyApi, type ToyApi, type ToyOverrides } from "./api-toy-server.ts";
import { fileHeaders } from "./file-headers.ts";
import { openRaw, type RawConnection, rawHead } from "./raw-http.ts";

export const BYTES = Buffer.from("What is in the box?");
export const PATH = "/v1/boxes/box-1/file";
export const HEALTH = rawHead("GET /healthz", { connection: "close" });

export type Upload = {
  readonly idempotencyKey?: string;
  readonly path?: string;
  readonly key?: string;
  readonly headers?: Record<string, string>;
};

/** What a test file needs for them; the API of each test is closed after it. */
export function uploading() {
  let api: ToyApi;
  let connections: RawConnection[] = [];
  afterEach(async () => {
    for (const { socket } of connections) socket.destroy();
    connections = [];
    await api.app.close();
  });

  async function start(limits: Partial<TransferLimits> = {}, overrides: ToyOverrides = {}): Promise<ToyApi> {
    api = await createToyApi({ transferLimits: { ...TRANSFER_LIMITS, ...limits }, ...overrides });
    await api.listen();
    addBox("box-1", ADA);
    return api;
  }

  function addBox(id: string, accountId: string): void {
    api.boxes.rows.set(id, {
      id,
      color: "red",
      weight: null,
      made_at: "2026-01-02T03:04:05.678Z",
      accountId,
    });
  }

  function put(bytes: Uint8Array<ArrayBuffer> = BYTES, upload: Upload = {}): Promise<Response> {
    const { idempotencyKey = "k", path = PATH, key = api.key, headers = {} } = upload;
    return fetch(`http://127.0.0.1:${api.port()}${path}`, {
      method: "PUT",
      headers: {
        authorization: `Bearer ${key}`,
        "idempotency-key": idempotencyKey,
        ...fileHeaders(bytes),
        ...headers,
      },
      body: bytes,
    });
  }

  async function open(): Promise<RawConnection> {
    const connection = await openRaw(api.port());
    connections.push(connection);
    return connection;
  }

  const head = (headers: Record<string, string | number | null> = {}, path = PATH): string =>
    rawHead(`PUT ${path}`, {
      authorization: `Bearer ${api.key}`,
      "idempotency-key": "k",
      "content-length": BYTES.length,
      ...fileHeaders(BYTES),
      ...headers,
    });

  const kept = () => [...api.boxes.files.values()];
  const nothingLeft = () => {
    expect(api.store.entries.size).toBe(0);
    expect(api.boxes.files.size).toBe(0);
    expect(api.recorded).toEqual([]);
  };

  /** Uploads are kept until the test opens the gate. */
  function gated(): { readonly begun: Promise<void>; open(): void } {
    const begun = Promise.withResolvers<void>();
    const gate = Promise.withResolvers<void>();
    api.boxes.keep = async (body) => {
      begun.resolve();
      await gate.promise;
      return await keepInMemory(body);
    };
    return { begun: begun.promise, open: gate.resolve };
  }

  return { start, addBox, put, open, head, kept, nothingLeft, gated };
}
