import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { z } from "zod";
import { operationDefiners } from "../../src/http/define-operation.ts";
import { buildOpenApiDocument } from "../../src/http/openapi.ts";
import { createSchemaWriter } from "../../src/http/openapi-schemas.ts";
import { jsonResponse, type Operation } from "../../src/http/operation.ts";
import { createOperationRegistry } from "../../src/http/operation-registry.ts";
import { standardProblems } from "../../src/http/problem-catalogue.ts";
import { lintDocument, withGeneratedClient } from "../support/api-document.ts";
import { createToyApi, type ToyApi, toyInfo } from "../support/api-toy-server.ts";
import { patience } from "../support/time-limits.ts";

type Described = {
  readonly responses: Readonly<Record<string, { readonly $ref?: string; readonly headers?: object }>>;
  readonly [member: string]: unknown;
};
type Document = {
  readonly openapi: string;
  readonly info: Readonly<Record<string, unknown>>;
  readonly servers: readonly { readonly url: string }[];
  readonly paths: Readonly<Record<string, Readonly<Record<string, Described>>>>;
  readonly components: Readonly<Record<string, Readonly<Record<string, Described>>>>;
  readonly [member: string]: unknown;
};

let api: ToyApi;
let document: Document;
beforeEach(async () => {
  api = await createToyApi();
  await api.listen();
  const response = await fetch(`http://127.0.0.1:${api.port()}/v1/openapi.json`);
  document = (await response.json()) as Document;
});
afterEach(() => api.app.close());

