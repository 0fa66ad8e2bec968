import type { Figures } from "./scenario.ts";

/** `name: lost 0, duplicated 2, …` */
export function inWords(name: string, figures: Figures): string {
  return `${name}: ${Object.entries(figures)
    .map(([what, value]) => `${what} ${value}`)
    .join(", ")}`;
}
