import { fc, test as property } from "@fast-check/vitest";
import { describe, expect, test } from "vitest";
import { readAnalysisBody } from "../../src/delivery/analyses-api.ts";
import { type FieldError, Problem } from "../../src/http/problems.ts";

const read = (text: string) => readAnalysisBody(Buffer.from(text));

function refusal(body: string | Buffer): [string, string, code: string] {
  try {
    readAnalysisBody(Buffer.from(body));
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    const [{ path, message }] = error.errors as [FieldError];
    return [path, message, error.code];
  }
  throw new Error("It was not refused.");
}

describe("the analysis is cut out as it was written", () => {
  test.each([
    ["a plain one", '{"id":"a","status":"failed"}'],
    ["odd spacing", '{\t"id"  :\r\n"a" ,"x":[ 1 ,\n2 ] }'],
    ["numbers beyond 2^53", '{"n":9007199254740993,"m":1e400,"z":-0.0,"l":1E-7}'],
    ["members of the same name", '{"id":"a","id":"b","id":"c"}'],
    ["escapes", '{"x":"\\u0000\\ud800\\u00e9\\/\\\\\\""}'],
    ["brackets in texts", '{"x":"}],{[\\"}","y":["]"]}'],
    ["names like ours", '{"analysis":{"webhook_url":"no"},"webhook_url":"no"}'],
    ["__proto__", '{"__proto__":{"a":1},"constructor":null}'],
    ["characters beyond the first plane", '{"x":"🦭 \u{10ffff} é"}'],
    ["no object", "17"],
    ["a text", '"}"'],
    ["nothing", "null"],
    ["something empty", "{}"],
  ])("%s", (_, analysis) => {
    for (const body of [
      `{"analysis":${analysis}}`,
      `\n{ "analysis" :  ${analysis}\t, "webhook_url" : "https://x" }\n`,
      `{"webhook_url":null,"analysis":${analysis}}`,
      `{"\\u0061nalysis":${analysis}}`,
    ]) {
      expect(read(body).analysis).toBe(analysis);
    }
  });

  property.prop([fc.json({ maxDepth: 4 }), fc.constantFrom("", " ", "\n\t "), fc.option(fc.string())])(
    "whatever it is, and whatever is around it",
    (analysis, space, url) => {
      const member = `"webhook_url":${JSON.stringify(url)}${space}`;
      const body = `${space}{${space}${member},"analysis":${space}${analysis}${space}}`;
      const id: unknown = JSON.parse(analysis)?.id;
      const analysisId = typeof id === "string" ? id : "";
      expect(read(body)).toEqual({ analysis, analysisId, webhookUrl: url });
    },
  );
});

test("the URL is a text, or null, which is also said of none", () => {
  const refused = ["body.webhook_url", "Must be a string or null.", "invalid_request"];
  expect(refusal('{"analysis":1,"webhook_url":[2]}')).toEqual(refused);
  expect(read('{"analysis":1,"webhook_url":null}').webhookUrl).toBeNull();
  expect(read('{"analysis":1}').webhookUrl).toBeNull();
});

test.each([
  ['{"id":"a","x":{"id":"b"}}', "a"],
  ['{"id":7}', ""],
  ["{}", ""],
  ["null", ""],
  ['["id"]', ""],
])("the id of %s is %j", (analysis, id) => {
  expect(read(`{"analysis":${analysis}}`).analysisId).toBe(id);
});

describe("what is refused", () => {
  test.each([
    ["", "body", "The body is not valid JSON."],
    ["{", "body", "The body is not valid JSON."],
    ['{"analysis":1,}', "body", "The body is not valid JSON."],
    ['{"analysis":1}{}', "body", "The body is not valid JSON."],
    ['{"analysis":01}', "body", "The body is not valid JSON."],
    ['{"analysis":NaN}', "body", "The body is not valid JSON."],
    ["{'analysis':1}", "body", "The body is not valid JSON."],
    ['{"analysis":1/**/}', "body", "The body is not valid JSON."],
    ['\ufeff{"analysis":1}', "body", "The body is not valid JSON."],
    ["[]", "body", 'Must be an object with a field "analysis".'],
    ["null", "body", 'Must be an object with a field "analysis".'],
    ['"analysis"', "body", 'Must be an object with a field "analysis".'],
    ["{}", "body.analysis", "Missing."],
    ['{"webhook_url":null}', "body.analysis", "Missing."],
    ['{"analysis":1,"analysis":1}', "body.analysis", "Duplicate field."],
    ['{"analysis":1,"\\u0061nalysis":1}', "body.analysis", "Duplicate field."],
    ['{"analysis":1,"webhook_url":null,"webhook_url":"https://x"}', "body.webhook_url", "Duplicate field."],
    ['{"analysis":1,"webhookUrl":null}', "body.webhookUrl", "Unknown field."],
    ['{"analysis":1,"__proto__":{"analysis":2}}', "body.__proto__", "Unknown field."],
    ['{"__proto__":{"analysis":2}}', "body.__proto__", "Unknown field."],
  ])("%s", (body, path, message) => {
    expect(refusal(body)).toEqual([path, message, "invalid_request"]);
  });

  test("bytes that are not UTF-8", () => {
    const around = ['{"analysis":"', '"}'].map((text) => Buffer.from(text));
    for (const bytes of [[0xff], [0xc0, 0x80], [0xed, 0xa0, 0x80], [0xe2, 0x82]]) {
      const body = Buffer.concat([around[0] ?? Buffer.of(), Buffer.from(bytes), around[1] ?? Buffer.of()]);
      expect(refusal(body)).toEqual(["body", "The body is not valid UTF-8.", "invalid_request"]);
    }
  });

  test("nesting beyond 512 levels, and not the 512th", () => {
    const nested = (levels: number) => `${"[".repeat(levels)}${"]".repeat(levels)}`;
    expect(read(`{"analysis":${nested(512)}}`).analysis).toBe(nested(512));
    expect(refusal(`{"analysis":${nested(513)}}`)).toEqual([
      "body.analysis",
      "Nested more than 512 levels deep.",
      "invalid_analysis",
    ]);
    expect(refusal(`{"analysis":${nested(200_000)}}`)[2]).toBe("invalid_analysis");
  });
});
