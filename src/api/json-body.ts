import { visit } from "jsonc-parser";

import { invalidFields } from "./field-errors.ts";
import { FIELD_ERRORS_MAX, JSON_LEVELS_MAX } from "./limits.ts";
import { invalidRequest } from "./problems.ts";

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** Parses a JSON body. Throws a 400 that says why it is invalid. */
export function parseJsonBody(bytes: Uint8Array): unknown {
  const text = decodeJsonText(bytes);
  if (isDeeperThan(text, JSON_LEVELS_MAX)) {
    throw invalidRequest("body", `The body is nested deeper than ${JSON_LEVELS_MAX} levels.`);
  }
  const value = parseJsonText(text);
  const repeated = findRepeatedMembers(text, FIELD_ERRORS_MAX);
  if (repeated.length > 0) {
    throw invalidFields(repeated.map((path) => ({ path: `body.${path}`, message: "Duplicate field." })));
  }
  return value;
}

function decodeJsonText(bytes: Uint8Array): string {
  try {
    return utf8.decode(bytes);
  } catch {
    throw invalidRequest("body", "The body is not valid UTF-8.");
  }
}

function parseJsonText(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    // The engine's message quotes its input, and a body may hold a secret.
    throw invalidRequest("body", text.trim() === "" ? "The body is empty." : "The body is not valid JSON.");
  }
}

/** Counts brackets outside strings; what it returns for invalid JSON does not matter, the parser rejects that. */
function isDeeperThan(text: string, levelsMax: number): boolean {
  let levels = 0;
  let isInString = false;
  for (let index = 0; index < text.length; index++) {
    const char = text.charCodeAt(index);
    if (isInString) {
      if (char === 0x5c) index++;
      else if (char === 0x22) isInString = false;
    } else if (char === 0x22) isInString = true;
    else if (char === 0x5b || char === 0x7b) {
      if (++levels > levelsMax) return true;
    } else if (char === 0x5d || char === 0x7d) levels--;
  }
  return false;
}

/**
 * Paths of duplicate members, each once, at most `placesMax`: JSON.parse silently takes the last one. `text` is
 * valid JSON; names are compared unescaped.
 */
function findRepeatedMembers(text: string, placesMax: number): readonly string[] {
  const places = new Set<string>();
  const openObjects: Set<string>[] = [];
  visit(text, {
    onObjectBegin: () => {
      openObjects.push(new Set());
    },
    onObjectProperty: (name, _offset, _length, _line, _character, pathOfObject) => {
      const names = openObjects.at(-1);
      const isRepeated = names?.has(name) ?? false;
      if (isRepeated && places.size < placesMax) places.add([...pathOfObject(), name].join("."));
      names?.add(name);
    },
    onObjectEnd: () => {
      openObjects.pop();
    },
  });
  return [...places];
}
