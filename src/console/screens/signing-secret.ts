import { keyField, unless } from "../forms.ts";
import { type Html, html } from "../html.ts";
import type { Screen, View } from "../screen.ts";
import { momentOf } from "../times.ts";
import { wayBack } from "./endpoint-changes.ts";

type Secret = { readonly signing_secret: string; readonly created_at: string };
type Secrets = Secret & { readonly previous: (Secret & { readonly expires_at: string }) | null };

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

export function findSecrets({ ask }: View): Promise<Secrets> {
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
