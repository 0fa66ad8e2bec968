import { type Html, html } from "./html.ts";

const parts = new Map<string, Intl.DateTimeFormat>();

/** A moment as a viewer reads it, `22 Nov 2026, 14:03:05`, with the exact one at hand. @param iso ISO 8601 */
export function momentOf(iso: string, timeZone: string | null): Html {
  return html`<time datetime="${iso}" title="${iso}">${momentText(iso, timeZone)}</time>`;
}

function momentText(iso: string, timeZone: string | null): string {
  const zone = timeZone ?? "UTC";
  const format =
    parts.get(zone) ??
    new Intl.DateTimeFormat("en-GB", {
      day: "numeric",
      month: "short",
      year: "numeric",
      hour: "2-digit",
      minute: "2-digit",
      second: "2-digit",
      timeZone: zone,
    });
  if (parts.size < 500) parts.set(zone, format);
  return format.format(new Date(iso));
}

/** `840 ms`, `1.2 s`. */
export function durationText(ms: number): string {
  return ms < 1_000 ? `${Math.round(ms)} ms` : `${(ms / 1_000).toFixed(1)} s`;
}
