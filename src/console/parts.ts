import { randomUUID } from "node:crypto";
import type { DeliveryStatus } from "../base/model/statuses.ts";
import { Problem } from "../http/problems.ts";
import { type Html, html, type Part } from "./html.ts";
import type { Page, View } from "./screen.ts";

export function number(count: number): string {
  return count.toLocaleString("en");
}

/** `1 delivery`, `2,000 deliveries`. */
export function counted(count: number, one: string, many = `${one}s`): string {
  return `${number(count)} ${count === 1 ? one : many}`;
}

/** A symbol and a word: neither colour nor shape alone tells. */
export function sign(kind: string, symbol: string, word: string): Html {
  return html`<span class="status ${kind}"><span aria-hidden="true">${symbol}</span> ${word}</span>`;
}

export const DELIVERY_SIGNS: Readonly<Record<DeliveryStatus, Html>> = {
  pending: sign("pending", "○", "pending"),
  failed: sign("failed", "↻", "failing"),
  succeeded: sign("succeeded", "✓", "arrived"),
  abandoned: sign("abandoned", "✕", "abandoned"),
};

/** What the form that led here did. */
export function said(text: Part): Html {
  return html`<p class="said" role="status">${text}</p>`;
}

/** To the page after this one. */
export function older(href: string, name = "Older"): Html {
  return html`<nav class="pages" aria-label="Pages"><a rel="next" href="${href}">${name} →</a></nav>`;
}

/** Where the script says what is new; `href` shows it. Without this, rows come in as they come. */
export function newer(href: string): Html {
  return html`<p class="newer" hidden><a href="${href}"></a></p>`;
}

export type Column<Row> = {
  readonly name: string;
  /** Before the cell where a row is a box, in narrow windows. Default: the name; null: nothing. */
  readonly label?: string | null;
  readonly isNumber?: boolean;
  /** Beside the name. */
  readonly beside?: Part;
  readonly cell: (row: Row) => Part;
};

/** Rows under a line that says what they have in common; null: nothing. */
export type RowGroup<Row> = { readonly id: string; readonly heading: Part; readonly rows: readonly Row[] };

export type RowParts<Row> = {
  readonly idOf?: (row: Row) => string;
  /** Below a row, under all columns but the first. */
  readonly below?: (row: Row) => Part;
};

/** @param kind a class that says what is in it */
export function table<Row>(
  kind: string,
  columns: readonly Column<Row>[],
  groups: readonly RowGroup<Row>[],
  { idOf, below = () => null }: RowParts<Row> = {},
): Html {
  const headings = columns.map(
    ({ name, isNumber = false, beside = null }) =>
      html`<th scope="col"${isNumber && html` class="number"`}>${name}${beside}</th>`,
  );
  const cellOf = (row: Row, { name, label = name, isNumber = false, cell }: Column<Row>) =>
    html`<td${label !== null && html` data-label="${label}"`}${isNumber && html` class="number"`}>${cell(row)}</td>`;
  const belowOf = (text: Part) =>
    html`<tr class="why"><td></td><td colspan="${columns.length - 1}">${text}</td></tr>`;
  const rowOf = (row: Row) => {
    const [id, more] = [idOf?.(row), below(row)];
    return html`<tr${id !== undefined && html` id="${id}"`}>
${columns.map((column) => cellOf(row, column))}
</tr>${more && belowOf(more)}`;
  };
  return html`<table class="log ${kind}">
<thead><tr>${headings}</tr></thead>
${groups.map(
  ({ id, heading, rows }) => html`<tbody${id !== "" && html` id="${id}"`}>${
    heading && html`<tr class="group"><th colspan="${columns.length}" scope="rowgroup">${heading}</th></tr>`
  }
${rows.map(rowOf)}</tbody>`,
)}
</table>`;
}

/** Rows without groups. */
export function plain<Row>(rows: readonly Row[]): readonly RowGroup<Row>[] {
  return [{ id: "", heading: null, rows }];
}

/** A button that copies; shown where the script can. @param what it is, for who cannot see what it stands beside */
export function copyButton(text: string, what: string): Html {
  return html`<button type="button" class="copy" data-copy="${text}">Copy<span class="unseen"> ${what}</span></button>`;
}

/** One rectangle beside the other, none beyond `most`. */
export function stacked(
  parts: readonly { readonly kind: string; readonly width: number }[],
  most: number,
  height: number,
): readonly Html[] {
  let at = 0;
  return parts.map(({ kind, width: wanted }) => {
    const [x, width] = [at, Math.min(most - at, wanted)];
    at += width;
    return html`<rect class="${kind}" x="${x.toFixed(1)}" width="${width.toFixed(1)}" height="${height}"></rect>`;
  });
}

/** Names and what they are, in a box; false: not there. */
export function facts(entries: readonly (readonly [name: Part, value: Part] | false)[]): Html {
  const items = entries.map((entry) => entry && html`<div><dt>${entry[0]}</dt><dd>${entry[1]}</dd></div>`);
  return html`<dl class="facts">${items}</dl>`;
}

export function hidden(name: string, value: string | number): Html {
  return html`<input type="hidden" name="${name}" value="${value}">`;
}

/** What every form carries: sent twice, it has its effect once. */
export function keyField(): Html {
  return hidden("_key", randomUUID());
}

/** A form that is a button. */
export function buttonForm(action: string, name: string, kind: "" | "primary" | "quiet" = ""): Html {
  return html`<form method="post" action="${action}">${keyField()}
<button${kind !== "" && html` class="${kind}"`}>${name}</button></form>`;
}

/** @param names what is shown for values; a value without one is shown itself */
export function options(
  values: readonly string[],
  chosen: string,
  names: Readonly<Record<string, string>> = {},
) {
  return values.map((value) => {
    const isChosen = value === chosen && html` selected`;
    return html`<option value="${value}"${isChosen}>${names[value] ?? value}</option>`;
  });
}

/** @throws Problem 403 unless the session may; for pages whose only purpose is a form. */
export function refuseUnless({ may }: View, scope: string): void {
  if (!may(scope)) throw new Problem("access_denied");
}

/** What was asked for, or null where it is answered with this problem. */
export async function unless<Body>(code: string, asked: Promise<Body>): Promise<Body | null> {
  try {
    return await asked;
  } catch (error) {
    if (error instanceof Problem && error.code === code) return null;
    throw error;
  }
}

/** Said in words of one's own where what was asked is refused with such a problem. @throws any other */
export function refusalOf(error: unknown, words: Readonly<Record<string, string>>): string {
  const text = error instanceof Problem ? words[error.code] : undefined;
  if (text === undefined) throw error;
  return text;
}

export function upToEndpoint({ base }: View): NonNullable<Page["up"]> {
  return { href: `${base}/endpoint`, name: "Endpoint" };
}
