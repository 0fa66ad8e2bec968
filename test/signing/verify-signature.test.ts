import { Buffer } from "node:buffer";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  importSigningKey,
  signatureHeader,
  verifySignature,
  WEBHOOK_VERIFICATION_ERROR_CODES,
  WebhookVerificationError,
} from "../../src/signing/index.ts";
import { patience } from "../support/time-limits.ts";
import { signatureVectors } from "./vectors.ts";

const SECRET = "whsec_bm90LWEtcmVhbC1zZWNyZXQtb25seS1mb3ItdGVzdHM";
const OTHER_SECRET = "whsec_YW5vdGhlci1zZWNyZXQtb25seS1mb3ItdGVzdHM";
const NOW_SECONDS = 1_800_000_000;
const BODY = Buffer.from('{"id":"1","event":"analysis.succeeded"}');

function sign(body: Uint8Array, secrets = [SECRET], timestampSeconds = NOW_SECONDS): string {
  return signatureHeader({ timestampSeconds, body, keys: secrets.map(importSigningKey) });
}

type Input = Extract<Parameters<typeof verifySignature>[0], { readonly headers?: undefined }>;

/** The code of the error, which is told in whole sentences, or "accepted". */
function verdict(input: Partial<Input>): string {
  return judged(input)?.code ?? "accepted";
}

function judged(input: Partial<Input>): WebhookVerificationError | null {
  try {
    verifySignature({
      body: BODY,
      header: sign(BODY),
      secrets: [SECRET],
      nowSeconds: NOW_SECONDS,
      ...input,
    });
    return null;
  } catch (error) {
    if (!(error instanceof WebhookVerificationError)) throw error;
    expect(error.message).toMatch(/^[A-Zt]\S* (?:\S+ )+\S+[.)]$/);
    return error;
  }
}

describe("the vectors of another implementation", () => {
  test("are 44", () => expect(signatureVectors).toHaveLength(44));

  test.each(signatureVectors)("$name: $verdict", (vector) => {
    const input = {
      body: Buffer.from(vector.body_base64, "base64"),
      header: vector.header,
      secrets: vector.secrets,
      nowSeconds: vector.now,
      toleranceSeconds: vector.tolerance_seconds,
    };
    if (vector.verdict === "accept") return verifySignature(input);
    const kind = vector.verdict === "reject" ? "rejected" : "misuse";
    expect(() => verifySignature(input)).toThrow(expect.objectContaining({ kind }));
  });
});

describe("signatureHeader", () => {
  test("makes the header of the vector, byte for byte", () => {
    for (const name of ["signed:succeeded", "signed:not_utf8", "signed:empty"]) {
      const vector = signatureVectors.find((candidate) => candidate.name === name)!;
      expect(sign(Buffer.from(vector.body_base64, "base64"), [...vector.secrets], vector.now)).toBe(
        vector.header,
      );
    }
  });

  test("carries the current signature first and the old one last while a secret is rotated", () => {
    expect(sign(BODY, [SECRET, OTHER_SECRET])).toBe(
      `${sign(BODY, [SECRET])},${sign(BODY, [OTHER_SECRET]).split(",")[1]}`,
    );
  });

  test("refuses a time that is not whole seconds, and no key", () => {
    for (const timestampSeconds of [1.5, -1, Number.NaN, 2 ** 53]) {
      expect(() => sign(BODY, [SECRET], timestampSeconds)).toThrow(RangeError);
    }
    expect(() => sign(BODY, [])).toThrow(RangeError);
  });

  test("refuses an empty secret at import", () => {
    for (const secret of ["", " ", "\n", "\0", undefined as never]) {
      expect(() => importSigningKey(secret)).toThrow(WebhookVerificationError);
    }
  });
});

