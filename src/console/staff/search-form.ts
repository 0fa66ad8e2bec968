import { type Html, html } from "../html.ts";
import { STAFF_PATH } from "./staff-sites.ts";

/** A caller has an id or a name, and does not know whose it is. */
export function searchForm(asked: string): Html {
  return html`<form class="find" method="get" action="${STAFF_PATH}/search" role="search">
<label for="q">Find an account, a delivery or an analysis</label>
<div><input id="q" name="q" value="${asked}" maxlength="255" required autocomplete="off" spellcheck="false"
  placeholder="name or id, from any account"><button>Search</button></div>
</form>`;
}
