import { Problem } from "../../http/problems.ts";
import { keyField, refuseUnless } from "../forms.ts";
import { type Html, html } from "../html.ts";
import type { Screen, Shown, View } from "../screen.ts";
import { momentOf } from "../times.ts";
import { wayBack } from "./endpoint-changes.ts";
import { findSecrets } from "./signing-secret.ts";

const OVERLAPS = [
  { seconds: 0, name: "not at all: it has leaked" },
  { seconds: 3_600, name: "1 hour" },
  { seconds: 86_400, name: "24 hours" },
  { seconds: 3 * 86_400, name: "3 days" },
  { seconds: 7 * 86_400, name: "7 days" },
] as const;
const OVERLAP_DEFAULT = 86_400;

/** What was chosen, and why nothing was done. */
type Chosen = { readonly overlapSeconds: number; readonly refusal?: string };

/** Asks first. */
export const rotateSecretForm: Screen = {
  method: "GET",
  path: "/endpoint/secret/rotate",
  show: async (view) => {
    refuseUnless(view, "webhooks:secrets");
    return await rotationPage(view, { overlapSeconds: OVERLAP_DEFAULT });
  },
};

export const rotateSecret: Screen = {
  method: "POST",
  path: "/endpoint/secret/rotate",
  show: async (view) => {
    const { base, ask, form } = view;
    const overlapSeconds = Number(form.get("overlap_seconds") ?? OVERLAP_DEFAULT);
    const endsPrevious = form.get("end_previous") === "yes";
    const body = { overlap_seconds: overlapSeconds, ...(endsPrevious ? { end_previous: true } : {}) };
    try {
      await ask("webhooks.signing_secret.rotate", { body, idempotencyKey: form.get("_key") });
    } catch (error) {
      const refusal = refusalOf(error);
      if (refusal === null) throw error;
      return { ...(await rotationPage(view, { overlapSeconds, refusal })), status: 409 };
    }
    return { goTo: `${base}/endpoint?done=rotated` };
  },
};

/** Null: the form is not to blame. */
function refusalOf(error: unknown): string | null {
  if (!(error instanceof Problem)) return null;
  // Somebody else was faster, or the box was not ticked.
  if (error.code === "rotation_in_progress")
    return "Another rotation was under way, and it was not to be ended.";
  // Back in the browser, another choice, and sent again.
  if (error.code === "idempotency_key_reused")
    return "This form has been sent before. To rotate again, send it again.";
  return null;
}

async function rotationPage(
  view: View,
  { overlapSeconds, refusal }: Chosen,
): Promise<Extract<Shown, { title: string }>> {
  const { previous } = await findSecrets(view);
  return {
    title: refusal === undefined ? "Rotate the signing secret?" : "Not rotated: rotate the signing secret?",
    main: html`${wayBack(view)}
<div class="head"><h1>Rotate the signing secret?</h1></div>
${refusal !== undefined && html`<p class="said" role="status">Nothing was rotated. ${refusal}</p>`}
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
        html`<option value="${seconds}"${seconds === overlapSeconds && html` selected`}>${name}</option>`,
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
}

function underway({ session }: View, expiresAt: string): Html {
  return html`<p class="said">A rotation is under way: the secret before this one signs along until
${momentOf(expiresAt, session.timeZone)}. There are never three: to rotate now ends that
one at once, and receivers that know only that one reject every webhook.</p>`;
}