describe("the time", () => {
  test.each([
    [-300, "timestamp_ahead"],
    [-299, "accepted"],
    [0, "accepted"],
    [299, "accepted"],
    [300, "timestamp_too_old"],
  ])("a delivery %i s old: %s", (ageSeconds, expected) => {
    expect(verdict({ nowSeconds: NOW_SECONDS + ageSeconds })).toBe(expected);
  });

  test("a tolerance or a clock that is no number is an error, not an acceptance", () => {
    for (const toleranceSeconds of [
      Number.NaN,
      Number.POSITIVE_INFINITY,
      0,
      -1,
      "300" as never,
      null as never,
    ]) {
      expect(verdict({ toleranceSeconds })).toBe("tolerance_invalid");
    }
    for (const nowSeconds of [Number.NaN, -1, NOW_SECONDS * 1000, "1800000000" as never, null as never]) {
      expect(verdict({ nowSeconds })).toBe("clock_invalid");
    }
  });
});

describe("the header", () => {
  const good = sign(BODY);
  const [t, v1] = good.split(",") as [string, string];

  test.each([
    ["as sent", good, "accepted"],
    ["in a list of one", [good], "accepted"],
    ["signature before time", `${v1},${t}`, "accepted"],
    ["later schemes around", `v2=a/b+c==,${t},${v1},k=`, "accepted"],
    ["the right signature among 16", `${t},${`v1=${"0".repeat(64)},`.repeat(15)}${v1}`, "accepted"],
    ["the right signature among 17", `${t},${`v1=${"0".repeat(64)},`.repeat(16)}${v1}`, "header_malformed"],
    ["absent", undefined, "header_missing"],
    ["null", null, "header_missing"],
    ["empty", "", "header_missing"],
    ["an empty list", [], "header_missing"],
    ["sent twice", [good, good], "header_malformed"],
    ["sent twice and joined", `${good}, ${good}`, "header_malformed"],
    ["not a string", 7 as never, "header_malformed"],
    ["white space after the comma", `${t}, ${v1}`, "header_malformed"],
    ["white space at the end", `${good} `, "header_malformed"],
    ["a line break at the end", `${good}\n`, "header_malformed"],
    ["a comma at the end", `${good},`, "header_malformed"],
    ["names in upper case", good.toUpperCase(), "header_malformed"],
    ["t twice, the same", `${t},${good}`, "header_malformed"],
    ["t with a leading zero", good.replace("t=", "t=0"), "header_malformed"],
    ["t in full-width digits", good.replace("t=1", "t=１"), "header_malformed"],
    ["t empty", `t=,${v1}`, "header_malformed"],
    ["t beyond 2^53", `t=99999999999999999999,${v1}`, "header_malformed"],
    ["t zero", `t=0,${v1}`, "timestamp_too_old"],
    ["a v1 that is not hex beside the right one", `${good},v1=00`, "header_malformed"],
    ["8,192 characters", `${good},x=${"y".repeat(8_192 - good.length - 3)}`, "accepted"],
    ["8,193 characters", `${good},x=${"y".repeat(8_193 - good.length - 3)}`, "header_malformed"],
  ])("%s", (_, header, expected) => expect(verdict({ header })).toBe(expected));

  test("of 64 KiB takes less than 5 ms, whatever it holds", () => {
    const parts = ["a", ",", "=", "t=1,", "v1=00,", "v2=,", `${v1},`, "\0", "é"];
    for (const part of parts) {
      const header = part.repeat(Math.floor(65_536 / part.length));
      const durationsMs = Array.from({ length: 5 }, () => {
        const startedAt = performance.now();
        expect(verdict({ header })).toBe("header_malformed");
        return performance.now() - startedAt;
      });
      // The fastest: a neighbour's load may slow down any one of them.
      expect(Math.min(...durationsMs)).toBeLessThan(patience(5));
    }
  });
});

