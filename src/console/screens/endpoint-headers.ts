import type { FieldError } from "../../http/problems.ts";
import { formRefusal, marksOfForm, refusalsOf } from "../field-marks.ts";
import { type Html, html } from "../html.ts";
import { hidden, keyField, plain, refuseUnless, table, unless, upToEndpoint } from "../parts.ts";
import { type Answers, type Endpoint, get, type Page, post, type View } from "../screen.ts";

const PATH = "/endpoint/headers";

/** The endpoint screen's part about how its webhooks are signed, and which headers of their own they have. */
export function signingSection({ base, may }: View, { signature_schemes: schemes, headers }: Endpoint): Html {
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
<form method="post" action="${base}/endpoint/standard">${keyField()}${hidden("to", isStandard ? "off" : "on")}
<button>${isStandard ? "Stop signing as Standard Webhooks" : "Sign as Standard Webhooks, too"}</button></form></div>`
}
</section>`;
}

const setStandard = post("/endpoint/standard", async (view) => {
  const { url } = await view.ask("webhooks.endpoint.get");
  const signature_schemes: Endpoint["signature_schemes"] = ["extract"];
  if (view.form.get("to") === "on") signature_schemes.push("standard");
  await view.ask("webhooks.endpoint.set", { body: { url, signature_schemes } });
  return { goTo: `${view.base}/endpoint?done=signed` };
});

const headersForm = get(PATH, async (view) => {
  refuseUnless(view, "webhooks:write");
  const endpoint = await unless("not_found", view.ask("webhooks.endpoint.get"));
  return endpoint === null ? { goTo: `${view.base}/endpoint` } : headersPage(view, endpoint);
});

/** Adds one, or gives one of that name another value. */
const setHeader = post(PATH, async (view) => {
  const endpoint = await view.ask("webhooks.endpoint.get");
  const { form } = view;
  const name = (form.get("name") ?? "").trim();
  const added = { name, value: (form.get("value") ?? "").trim(), secret: form.get("secret") !== null };
  try {
    await view.ask("webhooks.endpoint.set", { body: changed(endpoint, name, [added]) });
  } catch (error) {
    // In the request they are in a list.
    const errors = refusalsOf(error, REFUSALS).map(({ path, message }) => ({
      path: path.replace(/^body\.headers\.\d+/, "body"),
      message,
    }));
    return { ...headersPage(view, endpoint, { name, secret: added.secret }, errors), status: 422 };
  }
  return { goTo: `${view.base}${PATH}` };
});

const removeHeader = post(`${PATH}/remove`, async (view) => {
  const endpoint = await view.ask("webhooks.endpoint.get");
  await view.ask("webhooks.endpoint.set", { body: changed(endpoint, view.form.get("name") ?? "", []) });
  return { goTo: `${view.base}${PATH}` };
});

/** Those of other names keep their values, which are not known here where they are secret. */
function changed(
  { url, headers }: Answers["webhooks.endpoint.get"],
  changedName: string,
  added: readonly { readonly name: string; readonly value: string; readonly secret: boolean }[],
) {
  const isOther = ({ name }: { readonly name: string }) => name.toLowerCase() !== changedName.toLowerCase();
  const kept = headers.filter(isOther).map(({ name, secret }) => ({ name, secret }));
  return { url, headers: [...kept, ...added] };
}

const REFUSALS: Readonly<Record<string, string>> = {
  idempotency_key_reused:
    "This form was already sent, and its header saved. To save another one, send it again.",
};

/** What was typed, but for the value. */
type Typed = { readonly name: string; readonly secret: boolean };

function headersPage(
  view: View,
  { headers }: Endpoint,
  typed: Typed = { name: "", secret: true },
  errors: readonly FieldError[] = [],
): Page {
  const { base } = view;
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
            name: "",
            label: null,
            cell: ({ name }) =>
              html`<form method="post" action="${base}${PATH}/remove">${keyField()}${hidden("name", name)}
<button>Remove<span class="unseen"> ${name}</span></button></form>`,
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
<form class="new-key" method="post" action="${base}${PATH}">${keyField()}
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
