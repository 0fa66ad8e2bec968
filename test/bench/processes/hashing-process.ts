// Nothing but the processor: what one core does, and what two do at the same time.
import { createHash } from "node:crypto";
import { answerQuestions } from "./answering.ts";

export type HashWish = { readonly durationMs: number };

const block = Buffer.alloc(1_024, 1);

/** Hashes a second. */
function hash({ durationMs }: HashWish): number {
  const startedAtMs = performance.now();
  let hashed = 0;
  while (performance.now() - startedAtMs < durationMs) {
    createHash("sha256").update(block).digest();
    hashed += 1;
  }
  return (hashed * 1_000) / (performance.now() - startedAtMs);
}

answerQuestions({ hash });
