import type { z } from "zod";
import type { Delivery } from "../operations/delivery-schema.ts";
import { type Html, html } from "./html.ts";

type Status = z.output<typeof Delivery>["status"];

/** A symbol and a word: neither colour nor shape alone tells. */
const SHOWN: Readonly<Record<Status, { readonly symbol: string; readonly word: string }>> = {
  pending: { symbol: "○", word: "pending" },
  failed: { symbol: "↻", word: "failing" },
  succeeded: { symbol: "✓", word: "arrived" },
  abandoned: { symbol: "✕", word: "abandoned" },
};

export function statusOf(status: Status): Html {
  const { symbol, word } = SHOWN[status];
  return html`<span class="status ${status}"><span aria-hidden="true">${symbol}</span> ${word}</span>`;
}
