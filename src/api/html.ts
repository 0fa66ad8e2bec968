import { hash } from "node:crypto";

/** Text that is safe between tags and between double quotes. */
export function escapeHtml(text: string): string {
  return text.replace(/[&<>"']/g, (char) => `&#${char.charCodeAt(0)};`);
}

/** The same, with what stands between backticks set as code. */
export function proseHtml(text: string): string {
  return escapeHtml(text).replace(/`([^`]+)`/g, "<code>$1</code>");
}

const STYLE = `
:root { color-scheme: light dark; }
body { font: 1rem/1.6 system-ui, sans-serif; max-width: 60rem; margin: 3rem auto; padding: 0 1.5rem; }
table { border-collapse: collapse; }
th, td { text-align: left; vertical-align: top; padding: .4rem 1rem .4rem 0; border-bottom: 1px solid #8884; }
code { font-family: ui-monospace, monospace; }
`;

/** The one policy of our own pages: their one style, and nothing from anywhere. */
export const STATIC_PAGE_POLICY =
  `default-src 'none'; style-src 'sha256-${hash("sha256", STYLE, "base64")}'; ` +
  "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/** A whole page around `body`, which is HTML already. */
export function htmlPage(title: string, body: string): string {
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${escapeHtml(title)}</title>
<style>${STYLE}</style>
</head>
<body>
${body}
</body>
</html>
`;
}
