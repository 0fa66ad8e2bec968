// The console's pages are documents and forms; this adds refreshing and keys. Nothing here is needed to use them.

const REFRESH_VISIBLE_MS = 5_000;
const REFRESH_HIDDEN_MS = 60_000;
/** For so long a button says that it has copied. */
const COPIED_MS = 2_000;
/** The service itself gives up after 5 s. */
const ANSWER_MS = 10_000;

const main = document.querySelector("main");
const banner = document.querySelector("#banner");
/** What is morphed in comes from this server's own page, escaped there. */
const policy = globalThis.trustedTypes?.createPolicy("sealpost", { createHTML: (text) => text });

/** Of the page as it was last morphed in. No cache keeps pages, so it is kept here. */
let tag = "";
/** A form is on its way. */
let isSent = false;
/** The reader wants the page as it is. */
let isPaused = false;
/** The service has not answered the last time. */
let isLost = false;
/** The page is not asked for any more. */
let hasEnded = false;
let timer = 0;
/** A page that a form answered with has no address to ask again. */
const { morph: library } = main.dataset;

// A form is sent once; what takes long says so.
document.addEventListener("submit", (event) => {
  const form = event.target;
  if (form.method !== "post") return;
  if (form.dataset.sent !== undefined) event.preventDefault();
  form.dataset.sent = "";
  isSent = true;
  if (form.dataset.wait !== undefined) say(form.dataset.wait, false);
});

/** The browser's own zone for times, which only a script knows. @param root a page */
function offerOwnZone(root) {
  const button = root.querySelector("[data-local]");
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  if (button === null || !zone || root.querySelector(`.times [value="${CSS.escape(zone)}"]`) !== null) return;
  button.value = zone;
  button.textContent = `${zone}, as on this computer`;
  button.hidden = false;
}
offerOwnZone(main);

document.addEventListener("click", async (event) => {
  const target = event.target;
  // What hangs open over the page is closed by a click elsewhere.
  const open = main.querySelector(".times[open]");
  if (!open?.contains(target)) open?.removeAttribute("open");
  // Back to a page is back to the link that led away from it.
  const href = target.closest("main a")?.getAttribute("href");
  if (href) history.replaceState({ ...history.state, left: href }, "");
  if (target.closest(".live") !== null) pause(!isPaused);
  const button = target.closest("[data-copy]");
  if (button === null) return;
  await navigator.clipboard.writeText(button.dataset.copy);
  button.dataset.copied = "";
  setTimeout(() => delete button.dataset.copied, COPIED_MS);
});
const left = history.state?.left;
if (left) {
  const link = [...main.querySelectorAll("a")].find((one) => one.getAttribute("href") === left);
  link?.focus({ preventScroll: true });
}

// Only a script copies, and only where the page is asked for securely.
if (navigator.clipboard) document.documentElement.classList.add("copies");

// Back to a page that the browser has kept: its forms have been sent.
addEventListener("pageshow", ({ persisted }) => {
  if (persisted) location.reload();
});

function say(text, isBad) {
  banner.textContent = text;
  banner.hidden = text === "";
  banner.classList.toggle("bad", isBad);
}

async function refresh() {
  const goesOn = isSent || isStill() || (await ask());
  clearTimeout(timer);
  hasEnded = !goesOn;
  if (goesOn && !isPaused) timer = setTimeout(refresh, beatMs());
  showState();
}

function beatMs() {
  return document.hidden ? REFRESH_HIDDEN_MS : REFRESH_VISIBLE_MS;
}

/** Whether the page has a form that counts on the rest of it, and no line that goes on beside it. */
function isStill() {
  return document.querySelector("form[data-still]") !== null && lineOf(main) === null;
}

/** The one part that refreshes beside a form that is still. It names its address. @param root a page */
function lineOf(root) {
  return root.querySelector("[data-live]");
}

/** How refreshing stands: the word that is seen, and the rest of the sentence. */
const STATES = {
  live: { symbol: "●", word: "live", title: "This page refreshes by itself. Press to pause." },
  paused: { symbol: "‖", word: "paused", title: "This page does not refresh. Press to resume." },
  waiting: { symbol: "‖", word: "waiting", title: "This page does not refresh while you fill in its form." },
  lost: { symbol: "✕", word: "no answer", title: "The service does not answer. This page keeps trying." },
  ended: { symbol: "■", word: "ended", title: "This page no longer refreshes." },
};

