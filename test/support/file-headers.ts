import { createHash } from "node:crypto";

/** The headers of an upload, but for its length, which clients know by themselves. */
export function fileHeaders(bytes: Uint8Array): { "content-type": string; "content-digest": string } {
  const digest = createHash("sha256").update(bytes).digest("base64");
  return { "content-type": "application/octet-stream", "content-digest": `sha-256=:${digest}:` };
}
