import type { Deprecation } from "./declarations.ts";

/** Deprecation (RFC 9745: a structured date) and Sunset (RFC 8594: an HTTP date). */
export function lifecycleHeaders(deprecated: Deprecation | null): Readonly<Record<string, string>> {
  if (!deprecated) return {};
  const deprecation = `@${Math.floor(new Date(deprecated.at).getTime() / 1000)}`;
  if (deprecated.sunsetAt === null) return { deprecation };
  return { deprecation, sunset: new Date(deprecated.sunsetAt).toUTCString() };
}
