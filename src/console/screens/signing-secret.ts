import { keyField, refuseUnless, unless } from "../forms.ts";
import { type Html, html } from "../html.ts";
import type { Screen, View } from "../screen.ts";
import { momentOf } from "../times.ts";
import { wayBack } from "./endpoint-changes.ts";

type Secret = { readonly signing_secret: string; readonly created_at: string };
type Secrets = Secret & { readonly previous: (Secret & { readonly expires_at: string }) | null };

const OVERLAPS = [
  { seconds: 0, name: "not at all: it has leaked" },
  { seconds: 3_600, name: "1 hour" },
  { seconds: 86_400, name: "24 hours" },
  { seconds: 3 * 86_400, name: "3 days" },
  { seconds: 7 * 86_400, name: "7 days" },
] as const;
const OVERLAP_DEFAULT = 86_400;

/** The endpoint screen's part about the secret, which itself is not in it. */
export async function secretSection(view: View): Promise<Html> {
  return html`<section class="panel" aria-labelledby="secret">
<h2 id="secret">Signing secret</h2>
<p class="address"><code>whsec_••••</code></p>
${
  view.may("webhooks:secrets")
    ? await controls(view)
    : html`<p class="fine">Seeing and rotating it need a session with the permission
<code>webhooks:secrets</code>.</p>`
}
</section>`;
}

async function controls(view: View): Promise<Html> {
  const { base, session } = view;
  const secrets = await unless("not_found", findSecrets(view));
  if (secrets === null) return html`<p class="fine">The account has none.</p>`;
  const { created_at, previous } = secrets;
  return html`<p class="fine">Since ${momentOf(created_at, session.timeZone)} ${session.timeZone ?? "UTC"}${
    previous !== null &&
    html`; the one before it signs along until ${momentOf(previous.expires_at, session.timeZone)}`
  }</p>
<div class="actions">
<form method="post" action="${base}/endpoint/secret">${keyField()}<button>Reveal</button></form>
<a class="button" href="${base}/endpoint/secret/rotate">Rotate</a>
</div>`;
}

function findSecrets({ ask }: View): Promise<Secrets> {
  return ask<Secrets>("webhooks.signing_secret.get");
}

/** Shows it: a POST, so that no link, history or refresh does. */
export const revealSecret: Screen = {
  method: "POST",
  path: "/endpoint/secret",
  show: async (view) => {
    const { signing_secret, created_at, previous } = await findSecrets(view);
    const { timeZone } = view.session;
    return {
      title: "Signing secret",
      main: html`${wayBack(view)}
<div class="head"><h1>Signing secret</h1></div>
<section class="panel">
<p>Whoever has it can forge webhooks. Keep it where your receivers keep their other secrets. The whole text is the key,
<code>whsec_</code> included.</p>
<h2>Signs since ${momentOf(created_at, timeZone)}</h2>
<pre>${signing_secret}</pre>
${
  previous !== null &&
  html`<h2>Signs along until ${momentOf(previous.expires_at, timeZone)}</h2>
<pre>${previous.signing_secret}</pre>`
}
<div class="actions"><a class="button" href="${view.base}/endpoint">Hide</a></div>
</section>`,
    };
  },
};

/** For who follows the address of a revealed secret: hidden again. */
export const secretAddress: Screen = {
  method: "GET",
  path: "/endpoint/secret",
  show: async ({ base }) => ({ goTo: `${base}/endpoint` }),
};

/** Asks first. */
export const rotateSecretForm: Screen = {
  method: "GET",
  path: "/endpoint/secret/rotate",
  show: async (view) => {
    refuseUnless(view, "webhooks:secrets");
    const { previous } = await findSecrets(view);
    return {
      title: "Rotate the signing secret?",
      main: html`${wayBack(view)}
<div class="head"><h1>Rotate the signing secret?</h1></div>
<section class="panel">
<p>A new secret signs from then on. While the old one signs along, every webhook carries both signatures, and a receiver
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
<label for="overlap">The old secret signs along</label>
<select id="overlap" name="overlap_seconds">${OVERLAPS.map(
        ({ seconds, name }) =>
          html`<option value="${seconds}"${seconds === OVERLAP_DEFAULT && html` selected`}>${name}</option>`,
      )}</select>
${
  previous !== null &&
  html`<p><label><input type="checkbox" name="end_previous" value="yes" required> End the rotation that is under
way.</label></p>`
}
<div class="actions"><button class="danger">Rotate</button> <a href="${view.base}/endpoint">Keep it</a></div>
</form>
</section>`,
    };
  },
};

function underway({ session }: View, expiresAt: string): Html {
  return html`<p class="said">A rotation is under way: the secret before this one signs along until
${momentOf(expiresAt, session.timeZone)}. There are never three: to rotate now ends that
one at once, and receivers that know only that one reject every webhook.</p>`;
}

export const rotateSecret: Screen = {
  method: "POST",
  path: "/endpoint/secret/rotate",
  show: async ({ base, ask, form }) => {
    const body = {
      overlap_seconds: Number(form.get("overlap_seconds") ?? OVERLAP_DEFAULT),
      ...(form.get("end_previous") === "yes" ? { end_previous: true } : {}),
    };
    await ask("webhooks.signing_secret.rotate", { body, idempotencyKey: form.get("_key") });
    return { goTo: `${base}/endpoint?done=rotated` };
  },
};
