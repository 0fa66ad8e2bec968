import { JSON_LEVELS_MAX } from "./limits.ts";

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** The value that `bytes` are the JSON text of. Throws `SyntaxError` with a message fit for the caller. */
export function parseJsonBytes(bytes: Uint8Array): unknown {
  const text = decodeJsonText(bytes);
  if (isDeeperThan(text, JSON_LEVELS_MAX)) {
    throw new SyntaxError(`The body is nested deeper than ${JSON_LEVELS_MAX} levels.`);
  }
  try {
    return JSON.parse(text);
  } catch {
    // The engine's own message quotes what it read, and a body may hold a secret.
    throw new SyntaxError(text.trim() === "" ? "The body is empty." : "The body is not JSON.");
  }
}

function decodeJsonText(bytes: Uint8Array): string {
  try {
    return utf8.decode(bytes);
  } catch {
    throw new SyntaxError("The body is not UTF-8.");
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
