import { Problem } from "../../http/problems.ts";
import { type Html, html } from "../html.ts";
import { buttonForm, keyField, refusalOf, sign, unless, upToEndpoint } from "../parts.ts";
import { get, post, type View } from "../screen.ts";
import { inZone, momentOf } from "../times.ts";

const NOTICES_SHOWN = 5;

/** What was typed, and why it was refused. */
type Typed = { readonly address: string; readonly refusal: string };

/** The endpoint screen's part about who hears of what happens to it, and what there was to hear. */
export async function toldSection(view: View, isFailing: boolean, typed: Typed | null = null): Promise<Html> {
  const [recipients, notices] = await Promise.all([
    view.ask("webhooks.notices.recipients.list"),
    view.ask("webhooks.notices.list", { query: { limit: String(NOTICES_SHOWN) } }),
  ]);
  const { items, sends_mail: sendsMail } = recipients;
  const { base, session } = view;
  const mayChange = view.may("webhooks:write");
  const people = items.map(
    ({ id, address, confirmed_at: confirmed }) =>
      html`<li class="line"><span>${address}</span> ${
        confirmed === null ? sign("pending", "○", "not confirmed") : sign("succeeded", "✓", "confirmed")
      }${mayChange && buttonForm(`${base}/endpoint/recipients/${id}/remove`, "Remove", "quiet")}</li>`,
  );
  const told = notices.items.map(
    ({ created_at, title, message }) => html`<li><details><summary class="line">
${momentOf(created_at, session.timeZone)} <strong>${title}</strong></summary>
<p>${inZone(message, session.timeZone)}</p></details></li>`,
  );
  return html`<section class="panel" aria-labelledby="told">
<h2 id="told">Who is told</h2>
<p class="soft">By mail, when it fails or recovers, and before its certificate or an old secret expires.${
    !sendsMail && " This installation sends no mail: what there is to tell is below."
  }</p>
${
  people.length > 0
    ? html`<ul class="people">${people}</ul>`
    : sendsMail &&
      (isFailing ? html`<p class="warn">▲ Nobody is told of this failure.</p>` : html`<p>Nobody yet.</p>`)
}
${mayChange && sendsMail && addForm(base, typed)}
${told.length > 0 && html`<h3>Notices</h3><ul class="notices">${told}</ul>`}
</section>`;
}

function addForm(base: string, typed: Typed | null): Html {
  return html`<form class="one-field" method="post" action="${base}/endpoint/recipients">${keyField()}
<label for="recipient">Mail address</label>
<div class="line"><input id="recipient" name="address" type="email" value="${typed?.address ?? ""}" required
  maxlength="254" autocomplete="off" placeholder="ops@example.com"${
    typed !== null && html` aria-invalid="true" aria-describedby="recipient-refusal" autofocus`
  }><button>Add</button></div>
${
  typed !== null &&
  html`<p class="refusal" id="recipient-refusal"><span aria-hidden="true">✕</span> ${typed.refusal}</p>`
}
<p class="fine">It gets a mail with a link that confirms it.</p></form>`;
}

/** Adds one, who is asked by mail. */
const addRecipient = post("/endpoint/recipients", async (view) => {
  const address = (view.form.get("address") ?? "").trim();
  try {
    await view.ask("webhooks.notices.recipients.add", { body: { address } });
  } catch (error) {
    const refusal = refusalOf(error, {
      invalid_request: error instanceof Problem ? error.errors.map(({ message }) => message).join(" ") : "",
      too_many_recipients: "There are 10 already: remove one first, or add a mailing list's address.",
      mail_not_configured: "This installation sends no mail.",
      rate_limited: "Too many addresses were asked to confirm today: try again in an hour.",
      idempotency_key_reused: "This form was already sent. To add this address, send it again.",
    });
    return {
      title: "Not added: who is told",
      heading: "Who is told",
      up: upToEndpoint(view),
      main: await toldSection(view, false, { address, refusal }),
      status: 422,
    };
  }
  return { goTo: `${view.base}/endpoint?done=told` };
});

/** For who follows the address of a form that was refused. */
const recipientsAddress = get("/endpoint/recipients", async ({ base }) => ({ goTo: `${base}/endpoint` }));

const removeRecipient = post("/endpoint/recipients/{recipient_id}/remove", async ({ ask, base, params }) => {
  // Somebody else was faster, perhaps.
  await unless("not_found", ask("webhooks.notices.recipients.remove", { params }));
  return { goTo: `${base}/endpoint?done=untold` };
});

export const recipientScreens = [addRecipient, recipientsAddress, removeRecipient];
