import type { FieldError } from "../../http/problems.ts";
import { formRefusal, marksOfForm, refusalsOf } from "../field-marks.ts";
import { type Html, html } from "../html.ts";
import { hidden, keyField, plain, refuseUnless, table, unless, upToEndpoint } from "../parts.ts";
import { type Endpoint, get, type Page, post, type View } from "../screen.ts";

const PATH = "/endpoint/headers";

/** The endpoint screen's part about how its webhooks are signed, and which headers of their own they have. */
export function signingSection({ base, may }: View, endpoint: Endpoint): Html {
  const { signature_schemes: schemes, headers } = endpoint;
  const isStandard = schemes.includes("standard");
  return html`<section class="panel" aria-labelledby="headers">
<h2 id="headers">Headers</h2>
<p>Signed in <code>extract-signature</code>${
    isStandard && html`, and in <code>webhook-signature</code> as Standard Webhooks has it`
  }. ${
    headers.length === 0
      ? "No headers of your own."
      : html`Of your own: ${headers.map(({ name }, at) => html`${at > 0 && ", "}<code>${name}</code>`)}.`
  }</p>
${
  may("webhooks:write") &&
  html`<div class="actions"><a class="button" href="${base}${PATH}">Headers of your own</a>
<form method="post" action="${base}/endpoint/standard">${keyField()}${seen(endpoint)}
${hidden("to", isStandard ? "off" : "on")}
<button>${isStandard ? "Stop signing as Standard Webhooks" : "Sign as Standard Webhooks, too"}</button></form></div>`
}
</section>`;
}

/** Of a form that changes what is there: what it was when the form was shown, so that it can be sent twice. */
const seen = ({ updated_at }: Endpoint) => hidden("seen", updated_at);

/** Changes a part of the endpoint. What somebody else has changed in the meantime, or does right now, stays. */
async function change(
  view: View,
  partOf: (endpoint: Endpoint) => object,
  expected = view.form.get("seen"),
  triesLeft = 4,
): Promise<void> {
  const endpoint = await view.ask("webhooks.endpoint.get");
  const { url, updated_at } = endpoint;
  const body = { url, ...partOf(endpoint), expected_updated_at: expected ?? updated_at };
  const asked = view.ask("webhooks.endpoint.set", { body });
  const done = await (triesLeft === 0 ? asked : unless("endpoint_changed", asked));
  if (done === null) await change(view, partOf, null, triesLeft - 1);
}

const setStandard = post("/endpoint/standard", async (view) => {
  const isOn = view.form.get("to") === "on";
  await change(view, () => ({ signature_schemes: isOn ? ["extract", "standard"] : ["extract"] }));
  return { goTo: `${view.base}/endpoint?done=signed` };
});

const headersForm = get(PATH, async (view) => {
  refuseUnless(view, "webhooks:write");
  const endpoint = await unless("not_found", view.ask("webhooks.endpoint.get"));
  return endpoint === null ? { goTo: `${view.base}/endpoint` } : headersPage(view, endpoint);
});

/** Adds one, or gives one of that name another value. */
const setHeader = post(PATH, async (view) => {
  const { form } = view;
  const name = (form.get("name") ?? "").trim();
  const added = { name, value: (form.get("value") ?? "").trim(), secret: form.get("secret") !== null };
  try {
    await change(view, ({ headers }) => ({ headers: [...others(headers, name), added] }));
  } catch (error) {
    // In the request they are in a list.
    const errors = refusalsOf(error, REFUSALS).map(({ path, message }) => ({
      path: path.replace(/^body\.headers\.\d+/, "body"),
      message,
    }));
    const endpoint = await view.ask("webhooks.endpoint.get");
    return { ...headersPage(view, endpoint, { name, secret: added.secret }, errors), status: 422 };
  }
  return { goTo: `${view.base}${PATH}` };
});

const removeHeader = post(`${PATH}/remove`, async (view) => {
  const name = view.form.get("name") ?? "";
  await change(view, ({ headers }) => ({ headers: others(headers, name) }));
  return { goTo: `${view.base}${PATH}` };
});

/** They keep their values, which are not known here where they are secret. */
function others(headers: Endpoint["headers"], changedName: string) {
  const rest = headers.filter(({ name }) => name.toLowerCase() !== changedName.toLowerCase());
  return rest.map(({ name, secret }) => ({ name, secret }));
}

const REFUSALS: Readonly<Record<string, string>> = {
  idempotency_key_reused:
    "This form was already sent, and its header saved. To save another one, send it again.",
};

/** What was typed, but for the value. */
type Typed = { readonly name: string; readonly secret: boolean };

function headersPage(
  view: View,
  endpoint: Endpoint,
  typed: Typed = { name: "", secret: true },
  errors: readonly FieldError[] = [],
): Page {
  const { base } = view;
  const { headers } = endpoint;
  const marks = marksOfForm(errors, ["name", "value"]);
  return {
    title: marks.areAny ? "Not saved: headers of your own" : "Headers of your own",
    heading: "Headers of your own",
    up: upToEndpoint(view),
    main: html`${
      headers.length > 0 &&
      table(
        "headers",
        [
          { name: "Name", cell: ({ name }) => html`<code>${name}</code>` },
          { name: "Value", cell: ({ value }) => (value === null ? "secret" : html`<code>${value}</code>`) },
          {
            name: "Remove",
            label: null,
            cell: ({ name }) =>
              html`<form method="post" action="${base}${PATH}/remove">${keyField()}${seen(endpoint)}
${hidden("name", name)}<button>Remove<span class="unseen"> ${name}</span></button></form>`,
          },
        ],
        plain(headers),
      )
    }
<section class="panel">
<p>Sent with every webhook to the endpoint, for a gateway in front of your receiver; not to a URL that an analysis was
published with. A header of the same name gets the new value. Secret ones are gone once the endpoint is at another
host.</p>
${formRefusal(marks)}
<form class="new-key" method="post" action="${base}${PATH}">${keyField()}${seen(endpoint)}
${marks.field(
  ["name"],
  (marked) => html`<p><label for="name">Name</label>
<input id="name" name="name" value="${typed.name}" maxlength="100" required autocomplete="off"
  spellcheck="false" placeholder="CF-Access-Client-Secret"${marked}></p>`,
)}
${marks.field(
  ["value"],
  (marked) => html`<p><label for="value">Value</label>
<input id="value" name="value" maxlength="2048" required autocomplete="off" spellcheck="false"${marked}></p>`,
)}
<p><label><input type="checkbox" name="secret" value="yes"${typed.secret && html` checked`}> Secret: never
shown again</label></p>
<div class="actions"><button class="primary">Save</button> <a href="${base}/endpoint">Back</a></div>
</form>
</section>`,
  };
}

export const headerScreens = [setStandard, headersForm, setHeader, removeHeader];
