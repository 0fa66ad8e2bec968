import { MIMEType } from "node:util";

/** Some types are longer than anybody uses, and clients get them in a header. */
const SENDABLE = /^[\x20-\x7e]{1,255}$/;

/** A content type as it is compared and sent: `text/markdown;charset=UTF-8`. Null: it is no media type. */
export function tidyMediaType(text: string): string | null {
  if (!SENDABLE.test(text)) return null;
  try {
    const tidied = new MIMEType(text).toString();
    return SENDABLE.test(tidied) ? tidied : null;
  } catch {
    return null;
  }
}
