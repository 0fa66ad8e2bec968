import { CONNECTING_ERRORS } from "./connect-errors.ts";
import { END_REASON_EXPLANATIONS } from "./end-reasons.ts";
import type { Entry } from "./explanation.ts";
import { OUR_ERRORS } from "./internal-errors.ts";
import { ANSWERING_ERRORS } from "./response-errors.ts";
import { TLS_ERRORS } from "./tls-errors.ts";
import { URL_REFUSALS } from "./url-refusals.ts";

/**
 * Every error code that an attempt or an ended delivery can carry, but for the `status_NNN` family, which
 * `status.ts` computes. Codes are API: they are stored, filtered by and alerted on, so none is ever renamed.
 */
export const CATALOGUE = {
  // First, because `interrupted` is also an attempt's code, and that explanation is the one for attempts.
  ...END_REASON_EXPLANATIONS,
  ...URL_REFUSALS,
  ...CONNECTING_ERRORS,
  ...TLS_ERRORS,
  ...ANSWERING_ERRORS,
  ...OUR_ERRORS,
} as const satisfies Record<string, Entry>;
