import { createScanner, type JSONScanner } from "jsonc-parser";
import { JSON_LEVELS_MAX } from "../api/limits.ts";

/** What `POST /v1/analyses` was sent. */
export type AnalysisBody = {
  /** The text of the member `analysis` as sent; its UTF-8 is what was received, byte for byte. */
  readonly analysis: string;
  /** The same, parsed: for inspection only, never for storing. */
  readonly parsed: unknown;
  /** The member `webhook_url`, of any type; undefined if missing. */
  readonly webhookUrl: unknown;
};

/** The body is not valid for the operation. */
export class AnalysisBodyError extends Error {
  override readonly name = "AnalysisBodyError";
  /** Where: `body`, `body.analysis`, … */
  readonly path: string;
  /** Whether the body is valid and only the analysis is not. */
  readonly isAboutAnalysis: boolean;

  constructor(path: string, message: string, isAboutAnalysis = false) {
    super(message);
    this.path = path;
    this.isAboutAnalysis = isAboutAnalysis;
  }
}

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/**
 * Cuts the analysis out of the body by position, because re-serializing would change it: numbers beyond 2^53,
 * duplicate members, whitespace, escapes.
 *
 * @throws AnalysisBodyError
 */
export function readAnalysisBody(bytes: Uint8Array): AnalysisBody {
  const text = decode(bytes);
  // The scanner below is lenient; this is not. What passes has unambiguous tokens.
  const value = parse(text);
  if (!text.trimStart().startsWith("{")) {
    throw new AnalysisBodyError("body", 'Must be an object with a field "analysis".');
  }
  const places = new Map<string, MemberPlace>();
  for (const place of memberPlaces(text)) {
    const path = `body.${place.name}`;
    if (!KNOWN.has(place.name)) {
      throw new AnalysisBodyError(path.slice(0, 100), "Unknown field.");
    }
    if (places.has(place.name)) throw new AnalysisBodyError(path, "Duplicate field.");
    places.set(place.name, place);
  }
  const analysis = places.get("analysis");
  if (analysis === undefined) throw new AnalysisBodyError("body.analysis", "Missing.");
  if (analysis.levels > JSON_LEVELS_MAX) {
    const message = `Nested more than ${JSON_LEVELS_MAX} levels deep.`;
    throw new AnalysisBodyError("body.analysis", message, true);
  }
  const members = value as { readonly analysis: unknown; readonly webhook_url?: unknown };
  return {
    analysis: text.slice(analysis.start, analysis.end),
    parsed: members.analysis,
    webhookUrl: members.webhook_url,
  };
}

const KNOWN: ReadonlySet<string> = new Set(["analysis", "webhook_url"]);

function decode(bytes: Uint8Array): string {
  try {
    return utf8.decode(bytes);
  } catch {
    throw new AnalysisBodyError("body", "The body is not valid UTF-8.");
  }
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    // The engine's message quotes its input.
    throw new AnalysisBodyError("body", "The body is not valid JSON.");
  }
}

type MemberPlace = {
  readonly name: string;
  /** The value's first character and the one after its last. */
  readonly start: number;
  readonly end: number;
  /** Nesting depth of the value; 0: neither object nor array. */
  readonly levels: number;
};

/** Positions of the values of the outermost object's members. `text` is known to be a JSON object. */
function* memberPlaces(text: string): Generator<MemberPlace> {
  const scanner = createScanner(text, true);
  // Tokens are told apart by their first character: the library's token kinds are a const enum, gone at run time.
  const next = (): string => {
    scanner.scan();
    return text.charAt(scanner.getTokenOffset());
  };
  next();
  // Anything else is the closing brace of an empty object.
  while (next() === '"') {
    const name = scanner.getTokenValue();
    next();
    yield { name, ...passValue(scanner, next) };
    if (next() !== ",") return;
  }
}

function passValue(scanner: JSONScanner, next: () => string): Omit<MemberPlace, "name"> {
  let depth = 0;
  let levels = 0;
  let start: number | null = null;
  do {
    const first = next();
    start ??= scanner.getTokenOffset();
    if (first === "{" || first === "[") levels = Math.max(levels, ++depth);
    else if (first === "}" || first === "]") depth--;
  } while (depth > 0);
  return { start, end: scanner.getTokenOffset() + scanner.getTokenLength(), levels };
}
