import { type Html, html } from "../html.ts";
import {
  buttonForm,
  copyButton,
  keyField,
  options,
  refusalOf,
  refuseUnless,
  said,
  unless,
  upToEndpoint,
} from "../parts.ts";
import { get, type Page, post, type View } from "../screen.ts";
import { momentOf } from "../times.ts";

/** The endpoint screen's part about the secret, which itself is not in it. */
export async function secretSection(view: View): Promise<Html> {
  return html`<section class="panel" aria-labelledby="secret">
<h2 id="secret">Signing secret</h2>
<p class="address"><code>whsec_••••</code></p>
${
  view.may("webhooks:secrets")
    ? await controls(view)
    : html`<p class="fine">To see and rotate it, a session needs the permission
<code>webhooks:secrets</code>.</p>`
}
</section>`;
}

async function controls({ ask, base, session }: View): Promise<Html> {
  const secrets = await unless("not_found", ask("webhooks.signing_secret.get"));
  if (secrets === null) return html`<p class="fine">The account has none.</p>`;
  const { created_at, previous } = secrets;
  return html`<p class="fine">Since ${momentOf(created_at, session.timeZone)} ${session.timeZone ?? "UTC"}${
    previous !== null &&
    html`; the one before it also signs until ${momentOf(previous.expires_at, session.timeZone)}`
  }</p>
<div class="actions">
${buttonForm(`${base}/endpoint/secret`, "Reveal")}
<a class="button" href="${base}/endpoint/secret/rotate">Rotate</a>
</div>`;
}

/** Shows it: a POST, so that no link, history or refresh does. */
const revealSecret = post("/endpoint/secret", async (view) => {
  const { signing_secret, created_at, previous } = await view.ask("webhooks.signing_secret.get");
  const { timeZone } = view.session;
  return {
    title: "Signing secret",
    up: upToEndpoint(view),
    main: html`<section class="panel">
<p>Whoever has it can forge webhooks. Keep it where your receivers keep their other secrets. The whole text is the key,
<code>whsec_</code> included.</p>
<h2>Signs since ${momentOf(created_at, timeZone)}</h2>
<pre>${signing_secret}</pre>${copyButton(signing_secret, "secret")}
${
  previous !== null &&
  html`<h2>Also signs until ${momentOf(previous.expires_at, timeZone)}</h2>
<pre>${previous.signing_secret}</pre>${copyButton(previous.signing_secret, "earlier secret")}`
}
<div class="actions"><a class="button" href="${view.base}/endpoint">Hide</a></div>
</section>`,
  };
});

/** For who follows the address of a revealed secret: hidden again. */
const secretAddress = get("/endpoint/secret", async ({ base }) => ({ goTo: `${base}/endpoint` }));

/** How long the old secret signs, too, by seconds. */
const OVERLAPS = {
  0: "not at all: it has leaked",
  3600: "1 hour",
  86400: "24 hours",
  259200: "3 days",
  604800: "7 days",
} as const;
const OVERLAP_DEFAULT = "86400";

/** What webhooks carry as long as it does. */
const SIGNATURES = {
  after: "both signatures",
  omit: "only the new one",
} as const;

/** What was chosen, and why nothing was done. */
type Chosen = { readonly overlapSeconds: string; readonly signatures: string; readonly refusal?: string };

/** Asks first. */
const rotateSecretForm = get("/endpoint/secret/rotate", async (view) => {
  refuseUnless(view, "webhooks:secrets");
  return await rotationPage(view, { overlapSeconds: OVERLAP_DEFAULT, signatures: "after" });
});

const rotateSecret = post("/endpoint/secret/rotate", async (view) => {
  const { base, ask, form } = view;
  const overlapSeconds = form.get("overlap_seconds") ?? OVERLAP_DEFAULT;
  const signatures = form.get("previous_signature") === "omit" ? "omit" : "after";
  const omitted = signatures === "omit" && { previous_signature: signatures };
  const ended = form.get("end_previous") === "yes" && { end_previous: true };
  const body = { overlap_seconds: Number(overlapSeconds), ...omitted, ...ended };
  try {
    await ask("webhooks.signing_secret.rotate", { body });
  } catch (error) {
    const refusal = refusalOf(error, {
      // Somebody else was faster, or the box was not ticked.
      rotation_in_progress: "Another rotation was in progress, and you did not choose to end it.",
      // Back in the browser, another choice, and sent again.
      idempotency_key_reused: "This form has been sent before. To rotate again, send it again.",
    });
    return { ...(await rotationPage(view, { overlapSeconds, signatures, refusal })), status: 409 };
  }
  return { goTo: `${base}/endpoint?done=rotated` };
});

export const secretScreens = [revealSecret, secretAddress, rotateSecretForm, rotateSecret];

async function rotationPage(view: View, { overlapSeconds, signatures, refusal }: Chosen): Promise<Page> {
  const { previous } = await view.ask("webhooks.signing_secret.get");
  const heading = "Rotate the signing secret?";
  return {
    title: refusal === undefined ? heading : "Not rotated: rotate the signing secret?",
    heading,
    up: upToEndpoint(view),
    main: html`${refusal !== undefined && said(`Nothing was rotated. ${refusal}`)}
<section class="panel">
<p>A new secret signs from then on. While the old one signs, too, every webhook carries both signatures, and a receiver
that knows either secret accepts it.</p>
${previous !== null && underway(view, previous.expires_at)}
<h2>What your receivers must do</h2>
<ol>
<li>Accept a webhook if any of its signatures is valid. <a href="${view.base}/endpoint">Check the receiver</a> to be
sure.</li>
<li>Get the new secret, from <em>Reveal</em>, before the old one stops signing.</li>
<li>Forget the old one. A receiver that knows only the old one rejects every webhook from then on.</li>
</ol>
<form class="one-field" method="post" action="${view.base}/endpoint/secret/rotate">${keyField()}
<label for="overlap">The old secret keeps signing</label>
<select id="overlap" name="overlap_seconds">${options(Object.keys(OVERLAPS), overlapSeconds, OVERLAPS)}</select>
<label for="signatures">Webhooks carry</label>
<select id="signatures" name="previous_signature">${options(Object.keys(SIGNATURES), signatures, SIGNATURES)}</select>
<p class="fine">Only the new one is for receivers that read one <code>v1</code>: the old secret stops at once, and until
they have the new one, they reject every webhook, and it is retried.</p>
${
  previous !== null &&
  html`<p><label><input type="checkbox" name="end_previous" value="yes" required> End the rotation that is under
way.</label></p>`
}
<div class="actions"><button class="danger">Rotate</button> <a href="${view.base}/endpoint">Keep it</a></div>
</form>
</section>`,
  };
}

function underway({ session }: View, expiresAt: string): Html {
  return html`<p class="said">A rotation is under way: the secret before this one also signs until
${momentOf(expiresAt, session.timeZone)}. There are never three: rotating now ends that
one at once, and receivers that know only that one reject every webhook.</p>`;
}
