import { Problem } from "../../http/problems.ts";
import { keyField, refuseUnless, unless } from "../forms.ts";
import { type Html, html } from "../html.ts";
import type { Screen, Shown, View } from "../screen.ts";

type Endpoint = { readonly url: string };

/** What was typed, and why it was refused. */
type Typed = { readonly url: string; readonly refusal?: string };

/** A form with the endpoint's URL. */
export const changeEndpointForm: Screen = {
  method: "GET",
  path: "/endpoint/change",
  show: async (view) => {
    refuseUnless(view, "webhooks:write");
    const endpoint = await unless("not_found", view.ask<Endpoint>("webhooks.endpoint.get"));
    return changePage(view, { url: endpoint?.url ?? "" });
  },
};

/** Sets or replaces it. */
export const changeEndpoint: Screen = {
  method: "POST",
  path: "/endpoint/change",
  show: async (view) => {
    const url = (view.form.get("url") ?? "").trim();
    try {
      await view.ask("webhooks.endpoint.set", { body: { url }, idempotencyKey: view.form.get("_key") });
    } catch (error) {
      const refusal = refusalOf(error);
      if (refusal === null) throw error;
      return { ...changePage(view, { url, refusal }), status: 422 };
    }
    return { goTo: `${view.base}/endpoint?done=set` };
  },
};

/** In the field's words; null: the field is not to blame. */
function refusalOf(error: unknown): string | null {
  if (!(error instanceof Problem)) return null;
  if (error.code === "target_refused") return error.errors.map(({ message }) => message).join(" ");
  // Back in the browser, another URL, and sent again.
  if (error.code === "idempotency_key_reused") return "This form has been sent before: send it once more.";
  return null;
}

function changePage(view: View, typed: Typed): Extract<Shown, { title: string }> {
  return {
    title: typed.refusal === undefined ? "Change the endpoint" : "Not saved: change the endpoint",
    main: html`${wayBack(view)}
<div class="head"><h1>Change the endpoint</h1></div>
<section class="panel">
<p>Every attempt from now on goes to the new URL, those of earlier deliveries included. Analyses that were published
with a URL of their own keep it.</p>
${endpointForm(view, typed)}
</section>`,
  };
}

/** Also for the first one. */
export function endpointForm({ base }: View, { url, refusal }: Typed): Html {
  const isRefused = refusal !== undefined;
  return html`<form class="one-field" method="post" action="${base}/endpoint/change">${keyField()}
<label for="url">URL of your receiver</label>
<input id="url" name="url" value="${url}" inputmode="url" maxlength="2048" placeholder="https://hooks.example.com/in"
  autocomplete="off" spellcheck="false" required aria-describedby="${isRefused && "url-refusal "}url-rule"${
    isRefused && html` aria-invalid="true" autofocus`
  }>
${isRefused && html`<p class="refusal" id="url-refusal"><span aria-hidden="true">✕</span> ${refusal}</p>`}
<p class="fine" id="url-rule">A public https:// URL.</p>
<div class="actions"><button class="primary">Save</button></div>
</form>`;
}

/** Asks first. */
export const removeEndpointForm: Screen = {
  method: "GET",
  path: "/endpoint/remove",
  show: async (view) => {
    refuseUnless(view, "webhooks:write");
    const { base, ask } = view;
    const endpoint = await unless("not_found", ask<Endpoint>("webhooks.endpoint.get"));
    if (endpoint === null) return { goTo: `${base}/endpoint` };
    const query = { status: ["pending", "failed"], limit: "1" };
    const { total } = await ask<{ total: number }>("webhooks.deliveries.list", { query });
    return {
      title: "Remove the endpoint?",
      main: html`${wayBack(view)}
<div class="head"><h1>Remove the endpoint?</h1></div>
<section class="panel">
<p class="address"><code>${endpoint.url}</code></p>
<p>From then on only analyses that were published with a URL of their own are delivered.</p>
<p>${openDeliveries(view, total)}</p>
<form class="actions" method="post" action="${base}/endpoint/remove">${keyField()}
<button class="danger">Remove</button> <a href="${base}/endpoint">Keep it</a></form>
</section>`,
    };
  },
};

function openDeliveries({ base }: View, total: number): Html {
  if (total === 0) return html`No delivery is open at the moment.`;
  const href = `${base}/deliveries?status=pending&status=failed`;
  const count = total >= 10_000 ? "At least 10,000" : total.toLocaleString("en");
  return html`<a href="${href}">${count} ${total === 1 ? "delivery is" : "deliveries are"} open</a>. Those without a
URL of their own are not sent any more: when their next attempt is due, they are abandoned as <code>no_target</code>.
They can be replayed once there is an endpoint again.`;
}

export const removeEndpoint: Screen = {
  method: "POST",
  path: "/endpoint/remove",
  show: async ({ base, ask, form }) => {
    // Somebody else may have been faster.
    await unless("not_found", ask("webhooks.endpoint.remove", { idempotencyKey: form.get("_key") }));
    return { goTo: `${base}/endpoint?done=removed` };
  },
};

/** Publishes an example and leads to its delivery. */
export const sendTestEvent: Screen = {
  method: "POST",
  path: "/endpoint/test",
  show: async ({ base, ask, form }) => {
    const sending = ask<{ delivery_id: string }>("webhooks.endpoint.test", {
      idempotencyKey: form.get("_key"),
    });
    const sent = await unless("not_found", sending);
    return { goTo: `${base}/endpoint${sent === null ? "" : `?tested=${sent.delivery_id}`}` };
  },
};

export function wayBack({ base }: View): Html {
  return html`<nav class="way" aria-label="Way back"><a href="${base}/endpoint">Endpoint</a></nav>`;
}