describe("the secrets", () => {
  test("any of them may match", () => {
    expect(verdict({ secrets: [OTHER_SECRET, SECRET] })).toBe("accepted");
    expect(verdict({ header: sign(BODY, [OTHER_SECRET, SECRET]) })).toBe("accepted");
    expect(verdict({ secrets: [OTHER_SECRET] })).toBe("no_signature_matches");
  });

  test("an empty one is an error even beside a good one", () => {
    for (const empty of ["", "  ", "\0\0"])
      expect(verdict({ secrets: [SECRET, empty] })).toBe("secret_empty");
  });

  test("none, or no list, is an error", () => {
    for (const secrets of [[], undefined, null, [undefined], [SECRET, 7], { 0: SECRET, length: 1 }]) {
      expect(verdict({ secrets: secrets as never })).toBe("secret_missing");
    }
  });

  test("that is none is told by what it is", () => {
    for (const [secret, found] of [
      [null, "null"],
      [undefined, "undefined"],
      [7, "number"],
    ] as const) {
      expect(() => importSigningKey(secret as never)).toThrow(`A signing secret is ${found}, not a string.`);
    }
  });

  test("a text in place of the list is not taken for a list of one-letter secrets", () => {
    expect(verdict({ secrets: SECRET as never, header: sign(BODY, ["w"]) })).toBe("secret_missing");
  });

  test("never stand in the message", () => {
    const damaged = `${OTHER_SECRET}\n`;
    for (const secrets of [[OTHER_SECRET], [damaged]]) {
      expect(() =>
        verifySignature({ body: BODY, header: sign(BODY), secrets, nowSeconds: NOW_SECONDS }),
      ).toThrow(expect.objectContaining({ message: expect.not.stringContaining(OTHER_SECRET) }));
    }
    expect(() =>
      verifySignature({ body: BODY, header: sign(BODY), secrets: [damaged], nowSeconds: NOW_SECONDS }),
    ).toThrow(/whitespace/);
  });
});

