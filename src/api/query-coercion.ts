import { z } from "zod";

/** Turns the texts of a query string into the values that a schema expects; what does not fit stays as it is. */
export type QueryCoercion = (query: Readonly<Record<string, unknown>>) => Record<string, unknown>;

type ReadText = (text: string) => unknown;

const JSON_NUMBER = /^-?\d{1,16}(?:\.\d{1,20})?(?:e[+-]?\d{1,3})?$/i;
const asText: ReadText = (text) => text;
// Past 2^53 it is inexact, and refused for its size by `z.int()`; past 308 digits it would be infinite.
const asInteger: ReadText = (text) => (/^-?\d{1,308}$/.test(text) ? Number(text) : text);
const asNumber: ReadText = (text) => (JSON_NUMBER.test(text) ? Number(text) : text);
const asBoolean: ReadText = (text) => (text === "true" ? true : text === "false" ? false : text);

/**
 * Plans the reading once, from the schema itself, so that declarations say `z.int()` and the reference says integer.
 * (`z.coerce` would read `""` as 0 and `"0x10"` as 16, and shows as a string in the reference.)
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

/** A list of one is written as one parameter; one that is no list and is repeated is left for the schema to refuse. */
function readValue(value: unknown, read: ReadText, isList: boolean): unknown {
  if (typeof value === "string") return isList ? [read(value)] : read(value);
  if (isList && Array.isArray(value))
    return value.map((text) => (typeof text === "string" ? read(text) : text));
  return value;
}
