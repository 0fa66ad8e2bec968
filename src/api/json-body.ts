import { visit } from "jsonc-parser";

import { invalidFields } from "./field-errors.ts";
import { FIELD_ERRORS_MAX, JSON_LEVELS_MAX } from "./limits.ts";
import { invalidRequest } from "./problems.ts";

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** The value that the body is the JSON text of. Throws the 400 that says why it is none. */
export function parseJsonBody(bytes: Uint8Array): unknown {
  const text = decodeJsonText(bytes);
  if (isDeeperThan(text, JSON_LEVELS_MAX)) {
    throw invalidRequest("body", `The body is nested deeper than ${JSON_LEVELS_MAX} levels.`);
  }
  const value = parseJsonText(text);
  const repeated = findRepeatedMembers(text, FIELD_ERRORS_MAX);
  if (repeated.length > 0) {
    throw invalidFields(repeated.map((path) => ({ path: `body.${path}`, message: "Stands there twice." })));
  }
  return value;
}

function decodeJsonText(bytes: Uint8Array): string {
  try {
    return utf8.decode(bytes);
  } catch {
    throw invalidRequest("body", "The body is not UTF-8.");
  }
}

function parseJsonText(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    // The engine's own message quotes what it read, and a body may hold a secret.
    throw invalidRequest("body", text.trim() === "" ? "The body is empty." : "The body is not JSON.");
  }
}

/** Counts brackets outside of strings; a text that is not JSON gets some answer and is refused by the parser. */
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
 * Where members stand that their object has more than once, each named once, at most `placesMax`. JSON.parse takes the
 * last of them without a word. `text` is known to be JSON; names are compared as what their escapes mean.
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
