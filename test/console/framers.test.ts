import { expect, test } from "vitest";
import { framerTag } from "../../src/base/model/console.ts";
import { createFramers } from "../../src/console/embedding.ts";

const ORIGIN = "https://app.example.com";
const [OLD, NEW] = [Buffer.alloc(32, 1), Buffer.alloc(32, 2)];

test("a link's tag is known to processes of both steps while SECRETS_KEY is rotated, and to no others", () => {
  for (const keys of [[OLD, NEW] as const, [NEW, OLD] as const])
    for (const key of [OLD, NEW])
      expect(createFramers([ORIGIN], keys).ofTag(framerTag(key, ORIGIN))).toBe(ORIGIN);
  expect(createFramers([ORIGIN], NEW).ofTag(framerTag(OLD, ORIGIN))).toBeNull();
});
