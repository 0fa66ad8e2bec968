import { Readable } from "node:stream";
import { BODY_SLICE_BYTES } from "./limits.ts";

/** The same bytes for everybody who reads them: slices are views, and only one at a time is on its way. */
export function inSlices(body: Buffer): Readable {
  let at = 0;
  return new Readable({
    highWaterMark: BODY_SLICE_BYTES,
    read() {
      const slice = body.subarray(at, at + BODY_SLICE_BYTES);
      at += slice.length;
      this.push(slice.length === 0 ? null : slice);
    },
  });
}
