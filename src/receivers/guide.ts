import { readFileSync } from "node:fs";
import { ABOUT_PATH } from "../delivery/webhook.ts";
import { type DocumentPage, escapeHtml } from "../http/html-page.ts";

const SOURCE = new URL("../signing/README.md", import.meta.url);

/**
 * The README of the receiver library as a page of this service: one text for who has a package and for who has none,
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

const ABOUT = `# About these webhooks

Somebody has asked this service to tell a server of yours when the analysis of a document has finished. It sends an
HTTPS POST with a signed JSON body for each, and tries again for a day where that fails. Until your server has answered
one with a 2xx, each sender sends ten a minute at most to each of its names, and all together sixty to its address. If
they are all challenges (\`webhook.challenge\`), nothing else is sent unless your server answers one as the guide says.

**You want them:** the [guide for receivers](guide) says how to verify their signatures.

**You do not want them:** respond with status 410 and the header \`webhook-refuse: 1\`. From then on this sender's
webhooks are no longer sent to that URL. Others who use this service, and other URLs of yours, are not affected.
`;

/** For whoever finds our requests in a log. */
export function aboutWebhooks(): DocumentPage {
  return { path: ABOUT_PATH, title: "About these webhooks", html: () => htmlOf(ABOUT), markdown: ABOUT };
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
  return withLabels(markdown.render(text));
}

/** Each cell of a table with its column's heading, which narrow screens show in place of the first row. */
function withLabels(html: string): string {
  return html.replaceAll(/<table>[\s\S]*?<\/table>/g, (table) => {
    const headings = [...table.matchAll(/<th>(.*?)<\/th>/g)].map(([, text = ""]) =>
      text.replaceAll(/<.*?>/g, ""),
    );
    return table.replaceAll(/<tr>[\s\S]*?<\/tr>/g, (row) => {
      let column = 0;
      return row.replaceAll("<td>", () => `<td data-label="${headings[column++]}">`);
    });
  });
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
