import type { ConsoleZones } from "../base/model/console.ts";
import { DAY_SECONDS, isTimeZone } from "../base/model/time.ts";
import { invalidRequest } from "../http/problems.ts";
import { setCookie } from "./embedding.ts";
import { admitting, formOf, refuseForeignPost } from "./guards.ts";
import { type Html, html } from "./html.ts";
import { hidden } from "./parts.ts";
import { type ConsoleContext, ZONE_COOKIE } from "./site.ts";

const CHOOSE_PATH = "/console/time-zone";
const KEPT_SECONDS = 365 * DAY_SECONDS;

/** Where a choice is sent. It needs no session: nothing but times looks different. */
export function addTimeZones({ pages, kernel, options, framers }: ConsoleContext): void {
  pages.post(CHOOSE_PATH, { onRequest: admitting(kernel) }, async (request, reply) => {
    refuseForeignPost(request, options.publicUrl);
    const form = formOf(request);
    const zone = form.get("zone")?.trim() ?? "";
    if (!isTimeZone(zone)) throw invalidRequest("zone", "Must be a time zone such as Europe/Berlin.");
    const to = form.get("to") ?? "";
    if (!OF_CONSOLE.test(to)) throw invalidRequest("to", "Must be the address of a page of the console.");
    setCookie(reply, framers.ofPage(request), ZONE_COOKIE, zone, KEPT_SECONDS);
    return reply.redirect(to, 303);
  });
}

const OF_CONSOLE = /^\/console\/(?:a|staff)(?:[/?][\x21-\x7e]*)?$/;

/** In which zone a page's times are, and the others that there are. @param path of the page */
export function zoneChoice({ timeZone, linkTimeZone }: ConsoleZones, path: string): Html {
  const shown = timeZone ?? "UTC";
  const to = hidden("to", path);
  const known = [...new Set([linkTimeZone ?? "UTC", "UTC", shown])];
  // A script offers the browser's own; without one it can be typed.
  return html`<details class="times"><summary><span>Times in </span>${shown}</summary><div>
<form method="post" action="${CHOOSE_PATH}">${to}
<button name="zone" class="quiet" data-local hidden></button>
${known.map((zone) => {
  const current = zone === shown && html` aria-current="true"`;
  return html`<button name="zone" class="quiet" value="${zone}"${current}>${zone}</button>`;
})}
</form>
<form method="post" action="${CHOOSE_PATH}">${to}
<label>Another <input name="zone" required maxlength="64" placeholder="Europe/Berlin" autocomplete="off"
  spellcheck="false"></label> <button>Show</button>
</form></div></details>`;
}
