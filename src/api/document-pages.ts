import type { FastifyInstance } from "fastify";
import { type PageGuard, sendPage } from "./html-page.ts";

/** A document about the service, such as a guide. */
export type DocumentPage = {
  /** A single segment, so that the links of all pages stay relative. */
  readonly path: `/${string}`;
  readonly title: string;
  /** The body of the page, HTML that is right as it is; made when it is first asked for. */
  readonly html: () => string;
  /** For who does not ask for HTML. */
  readonly markdown: string;
};

export function addDocumentPages(
  app: FastifyInstance,
  documents: readonly DocumentPage[],
  admit: PageGuard,
): readonly string[] {
  for (const { path, title, html, markdown } of documents) {
    const text = { type: "text/markdown; charset=utf-8", bytes: Buffer.from(markdown) };
    let body: string | undefined;
    const links = `<p><a href="reference/">Reference</a> · <a href="errors">Errors</a></p>`;
    app.route({
      method: ["GET", "HEAD"],
      url: path,
      onRequest: admit,
      handler: async (request, reply) => {
        body ??= `${links}\n${html()}`;
        return sendPage(request, reply, { title, body }, text);
      },
    });
  }
  return documents.map(({ path }) => path);
}
