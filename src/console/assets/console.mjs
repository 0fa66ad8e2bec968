// The console's pages are documents and forms; this adds refreshing and keys. Nothing here is needed to use them.

const REFRESH_VISIBLE_MS = 5_000;
const REFRESH_HIDDEN_MS = 60_000;

const main = /** @type {HTMLElement} */ (document.querySelector("main"));
const banner = /** @type {HTMLElement} */ (document.querySelector("#banner"));
/** What is morphed in comes from this server's own page, escaped there. */
const policy = globalThis.trustedTypes?.createPolicy("sealpost", {
  createHTML: (/** @type {string} */ text) => text,
});

let shown = main.innerHTML;
let isDirty = false;
let timer = 0;
/** A page that a form answered with has no address to ask again. */
const { morph: library } = main.dataset;

document.addEventListener("input", () => {
  isDirty = true;
});

// A form is sent once; while it is worked on, nothing moves, and what takes long says so.
document.addEventListener("submit", (event) => {
  const form = /** @type {HTMLFormElement} */ (event.target);
  if (form.method !== "post") return;
  if (form.dataset.sent !== undefined) event.preventDefault();
  form.dataset.sent = "";
  isDirty = true;
  if (form.dataset.wait !== undefined) say(form.dataset.wait, false);
});

// Back to a page is back to the link that led away from it.
document.addEventListener("click", ({ target }) => {
  const href = /** @type {Element} */ (target).closest("main a")?.getAttribute("href");
  if (href) history.replaceState({ ...history.state, left: href }, "");
});
const left = history.state?.left;
if (left) {
  const link = [...main.querySelectorAll("a")].find((one) => one.getAttribute("href") === left);
  /** @type {HTMLElement | undefined} */ (link)?.focus({ preventScroll: true });
}

// Back to a page that the browser has kept: its forms have been sent.
addEventListener("pageshow", ({ persisted }) => {
  if (persisted) location.reload();
});

/** @param {string} text @param {boolean} isBad */
function say(text, isBad) {
  banner.textContent = text;
  banner.hidden = text === "";
  banner.classList.toggle("bad", isBad);
}

async function refresh() {
  clearTimeout(timer);
  // What somebody reads or is about to send stays as it is.
  const isHeld = document.querySelector("details[open], form[data-still]") !== null;
  if (!isDirty && !isHeld) await morph();
  timer = setTimeout(refresh, document.hidden ? REFRESH_HIDDEN_MS : REFRESH_VISIBLE_MS);
}

async function morph() {
  let response;
  try {
    response = await fetch(location.href, { headers: { "x-refresh": "1" }, credentials: "same-origin" });
  } catch {
    say("The service does not answer. What is shown may be old; it is asked again by itself.", true);
    return;
  }
  if (response.status === 401) {
    say("This session has ended: open the console again from where you came from.", true);
    return;
  }
  if (!response.ok) {
    say(
      "The service cannot answer at the moment. What is shown may be old; it is asked again by itself.",
      true,
    );
    return;
  }
  say("", false);
  const text = await response.text();
  const start = text.indexOf(">", text.indexOf("<main ")) + 1;
  const next = text.slice(start, text.lastIndexOf("</main>"));
  if (next === shown || isDirty) return;
  const { Idiomorph } = await import(library ?? "");
  const template = document.createElement("template");
  template.innerHTML = /** @type {any} */ (policy ? policy.createHTML(next) : next);
  Idiomorph.morph(main, template.content, { morphStyle: "innerHTML" });
  shown = next;
}

document.addEventListener("visibilitychange", () => {
  if (!document.hidden && library !== undefined) void refresh();
});

/** Rows with a link, in their order. */
const links = () => /** @type {HTMLAnchorElement[]} */ ([...document.querySelectorAll("table.log td a")]);

/** @param {number} step */
function move(step) {
  const all = links();
  const at = all.indexOf(/** @type {HTMLAnchorElement} */ (document.activeElement));
  all[Math.max(0, Math.min(all.length - 1, at + step))]?.focus();
}

document.addEventListener("keydown", (event) => {
  const target = /** @type {HTMLElement} */ (event.target);
  if (event.ctrlKey || event.metaKey || event.altKey || target.matches("input, select, textarea")) return;
  const act = {
    j: () => move(1),
    k: () => move(-1),
    "/": () =>
      /** @type {HTMLElement | null} */ (
        document.querySelector("form[role=search] input:not([type=hidden])")
      )?.focus(),
    r: () => /** @type {HTMLElement | null} */ (document.querySelector("[data-key=r]"))?.focus(),
  }[event.key];
  if (act === undefined) return;
  event.preventDefault();
  act();
});

if (library !== undefined) timer = setTimeout(refresh, REFRESH_VISIBLE_MS);
