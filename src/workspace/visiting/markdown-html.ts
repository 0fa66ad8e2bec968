// Runs in a thread of its own; see rendering.ts.
import MarkdownIt from "markdown-it";
import sanitizeHtml from "sanitize-html";

/**
 * Not marked, which shows our own texts: some 256 KiB from a hostile author keep it busy for minutes, and this one for
 * seconds.
 */
const markdown = new MarkdownIt("default", { html: false, linkify: true });
/**
 * In a longer paragraph mail addresses do not become links by themselves: each is looked for in all that follows it
 * there, which is quadratic. What begins with `https://` does, however long it is.
 */
const PARAGRAPH_CHARS_MAX = 10_000;
const hasAddress = markdown.linkify.test.bind(markdown.linkify);
markdown.linkify.test = (text) => text.length <= PARAGRAPH_CHARS_MAX && hasAddress(text);
// Nothing is loaded from anywhere: of an image its description is left.
markdown.renderer.rules.image = (tokens, at, options, env, self) =>
  markdown.utils.escapeHtml(self.renderInlineAsText(tokens[at]?.children ?? [], options, env));

/** Where a link may lead: elsewhere. There is nothing beside a page. */
const LEADING = /^(?:https?:\/\/|mailto:)/i;
const REL = "nofollow noopener noreferrer";

/** What the renderer writes, and nothing else, should it ever write more. The page's title is its one h1. */
const SANITIZED: sanitizeHtml.IOptions = {
  allowedTags: [
    ...["a", "blockquote", "br", "code", "del", "em", "hr", "li", "ol", "p", "pre", "s", "strong", "ul"],
    ...["h1", "h2", "h3", "h4", "h5", "h6", "table", "tbody", "td", "th", "thead", "tr"],
  ],
  allowedAttributes: { a: ["href", "rel"], ol: ["start"], pre: ["tabindex"] },
  allowedSchemes: ["http", "https", "mailto"],
  transformTags: {
    a: (tagName, { href = "" }) => ({ tagName, attribs: LEADING.test(href) ? { href, rel: REL } : {} }),
    // What scrolls can be reached by the keyboard.
    pre: sanitizeHtml.simpleTransform("pre", { tabindex: "0" }),
    ...Object.fromEntries([5, 4, 3, 2, 1].map((level) => [`h${level}`, `h${level + 1}`])),
  },
};

/** Eight times what is written. One address that 80,000 references repeat comes to hundreds of megabytes. */
export const HTML_CHARS_MAX = 2_097_152;

/**
 * HTML that does nothing but show the text.
 * @throws RangeError when it becomes too large
 */
export function renderMarkdown(text: string): string {
  const html = markdown.render(text);
  if (html.length > HTML_CHARS_MAX) throw new RangeError(`More than ${HTML_CHARS_MAX} characters of HTML.`);
  return sanitizeHtml(html, SANITIZED);
}
