import type { FastifyReply, FastifyRequest } from "fastify";
import type { StaffSession } from "../../base/model/console.ts";
import { digestSecret, newSecret } from "../../http/api-keys.ts";
import type { DescribedProblem, Kernel } from "../../http/kernel.ts";
import { admitting, formOf, refuseForeignPost } from "../guards.ts";
import { html } from "../html.ts";
import { bareFrame, notice, sendDocument } from "../page.ts";
import { hidden } from "../parts.ts";
import { problemPage } from "../problem-page.ts";
import type { Page } from "../screen.ts";
import { type ConsoleContext, isStaff, STAFF_COOKIE, STAFF_PATH, type StaffPerson } from "../site.ts";

const SIGN_IN_PATH = `${STAFF_PATH}/sign-in`;
const KEY_CHARS_MAX = 256;

/** Opens a session of support staff: by a staff key, or by a proxy in front that vouches for the person. */
export function addSignIn({ pages, kernel, options, assets }: ConsoleContext): void {
  const onRequest = admitting(kernel);
  pages.get(SIGN_IN_PATH, { onRequest }, async (_request, reply) => reply.redirect(STAFF_PATH, 303));
  pages.post(SIGN_IN_PATH, { onRequest }, async (request, reply) => {
    refuseForeignPost(request, options.publicUrl);
    const form = formOf(request);
    const goTo = placeOf(form.get("to") ?? "");
    const key = form.get("key");
    const person = (await options.readAssertion?.(request.headers)) ?? null;
    const secret = newSecret();
    const refuse = (status: number, why: string) =>
      sendDocument(reply, bareFrame(assets), { ...signInPage(person, goTo, why), status });
    let session: StaffSession | null;
    try {
      session = key === null ? sessionOf(person) : await sessionByKey(kernel, key, request);
      if (session !== null) await options.sessions.open(digestSecret(secret), session, request.id);
    } catch (error) {
      const problem = kernel.describe(error, request);
      reply.headers(problem.headers);
      // On the page that asks for it: nobody should look for another key.
      if (problem.status === 503) return refuse(503, key === null ? NOT_NOW : NO_LOOK_UP);
      return sendDocument(reply, bareFrame(assets), problemPage(problem, request.id, null));
    }
    if (session === null) {
      const refused = key !== null ? NOT_A_KEY : person === null ? NO_KEY : NOT_VOUCHED;
      return refuse(403, refused);
    }
    reply.setCookie(STAFF_COOKIE, secret, { path: "/", secure: true, httpOnly: true, sameSite: "strict" });
    return reply.redirect(goTo, 303);
  });
}

/** In place of the page that was asked for, by whoever has no session; it opens that page afterwards. */
export async function sendSignIn(
  { options, assets }: ConsoleContext,
  { status }: DescribedProblem,
  request: FastifyRequest,
  reply: FastifyReply,
): Promise<FastifyReply> {
  const person = (await options.readAssertion?.(request.headers)) ?? null;
  const goTo = request.method === "GET" ? placeOf(request.url) : STAFF_PATH;
  return sendDocument(reply, bareFrame(assets), { ...signInPage(person, goTo, null), status });
}

function sessionOf(person: StaffPerson | null): StaffSession | null {
  if (person === null || !isStaff(person.scopes)) return null;
  return { keyId: null, permissions: [...person.scopes], viewerId: person.id, viewerLabel: person.name };
}

/** Every key that does not open it looks the same: whether it is some account's is nobody's business. */
async function sessionByKey(
  kernel: Kernel,
  text: string,
  request: FastifyRequest,
): Promise<StaffSession | null> {
  const key = text.length > KEY_CHARS_MAX ? null : await kernel.identify(text.trim(), request);
  if (key === null || key.accountId !== null || !isStaff(key.scopes)) return null;
  return { keyId: key.id, permissions: [...key.scopes], viewerId: null, viewerLabel: null };
}

/** A place of staff's own; anything else is the first page. */
function placeOf(text: string): string {
  return /^\/console\/staff(?:[/?][\x21-\x7e]*)?$/.test(text) && !text.startsWith(SIGN_IN_PATH)
    ? text
    : STAFF_PATH;
}

const NO_KEY = "A staff key is missing.";
const NOT_A_KEY =
  "This key does not open the support pages. Use a valid staff key with the scope staff:read.";
const NO_LOOK_UP = "Keys cannot be looked up at the moment. This one could not be checked: try again soon.";
const NOT_NOW = "No session can be opened at the moment: try again soon.";
const NOT_VOUCHED = "Your single sign-on worked, but none of your groups may see support.";

function signInPage(person: StaffPerson | null, goTo: string, refused: string | null): Page {
  const mayContinue = person !== null && isStaff(person.scopes);
  const to = hidden("to", goTo);
  return notice(
    refused === null ? "Sign in to support" : "Not signed in",
    html`<div class="sign-in">
${refused !== null && html`<p class="refusal" role="alert"><span aria-hidden="true">✕</span> ${refused}</p>`}
${
  mayContinue &&
  html`<form method="post" action="${SIGN_IN_PATH}">${to}
<button class="primary">Continue as ${person.name}</button></form>
<p class="or">Or with a staff key:</p>`
}
<form class="one-field" method="post" action="${SIGN_IN_PATH}">${to}
<label for="key">Staff key</label>
<input id="key" name="key" type="password" required maxlength="${KEY_CHARS_MAX}" autocomplete="off" spellcheck="false"
  aria-describedby="key-rule">
<p class="fine" id="key-rule">It opens a session of at most 8 hours, which ends after 30 minutes without use.</p>
<div class="actions"><button${person === null && html` class="primary"`}>Sign in</button></div>
</form></div>`,
  );
}
