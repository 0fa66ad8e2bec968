import { html } from "../html.ts";
import type { Screen } from "../screen.ts";

/** Longer texts are for programs. */
const SHOWN_CHARS_MAX = 65_536;

/** What every attempt of a delivery sends. */
export const deliveryBodyScreen: Screen = {
  method: "GET",
  path: "/deliveries/{delivery_id}/body",
  show: async ({ askForText, params, base }) => {
    const { delivery_id: id = "" } = params;
    const text = await askForText("webhooks.deliveries.body", { params });
    const isCut = text.length > SHOWN_CHARS_MAX;
    return {
      title: "Body",
      main: html`<nav class="way" aria-label="Way back"><a href="${base}/deliveries/${id}">Delivery</a></nav>
<h1>The body as it is sent</h1>
<p class="fine">Signed over exactly these bytes.${
        isCut &&
        html` Only the first ${SHOWN_CHARS_MAX.toLocaleString("en")} characters are shown:
<code>GET …/deliveries/${id}/body</code> has them all.`
      }</p>
<pre>${text.slice(0, SHOWN_CHARS_MAX)}</pre>`,
    };
  },
};
