import { hash } from "node:crypto";
import { promisify } from "node:util";
import { gzip } from "node:zlib";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { inSlices } from "./body-slices.ts";
import { invalidRequest } from "./problems.ts";

const REFERENCE_PATH = "/reference";

/**
 * Adds the reference, which renders the OpenAPI document in the browser. The script comes from this server, and the
 * page's policy allows no other origin.
 */
export async function addReferencePage(
  app: FastifyInstance,
  title: string,
  documentPath: string,
  admit: (request: FastifyRequest, reply: FastifyReply) => Promise<void>,
): Promise<readonly string[]> {
  // Loaded only by processes that serve it: the library keeps its 4 MB script in memory.
  const { default: apiReference } = await import("@scalar/fastify-api-reference");
  await app.register(async (pages) => {
    const chooseScript = createScript();
    pages.addHook("onSend", async (request, reply, payload) => {
      if (typeof payload !== "string") return payload;
      if (String(reply.getHeader("content-type")).startsWith("text/html")) {
        reply.headers({ "cache-control": "no-cache", "content-security-policy": policyOf(payload) });
        return payload;
      }
      const { headers, bytes } = await chooseScript(payload, request.headers["accept-encoding"]);
      reply.headers({ "cache-control": "public, max-age=3600", ...headers });
      return inSlices(bytes);
    });
    await pages.register(apiReference, {
      routePrefix: REFERENCE_PATH,
      hooks: {
        onRequest: async (request, reply) => {
          await admit(request, reply);
          refuseHost(request);
        },
      },
      configuration: {
        pageTitle: title,
        url: documentPath,
        telemetry: false,
        withDefaultFonts: false,
        showDeveloperTools: "never",
        hideClientButton: true,
        agent: { disabled: true },
        mcp: { disabled: true },
        persistAuth: false,
        documentDownloadType: "json",
        operationTitleSource: "summary",
      },
    });
  });
  return [REFERENCE_PATH, `${REFERENCE_PATH}/`, `${REFERENCE_PATH}/js/scalar.js`];
}

type Script = { readonly headers: Readonly<Record<string, string | number>>; readonly bytes: Buffer };

/**
 * The 4 MB script's bytes, plain and compressed. Both are made once, for the first who asks, and sent to everybody:
 * @fastify/compress would compress for each request anew, and each string sent would be copied for its connection.
 */
function createScript(): (text: string, acceptEncoding: string | undefined) => Promise<Script> {
  let made: Promise<Record<"plain" | "compressed", Script>> | null = null;
  const make = async (text: string) => {
    const plain = Buffer.from(text);
    const compressed = await promisify(gzip)(plain);
    const vary = { vary: "accept-encoding" };
    return {
      plain: { bytes: plain, headers: { ...vary, "content-length": plain.length } },
      compressed: {
        bytes: compressed,
        headers: { ...vary, "content-encoding": "gzip", "content-length": compressed.length },
      },
    };
  };
  return async (text, acceptEncoding = "") => {
    made ??= make(text);
    const { plain, compressed } = await made;
    return acceptsGzip(acceptEncoding) ? compressed : plain;
  };
}

/** `*` is not taken for it: who means gzip says so. */
function acceptsGzip(acceptEncoding: string): boolean {
  return acceptEncoding
    .split(",")
    .some((coding) => /^\s*gzip\s*(?:;|$)/i.test(coding) && !/;\s*q=0(?:\.0*)?\s*$/i.test(coding));
}

/** Allows the page's inline scripts by their digests, and the one from this server. */
function policyOf(html: string): string {
  const inline = [...html.matchAll(/<script(?![^>]*\ssrc=)[^>]*>([\s\S]*?)<\/script>/g)];
  const digests = inline.map(([, script = ""]) => `'sha256-${hash("sha256", script, "base64")}'`);
  return [
    "default-src 'none'",
    `script-src 'self' ${digests.join(" ")}`.trim(),
    "style-src 'self' 'unsafe-inline'",
    "img-src 'self' data:",
    "font-src 'self' data:",
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
  ].join("; ");
}

/** The library builds URLs from the Host header and fails on an invalid one. */
function refuseHost({ hostname }: FastifyRequest): void {
  if (!URL.canParse(`http://${hostname}/`)) throw invalidRequest("header.host", "Not a valid host name.");
}