/** Nothing is announced: who cannot see it finds it in a button. @param root a page */
function showState(root = main) {
  const button = root.querySelector(".live");
  if (button === null || library === undefined) return;
  const isHeld = isSent || isStill() || isTyped();
  const state = hasEnded ? "ended" : isPaused ? "paused" : isHeld ? "waiting" : isLost ? "lost" : "live";
  const { symbol, word, title } = STATES[state];
  const [mark, text] = button.querySelectorAll("span");
  if (mark) mark.textContent = symbol;
  if (text) text.textContent = state === "live" ? `${word} ${beatMs() / 1_000} s` : word;
  button.dataset.state = state;
  button.title = title;
  button.disabled = hasEnded;
}

function pause(wanted) {
  isPaused = wanted;
  clearTimeout(timer);
  showState();
  if (!isPaused) void refresh();
}
for (const what of ["input", "focusin", "focusout"]) document.addEventListener(what, () => showState());

/** @returns whether to ask again */
async function ask() {
  let response;
  let text;
  try {
    response = await fetch(lineOf(main)?.dataset.live ?? location.href, {
      headers: { "x-refresh": "1", ...(tag !== "" && { "if-none-match": tag }) },
      credentials: "same-origin",
      signal: AbortSignal.timeout(ANSWER_MS),
    });
    text = await response.text();
  } catch {
    isLost = true;
    say("The service does not answer. What is shown may be old; this page keeps trying.", true);
    return true;
  }
  const { status, headers } = response;
  if (status === 401) {
    say(
      banner.dataset.ended ?? "This session has ended: open the console again from where you came from.",
      true,
    );
    document.dispatchEvent(new Event("sealpost:session-ended"));
    return false;
  }
  isLost = status === 429 || status >= 500;
  if (isLost) {
    say("The service cannot answer at the moment. What is shown may be old; this page keeps trying.", true);
    return true;
  }
  // What was shown is not there any more, or not for this viewer: the page says so itself.
  if (response.redirected || (status >= 400 && !isTyped())) {
    if (response.redirected) location.replace(response.url);
    else location.reload();
    return false;
  }
  if (!isSent && status < 400) say("", false);
  if (status !== 200 || isSent || isPaused || isTyped()) return true;
  await morph(text);
  tag = headers.get("etag") ?? "";
  return true;
}

/** @param text a whole page */
async function morph(text) {
  const start = text.indexOf(">", text.indexOf("<main ")) + 1;
  const next = text.slice(start, text.lastIndexOf("</main>"));
  const { Idiomorph } = await import(library ?? "");
  const template = document.createElement("template");
  template.innerHTML = policy ? policy.createHTML(next) : next;
  const [line, nextLine] = [main, template.content].map(lineOf);
  if (line) return nextLine && Idiomorph.morph(line, nextLine);
  keepRows(template.content);
  offerOwnZone(template.content);
  showState(template.content);
  Idiomorph.morph(main, template.content, {
    morphStyle: "innerHTML",
    callbacks: {
      // What somebody has opened stays open, and what somebody types stays.
      beforeAttributeUpdated: (name, { tagName }) => !(name === "open" && tagName === "DETAILS"),
      beforeNodeMorphed: (node) => !(node instanceof HTMLFormElement && isInUse(node)),
    },
  });
}

/** Whether a form that does something, and that a refresh might change, is filled in. */
function isTyped() {
  return [...document.forms].some(
    (form) => form.method === "post" && form.dataset.still === undefined && isInUse(form),
  );
}

function isInUse(form) {
  return [...form.elements].some((field) => {
    if (!field.matches("select, textarea, input:not([type=hidden])")) return false;
    if (field === document.activeElement) return true;
    if (field.options === undefined)
      return field.checked !== field.defaultChecked || field.value !== field.defaultValue;
    const given = [...field.options].findIndex(({ defaultSelected }) => defaultSelected);
    return field.selectedIndex !== Math.max(0, given);
  });
}

