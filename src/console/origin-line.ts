import type { AnalysisOrigin, OriginStep } from "../model/analysis-origin.ts";
import { type Html, html } from "./html.ts";

/** From what was read to the webhook, in one line. */
export function originLine({ name, runId, steps }: AnalysisOrigin): Html {
  return html`<nav class="origin" aria-label="Where it comes from"><ol>
<li><span>Workflow</span> <strong>${name}</strong> <code title="Run ${runId}">${runId.slice(-8)}</code></li>
${steps.map(step)}
<li><span>This webhook</span></li>
</ol></nav>`;
}

function step({ name, hasFailed, itemCount }: OriginStep): Html {
  const count = itemCount === 1 ? "1 item" : `${itemCount.toLocaleString("en")} items`;
  return html`<li class="${hasFailed ? "bad" : "good"}">${name} <span>${hasFailed ? "failed" : count}</span></li>`;
}
