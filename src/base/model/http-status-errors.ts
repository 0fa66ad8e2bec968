import type { Explanation } from "./statuses.ts";

/** The error code of a non-2xx response: `status_` and the three digits. */
export type StatusErrorCode = `status_${number}`;

export const STATUS_ERROR_CODE = /^status_([3-9]\d\d)$/;

/** `status`: 300 to 999. */
export function statusErrorCode(status: number): StatusErrorCode {
  if (!Number.isInteger(status) || status < 300 || status > 999) {
    throw new RangeError(`no error code for HTTP status ${status}`);
  }
  return `status_${status}`;
}

/** The status in a `status_NNN` code; null for any other code. */
export function statusOfErrorCode(code: string): number | null {
  const digits = STATUS_ERROR_CODE.exec(code)?.[1];
  return digits === undefined ? null : Number(digits);
}

const SERVER_ERROR: Explanation = {
  message: ": it failed while handling the event.",
  remedy: "Look for the error in the receiver's logs at the time of this attempt.",
};
const REDIRECT: Explanation = {
  message: ", a redirect. Redirects are not followed, so nothing was sent to the other address.",
  remedy: "Use the final URL as the webhook URL; the Location header of the response shows it.",
  concernsUrl: true,
};

/** The messages go on after "The receiver returned 400". */
const KNOWN: Readonly<Record<number, Explanation>> = {
  ...Object.fromEntries([301, 302, 303, 307, 308].map((status) => [status, REDIRECT])),
  400: {
    message: ": it rejected the request, as receivers do when the signature does not match.",
    remedy:
      "Check first that it has the current signing secret (the whole text, whsec_ included, not decoded), then that " +
      "its clock is right and that it verifies the raw body. The response text may say what is wrong.",
    concernsSecret: true,
  },
  401: {
    message: ": the signature check failed, or the path requires a login.",
    remedy:
      "Check first that the receiver has the current signing secret (the whole text, whsec_ included, not decoded). " +
      "If the path requires a login, exempt it and verify the signature instead.",
    concernsSecret: true,
  },
  403: {
    message: ": it denied access.",
    remedy:
      "Exempt the webhook's path from bot protection, CSRF checks and firewall rules; verify the signature instead.",
  },
  404: {
    message: ": there is nothing at that path.",
    remedy: "Compare the path of the webhook URL with the receiver's route.",
    concernsUrl: true,
  },
  405: {
    message: ": it does not accept POST at that path.",
    remedy: "Accept POST on that route, or correct the path of the webhook URL.",
    concernsUrl: true,
  },
  408: {
    message: ": it timed out waiting for the request.",
    remedy: "Check the timeouts of the proxy or load balancer in front of the receiver.",
  },
  410: {
    message: ": the path is permanently gone.",
    remedy: "Change the webhook URL to the one now in use.",
    concernsUrl: true,
  },
  413: {
    message: ": the event is larger than it accepts.",
    remedy: "Raise the body size limit of the receiver and of any proxy in front of it.",
  },
  415: {
    message: ": it does not accept JSON at that path.",
    remedy: "Accept the content type application/json on that route.",
  },
  429: {
    message: ": it is getting more requests than it allows.",
    remedy: "Raise its rate limit for webhooks. A Retry-After header in the response makes us wait longer.",
  },
  500: SERVER_ERROR,
  502: {
    message: ": its proxy got no valid response from the application behind it.",
    remedy: "Check that the application behind the proxy is running.",
  },
  503: {
    message: ": it is currently unavailable.",
    remedy: "Check that the application is running, and neither overloaded nor under maintenance.",
  },
  504: {
    message: ": its proxy timed out waiting for the application behind it.",
    remedy: "Return a 2xx as soon as the event is stored, and process it afterwards.",
  },
};

/** Those that have an explanation of their own. */
export const EXPLAINED_STATUSES: readonly number[] = Object.keys(KNOWN).map(Number);

/** `status`: 300 to 999. */
export function explainStatus(status: number): Explanation {
  const { message, ...rest } = KNOWN[status] ?? explainClass(status);
  return { message: `The receiver returned ${status}${message}`, ...rest };
}

const RETURN_2XX = "Return a 2xx as soon as the event is stored.";

function explainClass(status: number): Explanation {
  if (status < 400) return { message: ", which is not a success status.", remedy: RETURN_2XX };
  if (status < 500) {
    const remedy = "Look for the reason in the response text and in the receiver's logs.";
    return { message: ": it rejected the request.", remedy };
  }
  if (status < 600) return SERVER_ERROR;
  const remedy = `${RETURN_2XX} Some bot protections return statuses of their own.`;
  return { message: ", which is not a standard HTTP status.", remedy };
}
