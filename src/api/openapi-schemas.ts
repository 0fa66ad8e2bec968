import { z } from "zod";

export type JsonSchema = { readonly [member: string]: unknown };

type Direction = "input" | "output";

/** Converts zod schemas to JSON Schema; those with an id become components, each once. */
export type SchemaWriter = {
  write(schema: z.ZodType, direction: Direction): JsonSchema;
  /** All components written so far, by name. */
  readonly components: Readonly<Record<string, JsonSchema>>;
};

/**
 * Responses are written first: a request component whose name a response has taken for a different schema (requests
 * reject unknown members, responses may gain some) gets the suffix `Input`.
 */
export function createSchemaWriter(): SchemaWriter {
  const components: Record<string, JsonSchema> = {};
  const idsOfAnswers = new Set<string>();

  function nameFor(id: string, def: JsonSchema, direction: Direction): string {
    if (direction === "output") idsOfAnswers.add(id);
    if (direction === "output" || !idsOfAnswers.has(id)) return id;
    const text = JSON.stringify(def);
    const isSame = !text.includes('"$ref"') && text === JSON.stringify(components[id]);
    return isSame ? id : `${id}Input`;
  }

  function write(schema: z.ZodType, direction: Direction): JsonSchema {
    const written = z.toJSONSchema(schema, { io: direction, unrepresentable: "any" });
    const { $defs = {}, ...root } = tidy(written, direction) as Written;
    const names = new Map(Object.entries($defs).map(([id, def]) => [id, nameFor(id, def, direction)]));
    for (const [id, def] of Object.entries($defs)) {
      const name = names.get(id) ?? id;
      const component = refer(def, names);
      if (JSON.stringify(components[name] ?? component) !== JSON.stringify(component)) {
        throw new Error(`Two schemas have the id ${id}.`);
      }
      components[name] = component;
    }
    return refer(root, names);
  }

  return { write, components };
}

type Written = JsonSchema & { readonly $defs?: Readonly<Record<string, JsonSchema>> };

/** Points the references at the components of the document. */
function refer(schema: JsonSchema, names: ReadonlyMap<string, string>): JsonSchema {
  return mapObjects(schema, (object) => {
    const { $ref } = object;
    if (typeof $ref !== "string" || !$ref.startsWith("#/$defs/")) return object;
    const id = $ref.slice("#/$defs/".length);
    return { ...object, $ref: `#/components/schemas/${names.get(id) ?? id}` };
  }) as JsonSchema;
}

const FORMATS_THAT_SAY_ENOUGH = new Set(["date-time", "date", "uuid", "uri", "email", "ipv4", "ipv6"]);

/** Removes what is of no use to a reader: patterns beside formats, bounds of 2^53. */
function tidy(schema: unknown, direction: Direction): unknown {
  return mapObjects(schema, (object) => {
    const tidied: Record<string, unknown> = { ...object };
    delete tidied.$schema;
    delete tidied.id;
    if (FORMATS_THAT_SAY_ENOUGH.has(String(tidied.format))) delete tidied.pattern;
    if (tidied.minimum === Number.MIN_SAFE_INTEGER) delete tidied.minimum;
    if (tidied.maximum === Number.MAX_SAFE_INTEGER) delete tidied.maximum;
    // Clients must accept new members in responses, so the document does not forbid them.
    if (direction === "output" && tidied.additionalProperties === false) delete tidied.additionalProperties;
    if (JSON.stringify(tidied.propertyNames) === '{"type":"string"}') delete tidied.propertyNames;
    return tidied;
  });
}

/** Applies `change` to every schema object, inside out; the names of properties are not schema objects. */
function mapObjects(value: unknown, change: (object: JsonSchema) => JsonSchema, isNames = false): unknown {
  if (Array.isArray(value)) return value.map((item) => mapObjects(item, change));
  if (typeof value !== "object" || value === null) return value;
  const entries = Object.entries(value).map(([name, member]) => {
    if (!isNames && LITERALS.has(name)) return [name, member];
    return [name, mapObjects(member, change, !isNames && MAPS.has(name))];
  });
  const mapped = Object.fromEntries(entries) as JsonSchema;
  return isNames ? mapped : change(mapped);
}

const MAPS = new Set(["properties", "patternProperties", "$defs"]);
const LITERALS = new Set(["const", "enum", "default", "example", "examples"]);
