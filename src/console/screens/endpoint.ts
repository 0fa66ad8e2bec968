import { isUuid } from "../../base/model/formats.ts";
import { keyField, unless } from "../forms.ts";
import { type Html, html } from "../html.ts";
import type { Screen, View } from "../screen.ts";
import { momentOf } from "../times.ts";
import { endpointForm } from "./endpoint-changes.ts";
import { checkForm } from "./receiver-check.ts";
import { secretSection } from "./signing-secret.ts";

export type Pausable = {
  readonly paused_at: string | null;
  /** Null: whoever looks acts for a user, and is not told. */
  readonly held: number | null;
};

const PACE = "up to 100 a second, the oldest first";

/** What is held, while it is; null where nothing is. */
function heldLine({ session }: View, { paused_at, held }: Pausable): Html | null {
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
function pauseForm({ base }: View, { paused_at }: Pausable): Html {
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

type Endpoint = Pausable & {
  readonly url: string;
  readonly updated_at: string;
  readonly certificate_expires_at: string | null;
};

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
${endpoint !== null && check(view, endpoint)}
${await secretSection(view)}`,
    };
  },
};

/** What the form that led here did. */
function said({ query, base }: View, endpoint: Endpoint | null): Html | null {
  const { done, tested } = query;
  if (typeof tested === "string" && isUuid(tested) && endpoint !== null) {
    return html`<p class="said" role="status">A test event is on its way:
<a href="${base}/deliveries/${tested}">see its delivery</a>.</p>`;
  }
  const text = doneText(String(done), endpoint);
  return text === null ? null : html`<p class="said" role="status">${text}</p>`;
}

/** Null: nothing, or it is no longer so. */
function doneText(done: string, endpoint: Endpoint | null): string | null {
  if (done === "rotated")
    return "Rotated: a new secret signs from now on. Reveal it, and give it to your receivers.";
  if (endpoint === null) return done === "removed" ? "Removed." : null;
  const isPaused = endpoint.paused_at !== null;
  if (done === "set")
    return `Saved: every attempt from now on goes to this URL${isPaused ? ", once you resume" : ""}.`;
  if (done === "paused" && isPaused) return "Paused: what would go to this URL is held from now on.";
  if (done === "resumed" && !isPaused) return "Resumed: what is new goes out at once.";
  return null;
}

function empty(view: View): Html {
  return html`<section class="panel" aria-labelledby="none">
<h2 id="none">No endpoint yet${view.may("webhooks:write") && ": set one"}</h2>
<p>Without one, only analyses that were published with a URL of their own are delivered.</p>
${view.may("webhooks:write") ? endpointForm(view, { url: "" }) : whoMayChange()}
</section>`;
}

function address(view: View, endpoint: Endpoint): Html {
  const { url, updated_at } = endpoint;
  const { timeZone } = view.session;
  return html`<section class="panel" aria-labelledby="address">
<h2 id="address">Webhooks go to</h2>
<p class="address"><code>${url}</code></p>
<p class="fine">Since ${momentOf(updated_at, timeZone)} ${timeZone ?? "UTC"}</p>
${heldLine(view, endpoint)}
${view.may("webhooks:write") ? controls(view, endpoint) : whoMayChange()}
</section>`;
}

function controls(view: View, endpoint: Endpoint): Html {
  const { base } = view;
  return html`<div class="actions">
<form method="post" action="${base}/endpoint/test">${keyField()}<button>Send test event</button></form>
<a class="button" href="${base}/endpoint/change">Change</a>
<a class="button" href="${base}/endpoint/remove">Remove</a>
${pauseForm(view, endpoint)}
</div>
${endpoint.paused_at === null && html`<p class="fine">Pausing holds what would be sent, and loses nothing.</p>`}`;
}

function check(view: View, { certificate_expires_at: expiresAt }: Endpoint): Html | null {
  const certificate = expiresAt !== null && certificateLine(view, expiresAt);
  if (!view.may("webhooks:write") && certificate === false) return null;
  return html`<section class="panel" aria-labelledby="check">
<h2 id="check">Check</h2>
${certificate}
${view.may("webhooks:write") && checkPart(view)}
</section>`;
}

/** As deliveries saw it last. */
function certificateLine({ session }: View, expiresAt: string): Html {
  return html`<p>The receiver's certificate is valid until ${momentOf(expiresAt, session.timeZone)}.</p>`;
}

function checkPart(view: View): Html {
  return html`<p>Does your receiver accept what is genuine and reject what is forged? The check sends 14 example
webhooks, most of them forged, each with the header <code>sealpost-probe: 1</code>. It takes up to 20 seconds, and
can be had once a minute.</p>
<div class="actions">${checkForm(view, "Check the receiver")}</div>`;
}

function whoMayChange(): Html {
  return html`<p class="fine">Changing and pausing it, test events and checks need a session with the permission
<code>webhooks:write</code>.</p>`;
}
