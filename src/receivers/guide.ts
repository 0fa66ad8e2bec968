import { readFileSync } from "node:fs";
import { Marked, type Tokens } from "marked";
import { type DocumentPage, escapeHtml } from "../http/html-page.ts";

const SOURCE = new URL("../signing/README.md", import.meta.url);

/**
 * The README of the receiver library as a page of this service: one text for who has the package and for who has not,
 * whose code is that of test/recipes and test/signing/examples.
 */
export function receiversGuide(): DocumentPage {
  // Comments name the file that a piece of code stands in.
  const markdown = readFileSync(SOURCE, "utf8").replaceAll(/^<!-- .* -->\n/gm, "");
  const html = () => withContents(new Marked({ renderer }).parse(markdown, { async: false }));
  return { path: "/guide", title: "Guide for receivers", html, markdown };
}

const renderer = {
  heading({ depth, text }: Tokens.Heading): string {
    return `<h${depth} id="${anchorOf(text)}">${escapeHtml(text)}</h${depth}>\n`;
  },
  // What scrolls can be reached by the keyboard.
  code({ text }: Tokens.Code): string {
    return `<pre tabindex="0"><code>${escapeHtml(text)}</code></pre>\n`;
  },
  html({ text }: Tokens.HTML | Tokens.Tag): string {
    return escapeHtml(text);
  },
};

/** `### node:http` → `node-http`. */
function anchorOf(heading: string): string {
  return heading
    .toLowerCase()
    .replaceAll(/[^a-z0-9]+/g, "-")
    .replaceAll(/^-|-$/g, "");
}

/** Links to all headings but the first, below it; those of the third level stand behind their section's. */
function withContents(html: string): string {
  const headings = [...html.matchAll(/<h([23]) id="([^"]*)">(.*?)<\/h\1>/g)];
  const anchors = headings.map(([, , anchor]) => anchor);
  if (new Set(anchors).size < anchors.length)
    throw new Error(`Two headings of ${SOURCE.pathname} are alike.`);
  const links = headings.map(([, level, anchor, text]) => {
    const link = `<a href="#${anchor}">${text}</a>`;
    return level === "2" ? `</li>\n<li>${link}` : ` · ${link}`;
  });
  const contents = `<nav aria-label="Contents"><ul>${links.join("").replace("</li>", "")}</li></ul></nav>`;
  return html.replace("</h1>\n", `</h1>\n${contents}\n`);
}