/**
 * The log's rows stay where they are under a reader: newer ones are offered, and those that no longer match, or not in
 * their group, remain. Ids begin with their time, so the newer is the greater.
 *
 * @param content what comes
 */
function keepRows(content) {
  const [table, next] = [main, content].map((root) => root.querySelector("table.log:has(tr[id])"));
  if (table == null || next == null || content.querySelector(".newer") === null) return;
  const [shown, coming] = [rowsOf(table), rowsOf(next)];
  const shownIds = new Set(shown.map(({ id }) => id));
  const comingById = new Map(coming.map((row) => [row.id, row]));
  const isFull = content.querySelector(".pages") !== null;
  // Below the last row that both have, the log goes on.
  const [last = null] = shown.flatMap(({ id }) => (comingById.has(id) ? [id] : [])).sort();
  const newer = coming.filter(({ id }) => (last === null || id > last) && !shownIds.has(id));
  for (const row of newer) row.remove();
  let gone = 0;
  const bodies = [...table.tBodies].map((body) => {
    const to = [...next.tBodies].find(({ id }) => id === body.id) ?? body.cloneNode(true);
    const rows = rowsOf(body).map((row) => {
      const now = comingById.get(row.id);
      if (now?.parentElement === to) return now;
      now?.remove();
      const kept = row.cloneNode(true);
      // Below that, newer ones have only pushed it off the page.
      const isAmong = now !== undefined || (last !== null && row.id > last);
      if (isAmong || newer.length === 0 || !isFull) kept.classList.add("gone");
      if (kept.classList.contains("gone")) gone++;
      return kept;
    });
    const older = rowsOf(to).filter(({ id }) => !shownIds.has(id));
    for (const row of rowsOf(to)) row.remove();
    to.append(...rows, ...older);
    return to;
  });
  const groups = [...next.tBodies].filter((body) => !bodies.includes(body) && rowsOf(body).length > 0);
  // What is older than the last row shown.
  const pages = main.querySelector(".pages");
  if (pages && (last === null || shown.some(({ id }) => id < last)))
    content.querySelector(".pages")?.replaceWith(pages.cloneNode(true));
  for (const body of [...next.tBodies]) body.remove();
  next.append(...bodies, ...groups);
  offer(content, newer.length, newer.length === coming.length && isFull, gone);
}

function rowsOf(table) {
  return [...table.querySelectorAll("tr[id]")];
}

/** @param isMore there are more than these that are newer */
function offer(content, newer, isMore, gone) {
  const place = content.querySelector(".newer");
  if (place === null || newer + gone === 0) return;
  const texts = [];
  if (newer > 0) texts.push(`${newer}${isMore ? " or more" : ""} newer`);
  if (gone > 0) texts.push(`${gone} no longer ${gone === 1 ? "matches" : "match"}`);
  place.firstElementChild.textContent = `${texts.join(", ")}: show`;
  place.hidden = false;
}

document.addEventListener("visibilitychange", () => {
  if (library === undefined || hasEnded || isPaused) return;
  if (document.hidden) showState();
  else void refresh();
});

/** To another row with a link. */
function move(step) {
  const all = [...document.querySelectorAll("table.log tbody tr:not(.why, .group)")];
  const rows = all.flatMap((row) => row.querySelector("a") ?? []);
  const at = rows.indexOf(document.activeElement);
  rows[Math.max(0, Math.min(rows.length - 1, at + step))]?.focus();
}

document.addEventListener("keydown", (event) => {
  const target = event.target;
  if (event.ctrlKey || event.metaKey || event.altKey || target.matches("input, select, textarea")) return;
  const act = {
    j: () => move(1),
    k: () => move(-1),
    "/": () => {
      const field = document.querySelector("form[role=search] input:not([type=hidden])");
      field?.closest("details")?.setAttribute("open", "");
      field?.focus();
    },
    "?": () => document.querySelector("#keys")?.showModal(),
    r: () => document.querySelector("[data-key=r]")?.focus(),
  }[event.key];
  if (act === undefined) return;
  event.preventDefault();
  act();
});

showState();
if (library !== undefined) timer = setTimeout(refresh, REFRESH_VISIBLE_MS);
