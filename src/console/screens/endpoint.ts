import { explainErrorCode } from "../../base/model/error-codes.ts";
import { isUuid } from "../../base/model/formats.ts";
import { DAY_MS } from "../../base/model/time.ts";
import { Problem } from "../../http/problems.ts";
import { type Html, html } from "../html.ts";
import { searchOf } from "../log-filters.ts";
import {
  buttonForm,
  copyButton,
  counted,
  facts,
  keyField,
  number,
  refusalOf,
  refuseUnless,
  said,
  sign,
  unless,
  upToEndpoint,
} from "../parts.ts";
import {
  type Answers,
  type Endpoint,
  type EndpointHealth,
  get,
  type Page,
  post,
  type Screen,
  type View,
} from "../screen.ts";
import { awaitedOf, durationText, momentOf } from "../times.ts";
import { consumersSection } from "./consumers.ts";
import { headerScreens, signingSection } from "./endpoint-headers.ts";
import { checkForm } from "./receiver-check.ts";
import { toldSection } from "./recipients.ts";
import { secretSection } from "./signing-secret.ts";

/** Where webhooks go, how that goes, who is told, the receiver's check, the secret, and who fetches events. */
const endpointScreen = get("/endpoint", async (view) => {
  const endpoint = await unless("not_found", view.ask("webhooks.endpoint.get"));
  const isTold = endpoint !== null && view.isOfAccount;
  const health = isTold ? await unless("not_found", view.ask("webhooks.endpoint.health")) : null;
  return {
    title: "Endpoint",
    beside: endpoint !== null && standing(view, endpoint, health),
    main: html`${done(view, endpoint)}
${health !== null && whyFailing(view, endpoint!, health)}
${endpoint === null ? empty(view) : [address(view, endpoint), healthOf(view, endpoint, health), check(view)]}
${isTold && (await toldSection(view, health!.failing_since !== null))}
${endpoint !== null && signingSection(view, endpoint)}
${await secretSection(view)}
${view.isOfAccount && (await consumersSection(view))}`,
  };
});

/** Paused is what it is first: nothing is tried meanwhile. */
function standing(
  { session, nowMs }: View,
  { paused_at }: Endpoint,
  health: EndpointHealth | null,
): Html | null {
  const since = health?.failing_since ?? null;
  if (paused_at !== null)
    return html`${sign("failed", "❚❚", "paused")} ${since !== null && html`<span>and failing before</span>`}`;
  if (since === null) return null;
  return html`${sign("abandoned", "✕", "failing")} <span>since ${awaitedOf(since, session.timeZone, nowMs)}</span>`;
}

/** Why webhooks do not arrive, what to do, and which they are; null: they do. */
function whyFailing({ base }: View, { url }: Endpoint, { error_code: code }: EndpointHealth): Html | null {
  if (code === null) return null;
  const { message, remedy } = explainErrorCode(code);
  const log = `${base}/deliveries${searchOf({
    status: ["failed", "abandoned"],
    target_host: URL.parse(url)?.hostname ?? "",
  })}`;
  return html`<section class="panel cause is-bad" aria-label="Why it fails"><h2>${message}</h2>
<p><strong>Remedy:</strong> ${remedy} <a href="${log}">What has not arrived</a></p></section>`;
}

/** A certificate that ends sooner is pointed out. */
const EXPIRES_SOON_MS = 14 * DAY_MS;

/** @param health null: the viewer may not know */
function healthOf(
  view: View,
  { certificate_expires_at: expires, certificate_first_seen_at: firstSeen }: Endpoint,
  health: EndpointHealth | null,
): Html {
  const { session, nowMs } = view;
  const at = (iso: string) => awaitedOf(iso, session.timeZone, nowMs);
  const isSoon = expires !== null && Date.parse(expires) - nowMs < EXPIRES_SOON_MS;
  const hasExpired = expires !== null && Date.parse(expires) <= nowMs;
  const {
    succeeded = 0,
    failed = 0,
    last_success_at: last = null,
    response_time_ms: ms = null,
  } = health ?? {};
  return facts([
    health !== null && [
      "Last 24 hours",
      succeeded + failed === 0
        ? "no attempt"
        : html`<span class="good">✓ ${number(succeeded)} arrived</span> <span${
            failed > 0 && html` class="bad"`
          }>✕ ${number(failed)} failed</span>`,
    ],
    health !== null && ["Last success", last === null ? "none in 24 hours" : at(last)],
    health !== null && [
      "Response time",
      ms === null
        ? "not known"
        : `${durationText(ms.p50)}, in the median${ms.p50 === ms.p95 ? "" : `; 95 % within ${durationText(ms.p95)}`}`,
    ],
    [
      "Certificate, as last seen",
      expires === null || firstSeen === null
        ? "not seen yet"
        : html`<span${isSoon && html` class="${hasExpired ? "bad" : "warn"}"`}>${isSoon && "▲ "}${
            hasExpired ? "expired" : isSoon ? "expires" : "valid until"
          } ${at(expires)}</span> <p class="fine">first seen ${at(firstSeen)}</p>`,
    ],
  ]);
}