describe("an error says what was found:", () => {
  const [t, v1] = sign(BODY).split(",") as [string, string];
  const zero = `v1=${"0".repeat(64)}`;

  test.each([
    [{ header: null }, /no extract-signature header.* as received.* proxy in .* not from the service\./],
    [{ header: "v1" }, /is not t=<seconds>,v1=<hex>: an item is not name=value\. Pass .* unchanged\./],
    [{ header: `${t},${t},${v1}` }, /: it has more than one t\./],
    [{ header: `t=01,${v1}` }, /: t is not a whole number of seconds/],
    [{ header: `${t},v1=0` }, /: a v1 is not 64 lowercase hex digits\./],
    [{ header: `${t}${`,${zero}`.repeat(17)}` }, /: it has more than 16 v1\./],
    [{ header: v1 }, /: it has no t\./],
    [{ header: t }, /: it has no v1\./],
    [{ header: [t, t] }, /: it was sent more than once\./],
    [{ header: 7 as never }, /: it is a number, not a string\./],
    [{ header: "x".repeat(8_193) }, /: it is 8193 characters long; the limit is 8192\./],
    [{ header: `${t},${zero}` }, /the raw bytes .*, whsec_ included\. If both are right, .* not sent by/],
    [{ secrets: ["wh", SECRET], header: `${t},${zero}` }, /whsec_ included; .* not start with whsec_ or/],
    [{ secrets: [` ${SECRET}`], header: sign(BODY) }, /whsec_ included; .* has whitespace around it\./],
    [{ secrets: [] }, /No signing secret .* configuration, .* `secret` or, during a rotation, as `secrets`/],
    [{ secrets: [""] }, /is empty, so anyone could sign with it/],
    [{ nowSeconds: NOW_SECONDS + 300.6 }, /signed 301 s ago; 300 s or more .* replay attacks\..* a queue\./],
    [{ nowSeconds: NOW_SECONDS - 300.6 }, /301 s ahead of .*; 300 s or more is refused\. Correct /],
    [{ toleranceSeconds: 0 }, /toleranceSeconds must be .* default of 300\./],
    [{ nowSeconds: NOW_SECONDS * 1_000 }, /Unix time in seconds; .* milliseconds\..* system clock\./],
    [{ body: "text" as never }, /is a string, but .* the bytes that were sent\. Pass .*encode\(text\)\./],
    [{ body: undefined as never }, /is undefined\. Read the raw .* Buffer, Uint8Array or ArrayBuffer\./],
    [
      { body: {} as never },
      /already parsed\..* which JSON\.stringify does not .* \(express\.raw\(\) .* fastify/,
    ],
  ])("%#", (input, message) => {
    expect(judged(input)?.message).toMatch(message);
  });
});

describe("the body", () => {
  test("may be any bytes", () => {
    const exact = BODY.buffer.slice(BODY.byteOffset, BODY.byteOffset + BODY.byteLength);
    for (const body of [BODY, new Uint8Array(BODY), exact]) expect(verdict({ body })).toBe("accepted");
  });

  test("that is no longer bytes is an error that names the remedy", () => {
    const bodies = [
      JSON.parse(BODY.toString()),
      BODY.toJSON(),
      [...BODY],
      BODY.toString(),
      undefined,
      null,
      7,
    ];
    for (const body of bodies) expect(verdict({ body: body as never })).toBe("body_already_parsed");
    expect(() =>
      verifySignature({ body: {} as never, header: sign(BODY), secrets: [SECRET], nowSeconds: NOW_SECONDS }),
    ).toThrow(/express\.raw\(\)/);
  });

  test("of elements wider than a byte is refused", () => {
    expect(verdict({ body: new Float64Array(1) as never })).toBe("body_already_parsed");
    expect(verdict({ body: new DataView(new ArrayBuffer(8)) as never })).toBe("body_already_parsed");
  });
});

describe("for all bodies, times and secrets", () => {
  const secret = fc.string({ minLength: 1, unit: "grapheme" }).filter((text) => /[^\s\0]/u.test(text));
  const signed = fc.record({
    body: fc.uint8Array({ maxLength: 300 }),
    timestampSeconds: fc.integer({ min: 0, max: 9_999_999_999 }),
    secrets: fc.uniqueArray(secret, { minLength: 1, maxLength: 3 }),
    chosen: fc.nat(),
    ageSeconds: fc.integer({ min: -299, max: 299 }),
  });

  test("what was signed is accepted", () => {
    fc.assert(
      fc.property(signed, ({ body, timestampSeconds, secrets, chosen, ageSeconds }) => {
        const header = sign(body, secrets, timestampSeconds);
        const nowSeconds = Math.max(0, timestampSeconds + ageSeconds);
        verifySignature({ body, header, secrets: [secrets[chosen % secrets.length]!], nowSeconds });
      }),
      { numRuns: 500 },
    );
  });

  test("a change of any one byte, of the body or of the header, is refused", () => {
    fc.assert(
      fc.property(
        fc.uint8Array({ minLength: 1, maxLength: 300 }),
        fc.nat(),
        fc.integer({ min: 1, max: 255 }),
        (body, at, change) => {
          const header = sign(body);
          const changedBody = Buffer.from(body);
          changedBody[at % body.length]! ^= change;
          expect(verdict({ body: changedBody, header })).toBe("no_signature_matches");
          const changedHeader = Buffer.from(header);
          changedHeader[at % header.length]! ^= change;
          expect(verdict({ body, header: changedHeader.toString("latin1") })).not.toBe("accepted");
        },
      ),
      { numRuns: 2_000 },
    );
  });

  test("a byte more or a byte fewer is refused", () => {
    fc.assert(
      fc.property(fc.uint8Array({ minLength: 1, maxLength: 300 }), fc.nat(255), (body, byte) => {
        const header = sign(body);
        expect(verdict({ body: Buffer.from([...body, byte]), header })).toBe("no_signature_matches");
        expect(verdict({ body: body.slice(1), header })).toBe("no_signature_matches");
      }),
      { numRuns: 500 },
    );
  });
});

test("every code has a kind, and an error keeps it", () => {
  for (const code of WEBHOOK_VERIFICATION_ERROR_CODES) {
    expect(["rejected", "misuse"]).toContain(new WebhookVerificationError(code, "x").kind);
  }
});
