import { randomUUID } from "node:crypto";
import { END_REASONS, hasNothingLeft, REPLAYABLE_STATUSES } from "../../base/model/statuses.ts";
import { type FieldError, Problem } from "../../http/problems.ts";
import type { Delivery } from "../../log/delivery-schema.ts";
import { marksOf, NO_MARKS, refusalList } from "../field-marks.ts";
import { type Html, html } from "../html.ts";
import { filterFields, filtersOf, searchOf, valuesOf } from "../log-filters.ts";
import { counted, DELIVERY_SIGNS, hidden, keyField, number, refuseUnless, said, unless } from "../parts.ts";
import { type DryRun, type Fields, get, post, type View } from "../screen.ts";
import { roughly } from "../times.ts";
import { doesNow } from "./activity.ts";
import { whyOf } from "./deliveries.ts";

/** A bulk replay that somebody is about to start, as the form's page has it in its address. */
type WantedReplay = {
  readonly filters: Fields;
  readonly ratePerSecond: string;
  readonly note: string;
};

/** As the API's own default. */
const RATE_PER_SECOND = "10";

/** What begins with `_` belongs to the form alone. Names that nobody knows are left for the API to refuse. */
function wantedOf(fields: Fields, timeZone: string | null): WantedReplay {
  const asked = Object.entries(fields).filter(([name]) => !name.startsWith("_"));
  const { rate_per_second, note, ...rest } = filtersOf(Object.fromEntries(asked), timeZone);
  const filters = { ...rest };
  if (filters.status === undefined) filters.status = [...REPLAYABLE_STATUSES];
  for (const name of ["created_after", "created_before"]) {
    const ms = Date.parse(String(filters[name]));
    if (!Number.isNaN(ms)) filters[name] = new Date(ms).toISOString();
  }
  return { filters, ratePerSecond: String(rate_per_second ?? RATE_PER_SECOND), note: String(note ?? "") };
}

function fieldsOf(form: URLSearchParams): Fields {
  return Object.fromEntries([...new Set(form.keys())].map((name) => [name, form.getAll(name)]));
}

/** Of the form's page. */
function searchOfWanted({ filters, ratePerSecond, note }: WantedReplay, more: Fields = {}): string {
  return searchOf({
    ...filters,
    ...(ratePerSecond !== RATE_PER_SECOND && { rate_per_second: ratePerSecond }),
    ...(note !== "" && { note }),
    ...more,
  });
}

/** The request's body. */
function bodyOf({ filters, ratePerSecond, note }: WantedReplay): Readonly<Record<string, unknown>> {
  const members = Object.entries(filters).map(([name, value]) => [
    name,
    name.startsWith("status_code") ? numberOr(String(value)) : value,
  ]);
  const filter = Object.fromEntries(members);
  if (valuesOf(filters, "status").length === REPLAYABLE_STATUSES.length) delete filter.status;
  return { filter, rate_per_second: numberOr(ratePerSecond), ...(note !== "" && { note }) };
}

/** What is no number is refused by the API, in its words. */
function numberOr(text: string): number | string {
  return /^\d{1,9}$/.test(text) ? Number(text) : text;
}

/** What would happen. `newest` and `endpoint` are null where there is none, or the viewer may not see it. */
type Preview = DryRun & {
  readonly newest: Delivery | null;
  readonly endpoint: string | null;
  readonly isTried: boolean;
  /** What the receiver of `newest` does now; null: not known, or one was tried, which tells. */
  readonly now: Html | null;
};
type Found = Preview | readonly FieldError[];

/** The API counts expired ones up to here. */
const EXPIRED_MAX = 100_000;

/** Which deliveries, how many they are, and where they go, before anything happens. */
const newReplayScreen = get("/replays/new", async (view) => {
  const { base, session } = view;
  const { was = [], tried = [], ...fields } = view.query;
  const wanted = wantedOf(fields, session.timeZone);
  const search = searchOfWanted(wanted, { was, tried });
  if (sorted(search) !== sorted(searchOf(view.query))) return { goTo: `${base}/replays/new${search}` };
  const [before, after] = [[was].flat()[0], await triedLine(view, [tried].flat()[0])];
  const found = await previewOf(view, wanted, after !== null);
  const isRefused = !("matched" in found);
  return {
    title: isRefused ? "Not counted: replay many" : "Replay many",
    heading: "Replay many",
    up: { href: `${base}/replays`, name: "Replays" },
    ...(isRefused && { status: 400 }),
    main: html`${before !== undefined && "matched" in found && changed(before, found)}
${after}
${form(view, wanted, found)}`,
  };
});

