import type { Explanation } from "./explanation.ts";

/** The error code of an answer that is not 2xx: `status_` and the three digits. */
export type StatusErrorCode = `status_${number}`;

const STATUS_ERROR_CODE = /^status_([3-9]\d\d)$/;

/** `status`: 300 to 999. */
export function statusErrorCode(status: number): StatusErrorCode {
  if (!Number.isInteger(status) || status < 300 || status > 999) {
    throw new RangeError(`no error code for HTTP status ${status}`);
  }
  return `status_${status}`;
}

/** The status that a `status_NNN` code stands for; null if `code` is no such code. */
export function statusOfErrorCode(code: string): number | null {
  const digits = STATUS_ERROR_CODE.exec(code)?.[1];
  return digits === undefined ? null : Number(digits);
}

const KNOWN: Readonly<Record<number, Explanation>> = {
  400: {
    message: "The receiver answered 400: it did not understand the request.",
    remedy: "Check that it reads the raw JSON body, and look at the answer's text for what it missed.",
  },
  401: {
    message: "The receiver answered 401: it wants a login that webhooks do not have.",
    remedy:
      "Exempt the webhook's path from the login, and verify the signature instead. " +
      "If it is the signature check that says 401, compare the signing secret.",
  },
  403: {
    message: "The receiver answered 403: it does not let us in.",
    remedy:
      "Check the firewall, the bot protection and the CSRF check on the webhook's path; verify the signature instead.",
  },
  404: {
    message: "The receiver answered 404: there is nothing at that path.",
    remedy: "Compare the path of the webhook URL with the route in the receiver.",
    concernsUrl: true,
  },
  405: {
    message: "The receiver answered 405: it takes no POST at that path.",
    remedy: "Let the route accept POST, or correct the path of the webhook URL.",
    concernsUrl: true,
  },
  408: {
    message: "The receiver answered 408: it says that it waited too long for the request.",
    remedy: "Check the time limits of the proxy or load balancer before the receiver.",
  },
  410: {
    message: "The receiver answered 410: it says that the path is gone for good.",
    remedy: "Use the webhook URL that is in use now.",
    concernsUrl: true,
  },
  413: {
    message: "The receiver answered 413: the event is larger than it takes.",
    remedy: "Raise the body size limit of the receiver, and of the proxy before it.",
  },
  415: {
    message: "The receiver answered 415: it does not take JSON at that path.",
    remedy: "Let the route accept content type application/json.",
  },
  429: {
    message: "The receiver answered 429: it is getting more requests than it takes.",
    remedy: "Raise its limit for webhooks. A Retry-After header on its answer makes us wait longer.",
  },
  500: {
    message: "The receiver answered 500: it failed while handling the event.",
    remedy: "Look for the error in the receiver's logs at the time of this attempt.",
  },
  502: {
    message: "The receiver answered 502: its proxy got no good answer from the application behind it.",
    remedy: "Check that the application behind the proxy is running.",
  },
  503: {
    message: "The receiver answered 503: it is not available at the moment.",
    remedy: "Check that the application is running and not overloaded or under maintenance.",
  },
  504: {
    message: "The receiver answered 504: its proxy waited too long for the application behind it.",
    remedy: "Answer with a 2xx as soon as the event is accepted, and do the work afterwards.",
  },
};

const REDIRECTS: ReadonlySet<number> = new Set([301, 302, 303, 307, 308]);

/** `status`: 300 to 999. */
export function explainStatus(status: number): Explanation {
  const known = KNOWN[status];
  if (known !== undefined) return known;
  if (REDIRECTS.has(status)) {
    return {
      message:
        `The receiver answered ${status}, a redirect. Webhooks are never redirected: ` +
        "nothing was sent to the other address.",
      remedy: "Use the final URL as the webhook URL; the answer's location header shows it.",
      concernsUrl: true,
    };
  }
  if (status < 400) {
    return {
      message: `The receiver answered ${status}, which does not say that it accepted the event.`,
      remedy: "Answer with a 2xx as soon as the event is accepted.",
    };
  }
  if (status < 500) {
    return {
      message: `The receiver answered ${status}: it refused the request.`,
      remedy: "Look at the answer's text and at the receiver's logs for the reason.",
    };
  }
  if (status < 600) {
    return {
      message: `The receiver answered ${status}: it failed while handling the event.`,
      remedy: "Look for the error in the receiver's logs at the time of this attempt.",
    };
  }
  return {
    message: `The receiver answered ${status}, which is no status that HTTP knows.`,
    remedy:
      "Answer with a 2xx as soon as the event is accepted; some bot protections make up statuses of their own.",
  };
}