const PACE = "up to 100 a second, the oldest first";

/** What is held, while it is; null where nothing is. */
function heldLine({ session }: View, { paused_at, held }: Endpoint): Html | null {
  const isAnyHeld = held !== null && held > 0;
  if (paused_at === null && !isAnyHeld) return null;
  const count = isAnyHeld && `${counted(held, "delivery is", "deliveries are")} held`;
  if (paused_at === null) {
    return html`<p>${sign("pending", "▸", "resumed")}: ${count} for now. Held deliveries
go out ${PACE}, alongside new ones.</p>`;
  }
  return html`<p>${sign("failed", "❚❚", "paused")} since
${momentOf(paused_at, session.timeZone)}. ${held !== null && `${count || "No delivery is held so far"}.`}
Nothing is lost: once you resume, they go out ${PACE}. Test events, checks and analyses with a URL of their own
still go out.</p>`;
}

/** What the form that led here did, unless it is no longer so. */
function done({ query, base }: View, endpoint: Endpoint | null): Html | null {
  const { done, tested } = query;
  if (typeof tested === "string" && isUuid(tested) && endpoint !== null) {
    return said(html`A test event is on its way:
<a href="${base}/deliveries/${tested}">see its delivery</a>.`);
  }
  const isPaused = endpoint && endpoint.paused_at !== null;
  const once = isPaused ? ", once you resume" : "";
  const texts = new Map<unknown, string | false>([
    ["rotated", "Rotated: a new secret signs from now on. Reveal it, and give it to your receivers."],
    ["removed", endpoint === null && "Removed."],
    ["set", endpoint !== null && `Saved: every attempt from now on goes to this URL${once}.`],
    ["paused", isPaused === true && "Paused: deliveries to this URL are held from now on."],
    ["resumed", isPaused === false && "Resumed: new deliveries go out at once."],
    ["signed", endpoint !== null && "Saved: every attempt from now on is signed so."],
    ["told", "Added. A mail with a link was sent to it; notices follow once it is confirmed."],
    ["forgotten", "Removed: whoever reads under that name begins at the oldest event."],
    ["untold", "Removed: it gets no more mails."],
  ]);
  const text = texts.get(done);
  return text ? said(text) : null;
}

function empty(view: View): Html {
  return html`<section class="panel" aria-labelledby="none">
<h2 id="none">No endpoint yet${view.may("webhooks:write") && ": set one"}</h2>
<p>Without one, only analyses that were published with a URL of their own are delivered.</p>
${view.may("webhooks:write") ? endpointForm(view, { url: "" }) : whoMayChange()}
</section>`;
}

function address(view: View, endpoint: Endpoint): Html {
  const { url, updated_at, payload, forget_after_success } = endpoint;
  const { timeZone } = view.session;
  return html`<section class="panel" aria-labelledby="address">
<h2 id="address">Webhooks go to</h2>
<p class="address"><code>${url}</code> ${copyButton(url, "URL")}</p>
<p class="fine">This URL was set on ${momentOf(updated_at, timeZone)}.</p>
${
  payload === "reference" &&
  html`<p class="fine">Webhooks carry a reference, <code>{id, status, url}</code>, instead of the analysis.</p>`
}${forget_after_success && html`<p class="fine">Analyses are erased some time after they were delivered.</p>`}
${heldLine(view, endpoint)}
${view.may("webhooks:write") ? controls(view, endpoint) : whoMayChange()}
</section>`;
}

function controls({ base }: View, { paused_at }: Endpoint): Html {
  return html`<div class="actions">
${buttonForm(`${base}/endpoint/test`, "Send test event")}
<a class="button" href="${base}/endpoint/change">Change</a>
${
  paused_at === null
    ? buttonForm(`${base}/endpoint/pause`, "Pause")
    : buttonForm(`${base}/endpoint/resume`, "Resume")
}
<a class="button" href="${base}/endpoint/remove">Remove</a>
</div>
${paused_at === null && html`<p class="fine">Pausing holds deliveries, and loses nothing.</p>`}`;
}

