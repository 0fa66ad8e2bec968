import type { z } from "zod";
import type { SchemaWriter } from "./openapi-schemas.ts";

/** A request that this service sends by itself, to a URL that an account has named. */
export type SentRequest = {
  /** The event that it tells of: its name in the document, and its operationId. */
  readonly event: string;
  /** Its heading in the reference. */
  readonly tag: string;
  readonly summary: string;
  readonly description: string;
  readonly headers: readonly SentHeader[];
  readonly body: z.ZodType;
  readonly example: unknown;
  /** What the receiver's answer means, by status (`204`, `4XX`). */
  readonly responses: Readonly<Record<string, string>>;
};

export type SentHeader = {
  readonly name: string;
  readonly description: string;
  readonly isAlwaysSent: boolean;
  readonly pattern: RegExp;
  readonly example: string;
};

/** `webhooks` of the document. Bodies are written like answers: receivers must accept new members. */
export function describeSentRequests(
  requests: readonly SentRequest[],
  schemas: SchemaWriter,
): Readonly<Record<string, object>> {
  return Object.fromEntries(requests.map((request) => [request.event, { post: describe(request, schemas) }]));
}

function describe(request: SentRequest, schemas: SchemaWriter): object {
  const { event, tag, summary, description, headers, body, example, responses } = request;
  const schema = schemas.write(body, "output");
  return {
    operationId: event,
    tags: [tag],
    summary,
    description,
    // Its signature shows who sent it; the key of the API is not in it.
    security: [],
    parameters: headers.map((header) => ({
      name: header.name,
      in: "header",
      required: header.isAlwaysSent,
      description: header.description,
      schema: { type: "string", pattern: header.pattern.source },
      example: header.example,
    })),
    requestBody: { required: true, content: { "application/json": { schema, example } } },
    responses: Object.fromEntries(
      Object.entries(responses).map(([status, meaning]) => [status, { description: meaning }]),
    ),
  };
}
