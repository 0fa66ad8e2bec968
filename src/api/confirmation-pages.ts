import type { FastifyInstance, FastifyReply } from "fastify";
import { escapeHtml, type PageGuard, sendHtml } from "./html-page.ts";

/** What a link leads to, as text. */
export type ConfirmationPage = {
  readonly title: string;
  readonly message: string;
  /** What the button says; null: there is nothing to press. */
  readonly button: string | null;
};

/** Links that a person was sent. Null: the link is not valid (any more). */
export type Confirmations = {
  /** The token follows: `/notices/confirm`. */
  readonly path: `/${string}`;
  /** What is asked. Changes nothing: scanners of mails follow every link. */
  readonly ask: (token: string) => Promise<ConfirmationPage | null>;
  /** The button was pressed. */
  readonly confirm: (token: string) => Promise<ConfirmationPage | null>;
  /** Shown for a link that is not valid. */
  readonly invalid: ConfirmationPage;
};

/** `GET {path}/{token}` shows a page with a button, which sends `POST {path}/{token}`. */
export function addConfirmationPages(
  app: FastifyInstance,
  { path, ask, confirm, invalid }: Confirmations,
  admit: PageGuard,
) {
  type WithToken = { Params: { token: string } };
  const url = `${path}/:token`;
  app.route<WithToken>({
    method: ["GET", "HEAD"],
    url,
    onRequest: admit,
    handler: async ({ params }, reply) => sendAnswer(reply, await ask(params.token), invalid),
  });
  app.route<WithToken>({
    method: "POST",
    url,
    bodyLimit: FORM_BYTES_MAX,
    onRequest: admit,
    handler: async ({ params }, reply) => sendAnswer(reply, await confirm(params.token), invalid),
  });
  const shown = `${path}/{token}`;
  return [
    { method: "GET", path: shown },
    { method: "POST", path: shown },
  ] as const;
}

/** The form has no fields: the link is all it takes. */
const FORM_BYTES_MAX = 1_024;

function sendAnswer(
  reply: FastifyReply,
  page: ConfirmationPage | null,
  invalid: ConfirmationPage,
): FastifyReply {
  const { title, message, button } = page ?? invalid;
  // Without an action a form is sent to its own page.
  const form =
    button === null
      ? ""
      : `\n<form method="post"><button type="submit">${escapeHtml(button)}</button></form>`;
  reply.code(page === null ? 404 : 200).headers({
    "cache-control": "no-store",
    // The link is a secret: no other site is told where its visitor came from.
    "referrer-policy": "no-referrer",
    "x-robots-tag": "noindex",
  });
  const body = `<h1>${escapeHtml(title)}</h1>\n<p>${escapeHtml(message)}</p>${form}`;
  return sendHtml(reply, { title, body }, { hasForm: button !== null });
}