describe("the OpenAPI document", () => {
  test("is of version 1.0.0 and answers If-None-Match", async () => {
    expect(document.openapi).toBe("3.1.0");
    expect(document.info.version).toBe("1.0.0");
    expect(document.servers).toMatchObject([{ url: "https://boxes.test/v1" }]);
    const url = `http://127.0.0.1:${api.port()}/v1/openapi.json`;
    const etag = (await fetch(url)).headers.get("etag") ?? "";
    expect((await fetch(url, { headers: { "if-none-match": etag } })).status).toBe(304);
  });

  test("declares 16 errors on every operation, with the problem schema and the headers", () => {
    const statuses = "400 401 402 403 404 405 409 410 413 415 422 429 500 502 503 504".split(" ");
    const operations = Object.values(document.paths).flatMap((path) => Object.values(path));
    expect(operations).toHaveLength(14);
    for (const { responses, operationId } of operations) {
      const errors = Object.keys(responses).filter((status) => Number(status) >= 400);
      const ofRanges = "206" in responses ? ["416"] : [];
      expect(errors, String(operationId)).toEqual([...statuses, ...ofRanges].sort());
      for (const status of errors) {
        const response = document.components.responses?.[responses[status]?.$ref?.split("/").at(-1) ?? ""];
        expect(response?.content).toHaveProperty(["application/problem+json", "schema"], {
          $ref: "#/components/schemas/Problem",
        });
        const headers = Object.keys(response?.headers ?? {});
        expect(headers).toEqual(expect.arrayContaining(["X-Request-Id", "RateLimit", "RateLimit-Policy"]));
        expect(headers.includes("Retry-After")).toBe(status === "429" || status === "503");
      }
      const success = Object.entries(responses).find(([status]) => Number(status) < 300)?.[1];
      const onSuccess = ["ETag", "Deprecation", "Sunset", "Idempotent-Replayed", "X-Request-Id", "RateLimit"];
      expect(Object.keys(success?.headers ?? {})).toEqual(expect.arrayContaining(onSuccess));
    }
  });

  test("with the errors that are raised has no others, and says which it folds", async () => {
    const url = `http://127.0.0.1:${api.port()}/v1/openapi.json?errors=raised`;
    const response = await fetch(url);
    const raised = (await response.json()) as Document;
    const { get } = raised.paths["/boxes/{box_id}"]!;
    expect(Object.keys(get!.responses)).toEqual(
      "200 304 400 401 403 404 405 410 429 500 503 default".split(" "),
    );
    expect(get!.responses.default).toMatchObject({
      description:
        "Declared on every operation; never returned by this one: 402, 409, 413, 415, 422, 502, 504.",
    });
    const etag = response.headers.get("etag") ?? "";
    expect((await fetch(url, { headers: { "if-none-match": etag } })).status).toBe(304);
    expect((await fetch(url.split("?")[0]!, { headers: { "if-none-match": etag } })).status).toBe(200);
    expect(raised.webhooks).toEqual(document.webhooks);
  });

  test("declares files, as what a linter and a generator of clients understand", {
    timeout: patience(120_000),
  }, async () => {
    const { put, get } = document.paths["/boxes/{box_id}/file"]!;
    const file = { schema: { type: "string", format: "binary" } };
    expect(put).toMatchObject({
      requestBody: { required: true, content: { "application/octet-stream": file } },
    });
    const parameter = (name: string) => ({ $ref: `#/components/parameters/${name}` });
    expect(put!.parameters).toContainEqual(parameter("ContentDigest"));
    expect(get!.parameters).toEqual(expect.arrayContaining([parameter("Range"), parameter("IfRange")]));
    expect(get!.responses).toMatchObject({
      200: { content: { "*/*": file } },
      206: { content: { "*/*": file } },
    });
    expect(Object.keys(get!.responses[206]!.headers!)).toEqual(
      expect.arrayContaining(["Content-Range", "Accept-Ranges", "Content-Disposition", "ETag"]),
    );
    expect(await lintDocument(document)).toEqual([]);
    const usage = `
      import * as api from "./client.ts";
      export const set = (digest: string, file: Blob) => api.boxesFileSet("k", digest, "box-1", file);
      export const read = () => api.boxesFileGet("box-1", {});`;
    await withGeneratedClient(document, usage, async () => {});
  });

  test("names the codes of each error, with an example of each", () => {
    const { get } = document.paths["/boxes/{box_id}"]!;
    expect(get!.responses[404]).toEqual({ $ref: "#/components/responses/404-not_found" });
    const { description, content } = document.components.responses!["404-not_found"]!;
    expect(description).toMatch(/^`not_found`: The URL /);
    expect(content).toHaveProperty(["application/problem+json", "examples"], {
      not_found: { $ref: "#/components/examples/not_found" },
    });
    expect(document.components.examples!.not_found!.value).toMatchObject({ status: 404, code: "not_found" });
  });

  test("tells what is sent, with its headers, and without the API's key", () => {
    expect(document.webhooks).toEqual({
      "box.opened": {
        post: {
          operationId: "box.opened",
          tags: ["Boxes"],
          summary: "A box was opened",
          description: "Tells that a box was opened.",
          security: [],
          parameters: [
            {
              name: "seal",
              in: "header",
              required: true,
              description: "The seal.",
              schema: { type: "string", pattern: "^[0-9]+$" },
              example: "42",
            },
          ],
          requestBody: {
            required: true,
            content: {
              "application/json": {
                schema: { $ref: "#/components/schemas/BoxOpened" },
                example: { box: "box-1" },
              },
            },
          },
          responses: { "2XX": { description: "Heard." }, "4XX": { description: "Not heard." } },
        },
      },
    });
    expect(document.components.schemas!.BoxOpened, "receivers accept new members").toEqual({
      type: "object",
      properties: { box: { type: "string" } },
      required: ["box"],
    });
  });

  test("says where to begin", () => {
    expect(document.externalDocs).toEqual({
      description: "What can go wrong",
      url: "https://boxes.test/errors",
    });
    expect(document.info.description).toContain("\n- [What can go wrong](https://boxes.test/errors)");
    expect(build([], "http://localhost:8080").externalDocs).toMatchObject({ url: "/errors" });
  });

  test("has patterns that judge Idempotency-Key and X-Account-Id as the API does", () => {
    const pattern = (name: string) =>
      new RegExp((document.components.parameters![name]!.schema as { pattern: string }).pattern);
    const key = pattern("IdempotencyKey");
    for (const good of ["k", "k 1", '"k-1"', '"a\\"b"', 'a"b', "'"]) expect(good).toMatch(key);
    for (const bad of ["", '"', '"k', '"a"b"', '""', "é"]) expect(bad).not.toMatch(key);
    const account = pattern("XAccountId");
    expect("").toMatch(account);
    expect("0199A1F0-7d2c-7c3a-9b1e-3f6f2f6f0a11").toMatch(account);
    expect("x").not.toMatch(account);
  });

  test("carries the metadata of each operation", () => {
    expect(document.paths["/boxes/{box_id}/text"]?.put).toMatchObject({
      operationId: "boxes.text.set",
      "x-operation-key": "boxes.text.set",
      "x-required-scope": "boxes:write",
      "x-risk-level": "reversible",
      "x-effect": "write",
      "x-execution-mode": "async",
      "x-idempotent": false,
    });
    expect(document.paths["/boxes"]?.get).toMatchObject({ "x-risk-level": "none", "x-idempotent": true });
    expect(document.paths["/locks"]?.get).toMatchObject({ deprecated: true });
    expect(document.paths["/locks/{lock_id}/pick"]?.post).toMatchObject({ "x-retired": true });
  });

  test("names the server by where the document came from, when that is this machine", () => {
    for (const publicUrl of ["http://localhost:8080", "http://127.0.0.1:8080", "http://[::1]:8080"]) {
      const { servers } = build([], publicUrl);
      expect(servers).toMatchObject([{ url: "/v1" }]);
    }
    const { servers } = build([], "https://api.example.org/");
    expect(servers).toMatchObject([{ url: "https://api.example.org/v1" }]);
  });

  test("wants a heading for each operation", () => {
    const read = operationDefiners("Nowhere").read({
      key: "a.get",
      summary: "A",
      description: "A.",
      path: "/v1/a",
      scope: "a:read",
      response: jsonResponse(200, z.object({})),
      handle: async () => ({ body: {} }),
    });
    expect(() => build([read], "https://api.example.org")).toThrow('Operation a.get: no heading "Nowhere".');
  });
});