function check(view: View): Html | null {
  if (!view.may("webhooks:write")) return null;
  return html`<section class="panel" aria-labelledby="check">
<h2 id="check">Check</h2>
<p>Does your receiver accept genuine webhooks and reject forged ones? The check sends 14 example webhooks, most of them
forged, each with the header <code>sealpost-probe: 1</code>. It takes up to 20 seconds, and can be run once a
minute.</p>
<div class="actions">${checkForm(view, "Check the receiver")}</div>
</section>`;
}

function whoMayChange(): Html {
  return html`<p class="fine">To change, pause, test or check it, a session needs the permission
<code>webhooks:write</code>.</p>`;
}

/** What was typed, and why it was refused. */
type Typed = { readonly url: string; readonly refusal?: string };

/** A form with the endpoint's URL. */
const changeEndpointForm = get("/endpoint/change", async (view) => {
  refuseUnless(view, "webhooks:write");
  const endpoint = await unless("not_found", view.ask("webhooks.endpoint.get"));
  return changePage(view, { url: endpoint?.url ?? "" });
});

/** Sets or replaces it. */
const changeEndpoint = post("/endpoint/change", async (view) => {
  const url = (view.form.get("url") ?? "").trim();
  try {
    await view.ask("webhooks.endpoint.set", { body: { url } });
  } catch (error) {
    const refusal = refusalOf(error, {
      target_refused: error instanceof Problem ? error.errors.map(({ message }) => message).join(" ") : "",
      // Back in the browser, another URL, and sent again.
      idempotency_key_reused: "This form was already sent. To save this URL, send it again.",
    });
    return { ...changePage(view, { url, refusal }), status: 422 };
  }
  return { goTo: `${view.base}/endpoint?done=set` };
});

function changePage(view: View, typed: Typed): Page {
  return {
    title: typed.refusal === undefined ? "Change the endpoint" : "Not saved: change the endpoint",
    heading: "Change the endpoint",
    up: upToEndpoint(view),
    main: html`<section class="panel">
<p>Every attempt from now on goes to the new URL, including those of earlier deliveries. Analyses that were published
with a URL of their own keep it.</p>
${endpointForm(view, typed)}
</section>`,
  };
}

/** Also for the first one. */
function endpointForm({ base }: View, { url, refusal }: Typed): Html {
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
const removeEndpointForm = get("/endpoint/remove", async (view) => {
  refuseUnless(view, "webhooks:write");
  const { base, ask } = view;
  const endpoint = await unless("not_found", ask("webhooks.endpoint.get"));
  if (endpoint === null) return { goTo: `${base}/endpoint` };
  const query = { status: ["pending", "failed"], limit: "1" };
  const { total } = await ask("webhooks.deliveries.list", { query });
  return {
    title: "Remove the endpoint?",
    up: upToEndpoint(view),
    main: html`<section class="panel">
<p class="address"><code>${endpoint.url}</code></p>
<p>From then on only analyses that were published with a URL of their own are delivered.</p>
<p>${openDeliveries(view, total)}</p>
<form class="actions" method="post" action="${base}/endpoint/remove">${keyField()}
<button class="danger">Remove</button> <a href="${base}/endpoint">Keep it</a></form>
</section>`,
  };
});

function openDeliveries({ base }: View, total: number): Html {
  if (total === 0) return html`No delivery is open at the moment.`;
  const href = `${base}/deliveries?status=pending&status=failed`;
  const count = counted(total, "delivery is", "deliveries are");
  return html`<a href="${href}">${total >= 10_000 && "At least "}${count} open</a>. Those without a
URL of their own are not sent any more: when their next attempt is due, they are abandoned as <code>no_target</code>.
They can be replayed once there is an endpoint again.`;
}

/** A button. @param searchAfter what the endpoint's page is to say; null: somebody else has removed it meanwhile */
function button<Act extends "remove" | "test" | "pause" | "resume">(
  act: Act,
  searchAfter: (answer: Answers[`webhooks.endpoint.${Act}`] | null) => string | null,
): Screen {
  return post(`/endpoint/${act}`, async ({ base, ask }) => {
    const answer = await unless("not_found", ask(`webhooks.endpoint.${act}`));
    return { goTo: `${base}/endpoint${searchAfter(answer) ?? ""}` };
  });
}

export const endpointScreens = [
  ...headerScreens,
  endpointScreen,
  changeEndpointForm,
  changeEndpoint,
  removeEndpointForm,
  button("remove", () => "?done=removed"),
  button("test", (sent) => sent && `?tested=${sent.delivery_id}`),
  button("pause", (paused) => paused && "?done=paused"),
  button("resume", (resumed) => resumed && "?done=resumed"),
];
