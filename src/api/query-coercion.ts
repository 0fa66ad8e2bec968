import { z } from "zod";

/** Converts query strings to the types that a schema expects; what does not convert stays a string. */
export type QueryCoercion = (query: Readonly<Record<string, unknown>>) => Record<string, unknown>;

type ReadText = (text: string) => unknown;

const JSON_NUMBER = /^-?\d{1,16}(?:\.\d{1,20})?(?:e[+-]?\d{1,3})?$/i;
const asText: ReadText = (text) => text;
// Past 2^53 it is inexact and `z.int()` rejects it; past 308 digits it would be infinite.
const asInteger: ReadText = (text) => (/^-?\d{1,308}$/.test(text) ? Number(text) : text);
const asNumber: ReadText = (text) => (JSON_NUMBER.test(text) ? Number(text) : text);
const asBoolean: ReadText = (text) => (text === "true" ? true : text === "false" ? false : text);

/**
 * Compiled once from the schema, so that declarations say `z.int()` and the reference says integer. (`z.coerce`
 * would read `""` as 0 and `"0x10"` as 16, and shows as a string in the reference.)
 */
export function compileQueryCoercion(schema: z.ZodObject): QueryCoercion {
  const json = z.toJSONSchema(schema, { io: "input", unrepresentable: "any" });
  const readers = new Map<string, { readonly read: ReadText; readonly isList: boolean }>();
  for (const [name, property] of Object.entries(json.properties ?? {})) {
    if (typeof property !== "object") continue;
    const items = typeof property.items === "object" && !Array.isArray(property.items) ? property.items : {};
    const isList = property.type === "array";
    readers.set(name, { read: reader(isList ? items.type : property.type), isList });
  }
  return (query) => {
    const read: Record<string, unknown> = Object.create(null);
    for (const name of Object.keys(query)) {
      const plan = readers.get(name);
      read[name] = plan ? readValue(query[name], plan.read, plan.isList) : query[name];
    }
    return read;
  };
}

function reader(type: unknown): ReadText {
  if (type === "integer") return asInteger;
  if (type === "number") return asNumber;
  return type === "boolean" ? asBoolean : asText;
}

/** A list of one is a single parameter; a repeated parameter that is no list is left for the schema to reject. */
function readValue(value: unknown, read: ReadText, isList: boolean): unknown {
  if (typeof value === "string") return isList ? [read(value)] : read(value);
  if (isList && Array.isArray(value))
    return value.map((text) => (typeof text === "string" ? read(text) : text));
  return value;
}