function build(operations: readonly Operation[], publicUrl: string) {
  const registry = createOperationRegistry(operations, standardProblems);
  return buildOpenApiDocument(registry, { info: toyInfo, publicUrl, docsUrl: publicUrl });
}

describe("a schema in the document", () => {
  const Inner = z.strictObject({ at: z.iso.datetime({ precision: 3 }), n: z.int() }).meta({ id: "Inner" });
  const Outer = z.strictObject({ inner: Inner, id: z.uuid(), minimum: z.int() }).meta({ id: "Outer" });

  test("says what a reader needs and forbids no new member in an answer", () => {
    const schemas = createSchemaWriter();
    expect(schemas.write(Outer, "output")).toEqual({ $ref: "#/components/schemas/Outer" });
    expect(schemas.components).toEqual({
      Inner: {
        type: "object",
        properties: { at: { type: "string", format: "date-time" }, n: { type: "integer" } },
        required: ["at", "n"],
      },
      Outer: {
        type: "object",
        properties: {
          inner: { $ref: "#/components/schemas/Inner" },
          id: { type: "string", format: "uuid" },
          minimum: { type: "integer" },
        },
        required: ["inner", "id", "minimum"],
      },
    });
  });

  test("of a request has a name of its own where an answer's is taken for another shape", () => {
    const schemas = createSchemaWriter();
    schemas.write(z.array(Outer), "output");
    const both = { properties: { inner: { $ref: "#/components/schemas/InnerInput" } } };
    expect(schemas.write(Outer, "input")).toEqual({ $ref: "#/components/schemas/OuterInput" });
    expect(schemas.write(z.object({ a: Outer }), "input")).toMatchObject({
      properties: { a: { $ref: "#/components/schemas/OuterInput" } },
    });
    expect(schemas.components.OuterInput).toMatchObject({ ...both, additionalProperties: false });
    expect(Object.keys(schemas.components)).toEqual(["Outer", "Inner", "OuterInput", "InnerInput"]);
  });

  test("must not share its name with another", () => {
    const schemas = createSchemaWriter();
    schemas.write(z.object({ a: z.string() }).meta({ id: "Same" }), "output");
    const other = z.object({ b: z.string() }).meta({ id: "Same" });
    expect(() => schemas.write(other, "output")).toThrow("Two schemas have the id Same.");
  });
});
