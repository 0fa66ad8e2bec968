import { keyField, unless } from "../forms.ts";
import { type Html, html } from "../html.ts";
import type { Screen, View } from "../screen.ts";
import { momentOf } from "../times.ts";
import { endpointForm } from "./endpoint-changes.ts";
import { checkForm } from "./receiver-check.ts";
import { secretSection } from "./signing-secret.ts";

type Endpoint = { readonly url: string; readonly updated_at: string };

/** Where webhooks go: the URL, the check of its receiver, and the secret that signs. */
export const endpointScreen: Screen = {
  method: "GET",
  path: "/endpoint",
  show: async (view) => {
    const endpoint = await unless("not_found", view.ask<Endpoint>("webhooks.endpoint.get"));
    return {
      title: "Endpoint",
      main: html`<div class="head"><h1>Endpoint</h1></div>
${said(view, endpoint)}
${endpoint === null ? empty(view) : address(view, endpoint)}
${endpoint !== null && check(view)}
${await secretSection(view)}`,
    };
  },
};

const DELIVERY_ID = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

/** What the form that led here did. */
function said({ query, base }: View, endpoint: Endpoint | null): Html | null {
  const { done, tested } = query;
  if (typeof tested === "string" && DELIVERY_ID.test(tested) && endpoint !== null) {
    return html`<p class="said" role="status">A test event is on its way:
<a href="${base}/deliveries/${tested}">see its delivery</a>.</p>`;
  }
  const text =
    done === "set" && endpoint !== null
      ? "Saved: every attempt from now on goes to this URL."
      : done === "removed" && endpoint === null
        ? "Removed."
        : done === "rotated"
          ? "Rotated: a new secret signs from now on. Reveal it, and give it to your receivers."
          : null;
  return text === null ? null : html`<p class="said" role="status">${text}</p>`;
}

function empty(view: View): Html {
  return html`<section class="panel" aria-labelledby="none">
<h2 id="none">No endpoint yet${view.may("webhooks:write") && ": set one"}</h2>
<p>Without one, only analyses that were published with a URL of their own are delivered.</p>
${view.may("webhooks:write") ? endpointForm(view, { url: "" }) : whoMayChange()}
</section>`;
}

function address(view: View, { url, updated_at }: Endpoint): Html {
  return html`<section class="panel" aria-labelledby="address">
<h2 id="address">Webhooks go to</h2>
<p class="address"><code>${url}</code></p>
<p class="fine">Since ${momentOf(updated_at, view.session.timeZone)} ${view.session.timeZone ?? "UTC"}</p>
${view.may("webhooks:write") ? controls(view) : whoMayChange()}
</section>`;
}

function controls({ base }: View): Html {
  return html`<div class="actions">
<form method="post" action="${base}/endpoint/test">${keyField()}<button>Send test event</button></form>
<a class="button" href="${base}/endpoint/change">Change</a>
<a class="button" href="${base}/endpoint/remove">Remove</a>
</div>`;
}

function check(view: View): Html | null {
  if (!view.may("webhooks:write")) return null;
  return html`<section class="panel" aria-labelledby="check">
<h2 id="check">Check</h2>
<p>Does your receiver accept what is genuine and reject what is forged? The check sends 14 example webhooks, most of
them forged, each with the header <code>sealpost-probe: 1</code>. It takes up to 20 seconds, and can be had once a
minute.</p>
<div class="actions">${checkForm(view, "Check the receiver")}</div>
</section>`;
}

function whoMayChange(): Html {
  return html`<p class="fine">Changing it, test events and checks need a session with the permission
<code>webhooks:write</code>.</p>`;
}
