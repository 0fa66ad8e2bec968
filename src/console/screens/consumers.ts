import { EVENTS_BEHIND_COUNTED_MAX } from "../../base/model/events.ts";
import type { EventConsumer } from "../../feed/events-api.ts";
import { Problem } from "../../http/problems.ts";
import { type Html, html } from "../html.ts";
import {
  type Column,
  copyButton,
  counted,
  facts,
  keyField,
  plain,
  refuseUnless,
  sign,
  table,
  unless,
  upToEndpoint,
} from "../parts.ts";
import { get, post, type View } from "../screen.ts";
import { awaitedOf, distanceOf, momentOf } from "../times.ts";

const PATH = "/endpoint/consumers";

/** The endpoint screen's part about programs that fetch events, and whose place in them is kept. */
export async function consumersSection(view: View): Promise<Html> {
  const { items } = await view.ask("webhooks.events.consumers.list");
  return html`<section class="panel" aria-labelledby="consumers">
<h2 id="consumers">Consumers of events</h2>
<p class="soft">Programs that fetch events from the feed, each under a name of its own. How far they have come is kept
here.</p>
${
  items.length === 0
    ? howTo(view)
    : table("consumers", columnsOf(view), plain(items), { below: (one) => warnings(view, one) })
}
</section>`;
}

function columnsOf(view: View): readonly Column<EventConsumer>[] {
  const { base, session, nowMs } = view;
  return [
    { name: "Name", label: null, cell: ({ name }) => html`<code>${name}</code>` },
    { name: "State", label: null, cell: (consumer) => stateOf(view, consumer) },
    { name: "Last acknowledged", cell: ({ updated_at }) => awaitedOf(updated_at, session.timeZone, nowMs) },
    { name: "Has read to", cell: ({ read_to }) => momentOf(read_to, session.timeZone) },
    {
      name: "Remove",
      label: null,
      cell: ({ name }) =>
        view.may("webhooks:write") &&
        html`<a href="${base}${PATH}/${name}/remove">Remove<span class="unseen"> ${name}</span></a>`,
    },
  ];
}

function stateOf(
  { nowMs }: View,
  { events_behind: count, behind_since: since, expired }: EventConsumer,
): Html {
  if (expired) return sign("abandoned", "✕", "too far behind");
  if (since === null) return sign("succeeded", "✓", "has read everything");
  const least = count >= EVENTS_BEHIND_COUNTED_MAX ? "at least " : "";
  return html`${sign("pending", "○", `${least}${counted(count, "event")} behind`)}, the oldest
${distanceOf(Date.parse(since), nowMs)}`;
}

/** What somebody has to do about it. */
function warnings({ session }: View, { expired, other_reader: other }: EventConsumer): Html | null {
  if (!expired && other === null) return null;
  return html`${
    expired &&
    html`<p>It is refused, as what came next is no longer kept. Remove it, and its program begins at the oldest
event.</p>`
  }${
    other !== null &&
    html`<p><span class="warn">▲ Two readers use this name</span>, last seen
${momentOf(other.seen_at, session.timeZone)}: each misses what the other acknowledges, or both handle it. Give them
names of their own.</p>`
  }`;
}

/** In place of a list. */
function howTo({ installation }: View): Html {
  const code = `const baseUrl = "${installation.publicUrl}";
for await (const event of pullWebhooks({ baseUrl, apiKey, secret, consumer: "billing" })) {
  console.log(event.id, event.event);
}`;
  return html`<p>None yet.</p>
<details><summary>Fetch events from a program</summary>
<p>With <code>sealpost-receiver</code>, the signing secret, and an API key that may read analyses; it needs no endpoint.
<a href="/guide#without-a-public-address">The guide</a> has more, and the requests for any other language.</p>
<pre>${code}</pre>${copyButton(code, "code")}</details>`;
}

/** Asks first. */
const removeConsumerForm = get(`${PATH}/{name}/remove`, async (view) => {
  refuseUnless(view, "webhooks:write");
  const { base, params, ask, session, nowMs } = view;
  const { items } = await ask("webhooks.events.consumers.list");
  const consumer = items.find(({ name }) => name === params.name);
  if (consumer === undefined) throw new Problem("not_found");
  const { name, updated_at } = consumer;
  return {
    title: "Remove this consumer?",
    up: upToEndpoint(view),
    main: html`${facts([
      ["Name", html`<code>${name}</code>`],
      ["State", stateOf(view, consumer)],
      ["Last acknowledged", awaitedOf(updated_at, session.timeZone, nowMs)],
    ])}
<section class="panel">
<p>How far it has come is forgotten: a program that reads under this name begins at the oldest event that is kept, and
gets again what it has handled. Stop it first: one that is still running brings the name back when it acknowledges its
page.</p>
<form class="actions" method="post" action="${base}${PATH}/${name}/remove">${keyField()}
<button class="danger">Remove</button> <a href="${base}/endpoint">Keep it</a></form>
</section>`,
  };
});

const removeConsumer = post(`${PATH}/{name}/remove`, async ({ ask, base, params }) => {
  // Somebody else was faster, perhaps.
  await unless("not_found", ask("webhooks.events.consumers.remove", { params }));
  return { goTo: `${base}/endpoint?done=forgotten` };
});

export const consumerScreens = [removeConsumerForm, removeConsumer];
