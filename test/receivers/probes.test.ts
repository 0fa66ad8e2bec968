import { describe, expect, test } from "vitest";
import { createProbes, type ProbePost } from "../../src/receivers/probes.ts";
import { verifyWebhook } from "../../src/signing/index.ts";

const SECRETS = [1, 2].map((byte) => `whsec_${Buffer.alloc(32, byte).toString("base64")}`);
const NOW_MS = Date.UTC(2026, 10, 20, 7, 0, 0, 123);

/** As a receiver sees them that verifies in one of the two ways. */
const headersOf = {
  "the service's own header": ({ signature }: ProbePost) => ({ "extract-signature": signature }),
  "the headers of Standard Webhooks": ({ standard }: ProbePost) => ({ ...standard }),
};

describe.each(Object.entries(headersOf))("the probes, by %s", (_, headers) => {
  const probes = createProbes({ secrets: SECRETS, signsStandard: true, nowMs: NOW_MS });
  const posts = probes.flatMap(({ name, isGenuine, posts }) =>
    posts.map((post, index) => ({ what: `${name} ${index}`, isGenuine, ...post })),
  );

  test.each(posts.filter(({ isGenuine }) => isGenuine))(
    "$what is genuine by either secret",
    ({ body, ...post }) => {
      for (const secret of SECRETS) {
        const event = verifyWebhook({
          rawBody: body,
          headers: headers({ body, ...post }),
          secret,
          now: NOW_MS / 1_000,
        });
        expect(event.data.example).toBe(true);
      }
    },
  );

  test.each(posts.filter(({ isGenuine }) => !isGenuine))("$what is not", ({ body, ...post }) => {
    const input = { rawBody: body, headers: headers({ body, ...post }), secrets: SECRETS };
    expect(() => verifyWebhook({ ...input, now: NOW_MS / 1_000 })).toThrow(
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
