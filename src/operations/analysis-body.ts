import { createScanner, type JSONScanner } from "jsonc-parser";
import { JSON_LEVELS_MAX } from "../api/limits.ts";

/** What `POST /v1/analyses` was sent. */
export type AnalysisBody = {
  /** The characters of the member `analysis` as they were sent; their UTF-8 is what came, byte for byte. */
  readonly analysis: string;
  /** The same, parsed: only for looking at, never for storing. */
  readonly parsed: unknown;
  /** The member `webhook_url`, whatever it is; undefined where there is none. */
  readonly webhookUrl: unknown;
};

/** The body is not what the operation takes. */
export class AnalysisBodyError extends Error {
  override readonly name = "AnalysisBodyError";
  /** Where: `body`, `body.analysis`, … */
  readonly path: string;
  /** The body is fine and the analysis in it is not. */
  readonly isAboutAnalysis: boolean;

  constructor(path: string, message: string, isAboutAnalysis = false) {
    super(message);
    this.path = path;
    this.isAboutAnalysis = isAboutAnalysis;
  }
}

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/**
 * Cuts the analysis out of the body by its place, because parsing and writing it again would change it: numbers beyond
 * 2^53, members of the same name, spaces, escapes.
 *
 * @throws AnalysisBodyError
 */
export function readAnalysisBody(bytes: Uint8Array): AnalysisBody {
  const text = decode(bytes);
  // The scanner below forgives much; this does not. What passes here has tokens that nobody can read differently.
  const value = parse(text);
  if (!text.trimStart().startsWith("{")) {
    throw new AnalysisBodyError("body", 'Must be an object with a member "analysis".');
  }
  const places = new Map<string, MemberPlace>();
  for (const place of memberPlaces(text)) {
    const path = `body.${place.name}`;
    if (!KNOWN.has(place.name)) {
      throw new AnalysisBodyError(path.slice(0, 100), "Not known here; check the spelling.");
    }
    if (places.has(place.name)) throw new AnalysisBodyError(path, "Stands there twice.");
    places.set(place.name, place);
  }
  const analysis = places.get("analysis");
  if (analysis === undefined) throw new AnalysisBodyError("body.analysis", "Missing.");
  if (analysis.levels > JSON_LEVELS_MAX) {
    const message = `It is nested more than ${JSON_LEVELS_MAX} levels deep.`;
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
    throw new AnalysisBodyError("body", "The body is not UTF-8.");
  }
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    // The engine's message quotes what it read.
    throw new AnalysisBodyError("body", "The body is not JSON.");
  }
}

type MemberPlace = {
  readonly name: string;
  /** The value's first character and the one after its last. */
  readonly start: number;
  readonly end: number;
  /** Objects and arrays within each other in the value; 0: it is neither. */
  readonly levels: number;
};

/** Where the values of the outermost object's members stand. `text` is known to be JSON, and to be an object. */
function* memberPlaces(text: string): Generator<MemberPlace> {
  const scanner = createScanner(text, true);
  // A token is told by its first character: the library's names for the kinds do not outlive its compilation.
  const next = (): string => {
    scanner.scan();
    return text.charAt(scanner.getTokenOffset());
  };
  next();
  // Whatever else comes first is the closing brace of an empty object.
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
