import { escapeHtml } from "../http/html-page.ts";

/** HTML that is safe to send: written here, or escaped. */
export class Html {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }

  toString(): never {
    throw new TypeError("HTML is put into a template, never into a string.");
  }
}

/** What a template takes: strings and numbers are escaped, lists are joined, null and false are nothing. */
export type Part = Html | string | number | null | false | readonly Part[];

/** html`<p>${text}</p>`: the only way to make HTML, so that nothing gets into a page unescaped. */
export function html(texts: TemplateStringsArray, ...parts: readonly Part[]): Html {
  let text = texts[0] ?? "";
  for (const [index, part] of parts.entries()) text += rendered(part) + (texts[index + 1] ?? "");
  return new Html(text);
}

function rendered(part: Part): string {
  if (part instanceof Html) return part.text;
  if (part === null || part === false) return "";
  if (typeof part === "object") return part.map(rendered).join("");
  return escapeText(String(part));
}

/** Safe between tags and between quotes. Invisible characters that turn text around are shown as what they are. */
function escapeText(text: string): string {
  return escapeHtml(text).replace(/[\u202a-\u202e\u2066-\u2069\u200e\u200f]/g, "\ufffd");
}