/** The line alone: what is asked for again while the form beside it stays as it is. */
const triedScreen = get("/replays/tried/{delivery_id}", async (view) => ({
  title: "Tried first",
  up: { href: `${view.base}/replays`, name: "Replays" },
  main: await triedLine(view, view.params.delivery_id),
}));

/** Starts it, if what was counted is what the form asks for and still about as much. */
const createReplay = post("/replays", async (view) => {
  const { form, base } = view;
  refuseUnless(view, "webhooks:replay");
  const wanted = wantedOf(fieldsOf(form), view.session.timeZone);
  const again = (more = {}) => ({ goTo: `${base}/replays/new${searchOfWanted(wanted, more)}` });
  if (!form.has("status") || form.get("_counted") !== sorted(searchOf(wanted.filters))) return again();
  const matched = form.get("_matched") ?? "";
  try {
    const replay = await view.ask("webhooks.replays.create", {
      body: { ...bodyOf(wanted), expected_matched: numberOr(matched) },
    });
    return { goTo: `${base}/replays/${"id" in replay ? `${replay.id}?queued=1` : ""}` };
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    if (error.code === "replay_changed") return again({ was: matched });
    if (error.code === "invalid_request") return again();
    // The same form once more, before the first is answered: it is on the list in a moment.
    if (error.code === "idempotency_in_progress") return { goTo: `${base}/replays` };
    throw error;
  }
});

/** The newest one that matched when the page was made, alone. */
const tryReplay = post("/replays/try", async (view) => {
  const { form, base } = view;
  const wanted = wantedOf(fieldsOf(form), view.session.timeZone);
  const tried = form.get("_newest") ?? "";
  const key = form.get("_key");
  await view.ask("webhooks.deliveries.replay", {
    params: { delivery_id: tried },
    // Another write than the bulk replay's, which the same form may ask for after this one.
    idempotencyKey: key && `${key}-try`,
  });
  return { goTo: `${base}/replays/new${searchOfWanted(wanted, { tried })}` };
});

export const newReplayScreens = [newReplayScreen, triedScreen, createReplay, tryReplay];

/** @returns the fields that the API refuses, if it refuses some */
async function previewOf(view: View, wanted: WantedReplay, isTried: boolean): Promise<Found> {
  const { ask, may } = view;
  try {
    const dryRun = await ask("webhooks.replays.create", {
      body: { ...bodyOf(wanted), dry_run: true },
      idempotencyKey: randomUUID(),
    });
    if ("id" in dryRun) throw new Error("A dry run started a replay.");
    if (!may("webhooks:read")) return { ...dryRun, newest: null, endpoint: null, isTried, now: null };
    const query = { ...wanted.filters, limit: "1" };
    const [newest = null] =
      dryRun.matched > 0 ? (await ask("webhooks.deliveries.list", { query })).items : [];
    const endpoint = (await unless("not_found", ask("webhooks.endpoint.get")))?.url ?? null;
    const target = newest?.target_source === "request" ? newest.target_url : newest && endpoint;
    const host = !isTried && target !== null && URL.parse(target)?.hostname;
    return { ...dryRun, newest, endpoint, isTried, now: host ? await doesNow(view, host) : null };
  } catch (error) {
    if (error instanceof Problem && error.code === "invalid_request") return error.errors;
    throw error;
  }
}

/** How the one went that was tried; null: none was, or the viewer may not know. */
async function triedLine(view: View, id: string | undefined): Promise<Html | null> {
  const { ask, base, may } = view;
  if (id === undefined || !may("webhooks:read")) return null;
  const tried = await ask("webhooks.deliveries.get", { params: { delivery_id: id } });
  const { status, run, analysis_id } = tried;
  const next =
    status === "succeeded" ? "Replay the others." : "See whether it arrives, then replay the others.";
  return html`<p class="said tried ${status}" role="status" data-live="${base}/replays/tried/${id}">
${status === "pending" ? "Queued: run" : "Run"} ${run} of <a href="${base}/deliveries/${id}">${analysis_id}</a>:
${DELIVERY_SIGNS[status]}. ${whyOf(view, tried) ?? next}</p>`;
}

function changed(was: string, { matched }: Preview): Html {
  return said(html`Nothing was replayed: when you looked, ${was} matched, and now
${number(matched)} do. Look again, then replay.`);
}

