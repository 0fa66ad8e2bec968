import { type Variable, variables } from "../../src/base/config/variables.ts";

/** A row of Markdown for each variable, which docs/configuration.md has in its groups: `npm run docs`. */
export function configurationTable(): string {
  const rows = Object.entries<Variable<unknown>>(variables).map(([name, { fallback, meaning }]) => {
    const shownDefault = fallback === null ? "" : `\`${fallback}\``;
    return `| \`${name}\` | ${shownDefault} | ${meaning.replaceAll("|", "\\|")} |`;
  });
  return ["| variable | default | meaning |", "|---|---|---|", ...rows].join("\n");
}
