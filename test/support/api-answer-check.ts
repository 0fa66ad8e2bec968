import { Ajv2020, type ValidateFunction } from "ajv/dist/2020.js";
import formats from "ajv-formats";

export type OpenApiDocument = {
  readonly paths: Readonly<Record<string, Readonly<Record<string, OpenApiOperation>>>>;
  readonly [member: string]: unknown;
};

type OpenApiOperation = {
  readonly operationId: string;
  readonly parameters: readonly { readonly [member: string]: unknown }[];
  readonly requestBody?: {
    readonly content: Readonly<Record<string, { readonly schema: { readonly [member: string]: unknown } }>>;
  };
  readonly [member: string]: unknown;
};

export type CheckedAnswer = { readonly status: number; readonly headers: Headers; readonly body: Buffer };

/** Finds the schema of a response in a document. */
export type AnswerCheck = {
  readonly document: OpenApiDocument;
  schemaAt(pointer: string): ValidateFunction;
};

export function createAnswerCheck(document: OpenApiDocument): AnswerCheck {
  const ajv = new Ajv2020({ strict: false, allErrors: false });
  formats.default(ajv);
  ajv.addSchema(document, "api");
  const compiled = new Map<string, ValidateFunction>();
  return {
    document,
    schemaAt: (pointer) => {
      const validate = compiled.get(pointer) ?? ajv.compile({ $ref: `api#${pointer}` });
      compiled.set(pointer, validate);
      return validate;
    },
  };
}

/** HTTP's own headers, which an OpenAPI document does not list. */
const GENERAL = new Set([
  "connection",
  "content-length",
  "content-type",
  "date",
  "keep-alive",
  "x-content-type-options",
]);
const ALWAYS = ["x-request-id", "ratelimit", "ratelimit-policy"];

/** What is wrong with a response according to the document, or null. A 5xx is always wrong. */
export function checkAnswer(
  { document, schemaAt }: AnswerCheck,
  { method, path }: { readonly method: string; readonly path: string },
  { status, headers, body }: CheckedAnswer,
): string | null {
  if (status >= 500) return `answered ${status}`;
  const operationPointer = `/paths/${escapePointer(path)}/${method.toLowerCase()}`;
  let pointer = `${operationPointer}/responses/${status}`;
  let response = at(document, pointer);
  if (response === undefined) return `the document does not declare ${status}`;
  if (typeof response.$ref === "string") {
    pointer = response.$ref.slice(1);
    response = at(document, pointer);
  }
  const declared = new Set(
    Object.keys((response?.headers ?? {}) as object).map((name) => name.toLowerCase()),
  );
  for (const name of headers.keys()) {
    if (!declared.has(name) && !GENERAL.has(name)) return `the document does not declare the header ${name}`;
  }
  for (const name of ALWAYS) if (!headers.has(name)) return `the header ${name} is missing`;
  for (const name of ["retry-after", "allow", "www-authenticate"]) {
    if (declared.has(name) && !headers.has(name)) return `the header ${name} is missing`;
  }

  const content = (response?.content ?? null) as Record<string, unknown> | null;
  if (content === null) return body.length > 0 ? "the document declares no body" : null;
  if ("*/*" in content) return null;
  const type = headers.get("content-type") ?? "none";
  if (!(type in content)) return `the document does not declare the media type ${type}`;
  const validate = schemaAt(`${pointer}/content/${escapePointer(type)}/schema`);
  const value = JSON.parse(body.toString());
  const { examples } = content[type] as { readonly examples?: object };
  if (status >= 400 && !Object.hasOwn(examples ?? {}, value.code))
    return `the document does not declare the code ${value.code}`;
  if (validate(value)) return null;
  return `the body is not of its schema: ${JSON.stringify(validate.errors)}`;
}

function at(document: OpenApiDocument, pointer: string): Record<string, unknown> | undefined {
  const names = pointer
    .slice(1)
    .split("/")
    .map((name) => name.replaceAll("~1", "/").replaceAll("~0", "~"));
  let value: unknown = document;
  for (const name of names) value = (value as Record<string, unknown> | undefined)?.[name];
  return value as Record<string, unknown> | undefined;
}

function escapePointer(name: string): string {
  return name.replaceAll("~", "~0").replaceAll("/", "~1");
}
