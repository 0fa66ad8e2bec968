import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { openDatabase } from "../support/open.ts";

const LEVELS_MAX = 512;

const database = await openDatabase();

async function ask<T>(expression: string, texts: readonly string[]): Promise<T[]> {
  const { rows } = await database.pool.query<{ said: T }>(
    `select ${expression} as said from unnest($1::text[]) with ordinality as t (body, n) order by n`,
    [texts],
  );
  return rows.map(({ said }) => said);
}

const isTooDeep = (texts: readonly string[]) => ask<boolean>("sealpost.is_too_deep(body)", texts);

/** Levels of arrays and objects, the root's included. */
function levelsOf(value: unknown): number {
  if (typeof value !== "object" || value === null) return 0;
  return 1 + Math.max(0, ...Object.values(value).map(levelsOf));
}

describe("how deep a text is nested", () => {
  const nested = (levels: number, open: string, inner: string, close: string) =>
    open.repeat(levels) + inner + close.repeat(levels);

  it.each([
    ["arrays", "[", "1", "]"],
    ["arrays around nothing", "[", "", "]"],
    ["objects", '{"a":', "true", "}"],
    ["arrays with neighbours", '[[],{"[":[[[]]]},', "null", ",[[[]],[]],1e-5]"],
    ["spread over lines", "[\n\t", "-1.5E+9", "\r\n ]"],
    ["with names that hold brackets and escapes", '{"]]\\\\\\"[{\\\\":', '"\\\\"', ',"\\"":"}"}'],
  ])("is known to the level: %s", async (_name, open, inner, close) => {
    const texts = [LEVELS_MAX - 1, LEVELS_MAX, LEVELS_MAX + 1].map((levels) =>
      nested(levels, open, inner, close),
    );
    const expected = texts.map((text) => levelsOf(JSON.parse(text)) > LEVELS_MAX);
    expect(expected.at(-1)).toBe(true);
    expect(await isTooDeep(texts)).toEqual(expected);
  });

  it("is known beyond what PostgreSQL's own stack holds, and in a text that is broad and deep", async () => {
    const broad = "[[],[[]],[[[]]]],".repeat(20_000);
    const texts = [`[${broad}${nested(511, "[", "", "]")}]`, `[${broad}${nested(512, "[", "", "]")}]`];
    expect(await isTooDeep([nested(100_000, "[", "", "]"), ...texts])).toEqual([true, false, true]);
  });

  it("is what a JSON parser finds, in any text under any number of levels", async () => {
    const around = fc.tuple(fc.json({ maxDepth: 8 }), fc.integer({ min: 500, max: 515 }));
    await fc.assert(
      fc.asyncProperty(fc.array(around, { minLength: 20, maxLength: 20 }), async (all) => {
        const texts = all.map(([json, levels]) => nested(levels, "[", json, "]"));
        expect(await isTooDeep(texts)).toEqual(texts.map((text) => levelsOf(JSON.parse(text)) > LEVELS_MAX));
      }),
      { numRuns: 30 },
    );
  });
});

describe("a text with escapes", () => {
  it.each([
    ['{"id":"a","status":"succeeded","x":"\\"\\\\\\u0000\\ud800\\n"}', null],
    ['{"id":"a","status":"succeeded","\\u0078":1}', null],
    ['{"id":"a","status":"succeeded","x":{"\\u0069d":1}}', null],
    ['{"id":"a","status":"succeeded","x":"\\\\u0069d"}', null],
    ['{"\\u0069d":"a","status":"succeeded"}', 'the member name "id" or "status" is written with escapes'],
    [
      '{"id":"a","stat\\u0075s":"failed","status":"succeeded"}',
      'the member name "id" or "status" is written with escapes',
    ],
    ['{"id":"a","status":"succeede\\u0064"}', expect.stringContaining('its "status" is neither')],
    ['{"id":"\\u0061","status":"succeeded"}', expect.stringContaining('its "id" is not 1 to 200')],
    ['{"id":"a\\n","status":"succeeded"}', expect.stringContaining('its "id" is not 1 to 200')],
  ])("is read like any other: %s", async (text, fault) => {
    expect(await ask("(sealpost.read_analysis(body::json, 1000000)).fault", [text])).toEqual([fault]);
  });
});

describe("the cost of a text", () => {
  const BYTES = 900_000;
  const filled = (piece: string) => piece.repeat(Math.floor(BYTES / piece.length));
  const analysis = (value: string) => `{"id":"a","status":"succeeded","x":${value}}`;

  /** How long reading takes, in milliseconds. */
  async function readMs(text: string): Promise<number> {
    const startMs = performance.now();
    await ask("(sealpost.read_analysis(body::json, 1000000)).fault", [text]);
    return performance.now() - startMs;
  }

  // With regular expressions: 7 to 13 times as much. Each text is read right after the plain one and compared with
  // that reading alone: a slow moment of the machine makes a pair or two worse, never all of them.
  it.each([
    ["escaped quotes", `"${filled('\\"[')}"`],
    ["empty arrays", `[${filled("[],")}0]`],
    ["small objects", `[${filled('{"a":[]},')}0]`],
  ])("is not made many times larger by %s", async (_piece, value) => {
    const plain = analysis(`"${filled("lorem ipsum [dolor] ")}"`);
    const ratios: number[] = [];
    for (let n = 0; n < 12; n += 1) {
      const plainMs = await readMs(plain);
      ratios.push((await readMs(analysis(value))) / plainMs);
    }
    expect(Math.min(...ratios)).toBeLessThan(5);
  });
});
