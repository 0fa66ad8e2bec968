import { describe, expect, test } from "vitest";
import { createProbes } from "../../src/receivers/probes.ts";
import { verifyWebhook } from "../../src/signing/index.ts";

const SECRETS = ["whsec_Y3VycmVudA==", "whsec_cHJldmlvdXM="];
const NOW_MS = Date.UTC(2026, 10, 20, 7, 0, 0, 123);

describe("the probes", () => {
  const probes = createProbes({ secrets: SECRETS, nowMs: NOW_MS });
  const posts = probes.flatMap(({ name, isGenuine, posts }) =>
    posts.map((post, index) => ({ what: `${name} ${index}`, isGenuine, ...post })),
  );

  test.each(posts.filter(({ isGenuine }) => isGenuine))(
    "$what is genuine by either secret",
    ({ body, header }) => {
      for (const secret of SECRETS) {
        const event = verifyWebhook({ rawBody: body, header, secret, now: NOW_MS / 1_000 });
        expect(event.data.example).toBe(true);
      }
    },
  );

  test.each(posts.filter(({ isGenuine }) => !isGenuine))("$what is not", ({ body, header }) => {
    expect(() => verifyWebhook({ rawBody: body, header, secrets: SECRETS, now: NOW_MS / 1_000 })).toThrow(
      expect.objectContaining({ kind: "rejected" }),
    );
    // What is wrong is the signature alone: whoever lets it pass has an event in hand.
    expect(JSON.parse(body.toString())).toMatchObject({
      event: "analysis.succeeded",
      data: { example: true },
    });
  });

  test("have ids of their own, but for the one that comes twice", () => {
    const ids = posts.map(({ body }) => JSON.parse(body.toString()).id as string);
    expect(new Set(ids).size).toBe(ids.length - 1);
  });
});
