import { readFileSync } from "node:fs";
import { type DocumentPage, escapeHtml } from "../http/html-page.ts";

const SOURCE = new URL("../signing/README.md", import.meta.url);

/**
 * The README of the receiver library as a page of this service: one text for who has the package and for who has not,
 * whose code is that of test/recipes and test/signing/examples.
 */
export function receiversGuide(): DocumentPage {
  // Comments name the file that a piece of code stands in.
  const markdown = readFileSync(SOURCE, "utf8").replaceAll(/^<!-- .* -->\n/gm, "");
  return {
    path: "/guide",
    title: "Guide for receivers",
    html: async () => withContents(await htmlOf(markdown)),
    markdown,
  };
}

async function htmlOf(text: string): Promise<string> {
  // Imported here: most processes are never asked for the guide.
  const { default: MarkdownIt } = await import("markdown-it");
  const markdown = new MarkdownIt({ html: false });
  const { rules } = markdown.renderer;
  rules.heading_open = (tokens, at) => `<${tokens[at]!.tag} id="${anchorOf(tokens[at + 1]!.content)}">`;
  // What scrolls can be reached by the keyboard.
  rules.fence = (tokens, at) =>
    `<pre tabindex="0"><code>${escapeHtml(tokens[at]!.content.trimEnd())}</code></pre>\n`;
  return markdown.render(text);
}

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
