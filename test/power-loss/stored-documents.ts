// Somebody who stores documents while the power is cut, and wants back what was acknowledged.
import { equal } from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { setTimeout as wait } from "node:timers/promises";
import { UPLOAD_CLAIM_MS } from "../../src/http/limits.ts";
import type { Cluster } from "../faults/harness/cluster.ts";
import { createTestUser } from "../support/installation.ts";
import { type Asked, type AskOptions, ask } from "../support/sealpost-api.ts";
import { patience } from "../support/time-limits.ts";

const SCOPES = ["spaces:write", "documents:read", "documents:write"];
const REPEAT_AFTER_MS = 20;
/** Stored between two looks at them, at most. */
const UNREAD_MAX = 20;
const ANSWERED_WITHIN_MS = 10_000;
/** After this the next document is begun beside one whose claim a cut has left behind. */
const SENT_WITHIN_MS = 1_000;
/** Under way still, as far as the server that was left knows: for as long as its claim lasts. */
const UNDER_WAY = new Set(["idempotency_in_progress", "document_being_uploaded"]);

export class StoredDocuments {
  readonly #key: string;
  readonly #urlOf: () => string;
  /** What was acknowledged, by its document's id. */
  readonly #stored = new Map<string, Buffer>();
  /** Of those, what has not been read yet. */
  #unread: string[] = [];
  #isClosed = false;

  private constructor(key: string, urlOf: () => string) {
    this.#key = key;
    this.#urlOf = urlOf;
  }

  static async open(cluster: Cluster, accountId: string, urlOf: () => string): Promise<StoredDocuments> {
    const { id: userId } = await createTestUser(cluster.pool, accountId);
    return new StoredDocuments(await cluster.createApiKey(accountId, SCOPES, userId), urlOf);
  }

  /** One was stored since they were read. */
  get hasMore(): boolean {
    return this.#unread.length > 0;
  }

  /** One after the other until the signal, of up to 40 KB; those that a cut ended are repeated beside them. */
  async run(signal: AbortSignal): Promise<void> {
    const sent: Promise<void>[] = [];
    const space = await this.#untilDone("POST", "/v1/spaces", { body: { name: "power" } });
    for (let n = 0; !signal.aborted; n++) {
      const content = Buffer.from(`document ${n}\n`.repeat(1 + ((n * 997) % 3_000)));
      const file = { file_name: `${n}`, content_type: "application/octet-stream", file_size: content.length };
      const created = await this.#untilDone("POST", "/v1/documents", {
        body: { space_id: space.body.id, ...file },
      });
      const id = String(created.body.id);
      sent.push(this.#send(id, content));
      await Promise.race([Promise.all(sent), wait(SENT_WITHIN_MS)]);
      while (this.#unread.length >= UNREAD_MAX && !signal.aborted) await wait(REPEAT_AFTER_MS);
    }
    await Promise.all(sent);
  }

  async #send(id: string, content: Buffer): Promise<void> {
    await this.#untilDone("PUT", `/v1/documents/${id}/content`, { content });
    this.#stored.set(id, content);
    this.#unread.push(id);
  }

  /** Those stored since the last time are what was sent. */
  async expectKept(): Promise<void> {
    for (const id of this.#unread.splice(0)) {
      const { bytes } = await this.#untilDone("GET", `/v1/documents/${id}/content`, {});
      equal(bytes.equals(this.#stored.get(id)!), true, `document ${id} is not what was stored`);
    }
  }

  /** Returns how many. */
  async expectAll(): Promise<number> {
    this.#unread = [...this.#stored.keys()];
    await this.expectKept();
    return this.#stored.size;
  }

  /** What has no answer yet rejects. */
  close(): void {
    this.#isClosed = true;
  }

  /** Repeated under its key. @throws when it is refused, or the power is there and it fails all the same */
  async #untilDone(method: string, path: string, options: AskOptions): Promise<Asked> {
    const idempotencyKey = method === "GET" ? null : randomUUID();
    const startedAt = performance.now();
    for (let answer: Asked | null = null; ; await wait(REPEAT_AFTER_MS)) {
      const asked = { ...options, key: this.#key, idempotencyKey };
      answer = await ask(this.#urlOf(), method, path, asked).catch(() => null);
      if (answer !== null && answer.status < 300) return answer;
      const isUnderWay = UNDER_WAY.has(String(answer?.body?.code));
      const isRefused = answer !== null && answer.status < 500 && !isUnderWay;
      const withinMs = ANSWERED_WITHIN_MS + (isUnderWay ? UPLOAD_CLAIM_MS : 0);
      const isLate = performance.now() - startedAt > patience(withinMs);
      if (isRefused || isLate || this.#isClosed)
        throw new Error(
          `${method} ${path} has no answer but ${answer?.status} ${JSON.stringify(answer?.body)}`,
        );
    }
  }
}
