import { fc } from "@fast-check/vitest";

export type JsonSchema = { readonly [member: string]: unknown };

/** Values that a JSON Schema of an OpenAPI document allows. `resolve` follows a `$ref`. */
export function valuesOf(schema: JsonSchema, resolve: (ref: string) => JsonSchema): fc.Arbitrary<unknown> {
  const of = (other: unknown): fc.Arbitrary<unknown> => valuesOf(other as JsonSchema, resolve);
  if (typeof schema.$ref === "string") return of(resolve(schema.$ref));
  if ("const" in schema) return fc.constant(schema.const);
  if (Array.isArray(schema.enum)) return fc.constantFrom(...schema.enum);
  const choices = schema.anyOf ?? schema.oneOf;
  if (Array.isArray(choices)) return fc.oneof(...choices.map(of));
  switch (schema.type) {
    case "string":
      return textsOf(schema);
    case "integer":
      return fc.integer({ min: bound(schema.minimum, -1e6), max: bound(schema.maximum, 1e6) });
    case "number":
      return fc.double({ min: bound(schema.minimum, -1e6), max: bound(schema.maximum, 1e6), noNaN: true });
    case "boolean":
      return fc.boolean();
    case "null":
      return fc.constant(null);
    case "array":
      return fc.array(of(schema.items ?? {}), {
        minLength: bound(schema.minItems, 0),
        maxLength: bound(schema.maxItems, 5),
      });
    case "object":
      return objectsOf(schema, of);
    default:
      return fc.jsonValue();
  }
}

function textsOf(schema: JsonSchema): fc.Arbitrary<unknown> {
  switch (schema.format) {
    case "uuid":
      return fc.uuid();
    case "date-time":
      return fc
        .date({ noInvalidDate: true, min: new Date("1990-01-01"), max: new Date("2100-01-01") })
        .map((date) => date.toISOString());
    case "uri":
      return fc.webUrl({ validSchemes: ["https"] });
  }
  const minLength = bound(schema.minLength, 0);
  const maxLength = bound(schema.maxLength, minLength + 50);
  if (typeof schema.pattern !== "string") return fc.string({ minLength, maxLength });
  const matching = fc.stringMatching(new RegExp(schema.pattern));
  return matching.filter(({ length }) => length >= minLength && length <= bound(schema.maxLength, length));
}

function objectsOf(
  schema: JsonSchema,
  of: (schema: unknown) => fc.Arbitrary<unknown>,
): fc.Arbitrary<unknown> {
  const properties = Object.entries((schema.properties ?? {}) as Record<string, unknown>);
  const model = Object.fromEntries(properties.map(([name, property]) => [name, of(property)]));
  const required = (schema.required ?? []) as string[];
  return fc.record(model, { requiredKeys: required });
}

function bound(value: unknown, otherwise: number): number {
  return typeof value === "number" ? value : otherwise;
}

/** Values that hardly any schema allows and that often break programs. */
export const nastyValues: fc.Arbitrary<unknown> = fc.oneof(
  fc.jsonValue(),
  fc.string({ unit: "binary", maxLength: 300 }),
  fc.constantFrom<unknown>(
    ...[
      "",
      " ",
      "\u0000",
      "\ud800",
      "__proto__",
      "constructor",
      "' or '1'='1",
      "%00",
      "../..",
      "null",
      "NaN",
    ],
    ...[-1, 0, 0.5, 2 ** 53, -(2 ** 63), 1e308, true, null, [], {}, [[]], { "": {} }],
    "9".repeat(400),
    "x".repeat(5000),
    JSON.parse('{"__proto__":{"polluted":true}}'),
  ),
);
