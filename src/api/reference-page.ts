import { hash } from "node:crypto";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
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
    pages.addHook("onSend", async (_request, reply, payload) => {
      if (typeof payload !== "string") return payload;
      const isPage = String(reply.getHeader("content-type")).startsWith("text/html");
      reply.header("cache-control", isPage ? "no-cache" : "public, max-age=3600");
      if (isPage) reply.header("content-security-policy", policyOf(payload));
      return payload;
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