/** Nothing of it refreshes itself: the form's key and its count stay together. */
function form(view: View, wanted: WantedReplay, found: Found): Html {
  const { base, session } = view;
  const { filters } = wanted;
  const check = (name: string, value: string, word: string) => {
    const isChecked = valuesOf(filters, name).includes(value);
    const box = html`<input type="checkbox" name="${name}" value="${value}"${isChecked && html` checked`}>`;
    return html`<label>${box} ${word}</label>`;
  };
  const reasons = END_REASONS.filter((reason) => !hasNothingLeft(reason));
  const marks = "matched" in found ? NO_MARKS : marksOf(found);
  return html`<form class="bulk" method="post" action="${base}/replays" data-still>
<fieldset class="checks"><legend>Include</legend>
${check("status", "abandoned", "abandoned")}${check("status", "failed", "failing")}</fieldset>
<fieldset class="checks"><legend>Reason (none: any)</legend>
${reasons.map((reason) => check("reason", reason, reason))}</fieldset>
<div class="filters">${filterFields(filters, session.timeZone, false, marks)}
<button formmethod="get" formaction="${base}/replays/new">Count</button></div>
${"matched" in found ? outcome(view, wanted, found) : refused(wanted, found)}
</form>`;
}

function how({ ratePerSecond, note }: WantedReplay, { field } = NO_MARKS): Html {
  return html`<div class="filters">${field(
    ["rate_per_second"],
    (marked) => html`<label>Deliveries per second <input type="number" name="rate_per_second"
  value="${ratePerSecond}" min="1" max="1000" required${marked}></label>`,
  )}
${field(
  ["note"],
  (
    marked,
  ) => html`<label class="wide">Note, shown to the account <input name="note" value="${note}" maxlength="500"
  autocomplete="off"${marked}></label>`,
)}</div>`;
}

function refused(wanted: WantedReplay, errors: readonly FieldError[]): Html {
  return html`<section class="panel" role="alert"><h2>This cannot be counted</h2>
${refusalList(errors)}
${how(wanted, marksOf(errors))}</section>`;
}

function outcome(view: View, wanted: WantedReplay, found: Preview): Html {
  const { matched, expired, newest, isTried, now } = found;
  const canTry = newest !== null && matched > 1;
  const count = expired > EXPIRED_MAX ? `More than ${number(EXPIRED_MAX)}` : number(expired);
  const others = `${count} ${expired === 1 ? "other has" : "others have"} expired: the analysis is no longer kept.`;
  if (matched === 0) {
    return html`<section class="panel" role="status"><h2>Nothing to replay</h2>
<p>No failing or abandoned delivery matches. ${expired > 0 && others}</p>
${hidden("rate_per_second", wanted.ratePerSecond)}${hidden("note", wanted.note)}</section>`;
  }
  const seconds = matched / Math.max(1, Number(wanted.ratePerSecond));
  return html`<section class="panel" aria-labelledby="matched">
<h2 id="matched">${counted(matched, "delivery matches", "deliveries match")}</h2>
<p>${whereTo(view, found)}</p>
${expired > 0 && html`<p>${others}</p>`}
<p>At ${number(Number(wanted.ratePerSecond))} a second that takes ${roughly(seconds)}.</p>
${
  now !== null &&
  html`<p>${now} <button class="quiet" formmethod="get" formaction="${view.base}/replays/new">Check again</button></p>`
}
${how(wanted)}
${keyField()}${hidden("_counted", sorted(searchOf(wanted.filters)))}${hidden("_matched", matched)}
<div class="actions"><button class="${canTry || isTried ? "if-arrived" : "primary"}">Replay ${number(matched)}</button>
${canTry && tryButton(view, newest, isTried)}</div>
</section>`;
}

function tryButton({ base }: View, { id, analysis_id }: Delivery, isTried: boolean): Html {
  return html`${hidden("_newest", id)}
<button${!isTried && html` class="primary"`} formaction="${base}/replays/try">Try 1 first: ${analysis_id}</button>`;
}

function whereTo({ may }: View, { matched, own_url: own, endpoint }: Preview): Html {
  if (own === matched) return html`They go to the URLs that they were published with.`;
  const goes = own === 1 ? "goes to the URL that it was" : "go to the URLs that they were";
  const ownWords = own > 0 && ` ${number(own)} ${goes} published with.`;
  const rest = matched - own;
  const goRest = own === 0 ? "They go" : `${number(rest)} ${rest === 1 ? "goes" : "go"}`;
  if (endpoint !== null) return html`${goRest} to <code>${endpoint}</code>.${ownWords}`;
  if (!may("webhooks:read")) return html`${goRest} to the account's endpoint.${ownWords}`;
  return html`There is no endpoint: ${number(rest)} would have no target and be abandoned again.${ownWords}`;
}

/** Parameters in any order are the same address, and the same set. */
function sorted(search: string): string {
  return `?${new URLSearchParams([...new URLSearchParams(search)].sort())}`;
}
