import type { z } from "zod";
import type { DeliveryWithAttempts } from "../operations/delivery-schema.ts";
import { type Html, html } from "./html.ts";
import type { View } from "./screen.ts";
import { clockText } from "./times.ts";

type Delivery = z.output<typeof DeliveryWithAttempts>;
type Attempt = Delivery["attempts"][number];

const STEP = 34;
const HEIGHT = 24;
const MIDDLE = HEIGHT / 2;
const RADIUS = 8;

/**
 * A run's attempts as dots that lead to them, and what it has left. Places are by number: delays grow fourfold, so by
 * time only a logarithmic scale would keep the dots apart, and that one puts them about here.
 */
export function timelineOf(view: View, delivery: Delivery, run: number, attempts: readonly Attempt[]): Html {
  const last = attempts.at(-1)?.number ?? 0;
  const isCurrent = run === delivery.run;
  const isOpen = isCurrent && (delivery.status === "pending" || delivery.status === "failed");
  const places = Math.max(last, view.attemptsMax);
  const next = isOpen && last < places ? last + 1 : null;
  const width = places * STEP;
  const middleOf = (place: number) => (place - 0.5) * STEP;
  const spare = Array.from({ length: places - last }, (_, n) => last + 1 + n).filter(
    (place) => place !== next,
  );
  return html`<div class="timeline">
<svg viewBox="0 0 ${width} ${HEIGHT}" width="${width}" height="${HEIGHT}" role="group"
  aria-label="Attempts of run ${run}">
<path class="way" d="M${middleOf(1)} ${MIDDLE}H${middleOf(next ?? last)}"/>
${spare.map((place) => html`<circle class="spare" cx="${middleOf(place)}" cy="${MIDDLE}" r="2"/>`)}
${attempts.map((attempt) => dotOf(view, attempt, middleOf(attempt.number)))}
${next !== null && html`<circle class="next" cx="${middleOf(next)}" cy="${MIDDLE}" r="${RADIUS - 1}"/>`}
</svg>
<p>${last} of ${places}${next !== null && `, ${nextText(view, delivery)}`}</p></div>`;
}

function nextText({ session }: View, { next_attempt_at: next, in_flight, held }: Delivery): string {
  if (held) return "held";
  if (in_flight || next === null) return "the next is on its way";
  return `next ${clockText(Date.parse(next), session.timeZone, "date")}`;
}

/** What became of it is in the sign: ✓, ✕, or a bar for what nobody knows the end of. */
function dotOf({ session }: View, attempt: Attempt, x: number): Html {
  const { outcome, run, number, started_at, status_code, error_code } = attempt;
  const told = status_code ?? error_code ?? outcome;
  const text = `Attempt ${number}: ${told}, ${clockText(Date.parse(started_at), session.timeZone, "date")}`;
  const kind = outcome === "succeeded" ? "good" : outcome === "interrupted" ? "unknown" : "bad";
  return html`<a href="#a-${run}-${number}" class="${kind}"><title>${text}</title>
<path class="hit" d="M${x - STEP / 2} 0h${STEP}v${HEIGHT}h-${STEP}z"/>
<circle cx="${x}" cy="${MIDDLE}" r="${RADIUS}"/><path class="sign" d="M${x} ${MIDDLE}${SIGNS[kind]}"/></a>`;
}

/** From the dot's middle. */
const SIGNS = {
  good: "m-3.5 .2l2.5 2.6l4.5-5",
  bad: "m-3-3l6 6m0-6l-6 6",
  unknown: "m-3.5 0h7",
} as const;
