import { keyField, unless } from "../forms.ts";
import { type Html, html } from "../html.ts";
import type { Screen, View } from "../screen.ts";
import { momentOf } from "../times.ts";

export type Pausable = {
  readonly paused_at: string | null;
  /** Null: whoever looks acts for a user, and is not told. */
  readonly held: number | null;
};

const PACE = "up to 100 a second, the oldest first";

/** What is held, while it is; null where nothing is. */
export function heldLine({ session }: View, { paused_at, held }: Pausable): Html | null {
  const isAnyHeld = held !== null && held > 0;
  if (paused_at === null && !isAnyHeld) return null;
  const count =
    isAnyHeld && `${held.toLocaleString("en")} ${held === 1 ? "delivery is" : "deliveries are"} held`;
  if (paused_at === null) {
    return html`<p><span class="status pending"><span aria-hidden="true">▸</span> resumed</span>: ${count} still, and go
out ${PACE}, beside what is new.</p>`;
  }
  return html`<p><span class="status failed"><span aria-hidden="true">❚❚</span> paused</span> since
${momentOf(paused_at, session.timeZone)}. ${held !== null && `${count || "No delivery is held so far"}.`}
Nothing is lost: once you resume, they go out ${PACE}. Test events, checks and analyses with a URL of their own
go out all the same.</p>`;
}

/** Its opposite while the endpoint is paused. */
export function pauseForm({ base }: View, { paused_at }: Pausable): Html {
  const [act, name] = paused_at === null ? ["pause", "Pause"] : ["resume", "Resume"];
  const isPrimary = paused_at !== null && html` class="primary"`;
  return html`<form method="post" action="${base}/endpoint/${act}">${keyField()}
<button${isPrimary}>${name}</button></form>`;
}

/** From now on, what would go there is held. */
export const pauseEndpoint = pausing("pause", "paused");
export const resumeEndpoint = pausing("resume", "resumed");

function pausing(act: "pause" | "resume", done: string): Screen {
  return {
    method: "POST",
    path: `/endpoint/${act}`,
    show: async ({ base, ask, form }) => {
      // Somebody else may have removed it.
      const asked = ask(`webhooks.endpoint.${act}`, { idempotencyKey: form.get("_key") });
      const isThere = (await unless("not_found", asked)) !== null;
      return { goTo: `${base}/endpoint${isThere ? `?done=${done}` : ""}` };
    },
  };
}
