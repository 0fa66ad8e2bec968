/** The first and the last byte, counted from 0. */
export type ByteRange = { readonly first: number; readonly last: number };

/** `whole`: no range that we serve. `unsatisfiable`: beyond the end, a 416. */
export type ChosenRange = ByteRange | "whole" | "unsatisfiable";

const ONE_RANGE = /^bytes[ \t]*=[ \t]*(?:(\d+)-(\d*)|-(\d+))[ \t]*$/i;

/**
 * The part of `bytes` that a Range header asks for (RFC 9110, 14). Several ranges, other units and mistakes are
 * ignored, as the RFC allows or demands: the answer is the whole.
 *
 * Losing option: range-parser, which has 416 for `bytes=-500` of a shorter content, and for `bytes=5-2`.
 */
export function chooseRange(header: string, bytes: number): ChosenRange {
  const [, from, to, suffix] = ONE_RANGE.exec(header) ?? [];
  if (suffix !== undefined) {
    const wanted = Math.min(Number(suffix), bytes);
    return wanted === 0 ? "unsatisfiable" : { first: bytes - wanted, last: bytes - 1 };
  }
  if (from === undefined) return "whole";
  const first = Number(from);
  const last = to === "" || to === undefined ? Number.POSITIVE_INFINITY : Number(to);
  if (last < first) return "whole";
  return first >= bytes ? "unsatisfiable" : { first, last: Math.min(last, bytes - 1) };
}
