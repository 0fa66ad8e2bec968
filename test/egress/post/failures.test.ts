import { errors } from "undici";
import { describe, expect, it } from "vitest";
import {
  CONNECT_ERRORS,
  isErrorCode,
  outcomeOfErrorCode,
  TLS_ERRORS,
} from "../../../src/base/model/error-codes.ts";
import { TransportFloodedError } from "../../../src/egress/connect/reading.ts";
import { ConnectError, type ConnectErrorCode } from "../../../src/egress/egress.ts";
import { classifyAnswerError, classifyConnectError } from "../../../src/egress/post/result.ts";

function errorWith(code: string, message = "something"): Error {
  return Object.assign(new Error(message), { code });
}

describe("an error before the request was begun", () => {
  it.each([
    ...Object.keys(CONNECT_ERRORS),
    ...Object.keys(TLS_ERRORS),
    "local_resources_exhausted",
    "egress_proxy_failed",
  ] as ConnectErrorCode[])("keeps the code %s of the step that failed", (code) => {
    expect(classifyConnectError(new ConnectError(code, "x"))).toBe(code);
    expect(isErrorCode(code) && outcomeOfErrorCode(code)).toMatch(
      /^(unreachable|tls_failed|target_refused)$/,
    );
  });

  it.each([new Error("x"), errorWith("ECONNRESET"), "text", undefined, null])(
    "does not guess what it does not know: %s",
    (error) => {
      expect(classifyConnectError(error)).toBe("unexpected_failure");
    },
  );
});

describe("an error after the request was begun", () => {
  it.each([
    ["UND_ERR_HEADERS_OVERFLOW", "response_head_too_large"],
    ["UND_ERR_RES_CONTENT_LENGTH_MISMATCH", "bad_response"],
    ["UND_ERR_SOCKET", "connection_closed"],
    ["ECONNRESET", "connection_reset"],
    ["ECONNABORTED", "connection_reset"],
    ["EHOSTUNREACH", "connection_reset"],
    ["ENETUNREACH", "connection_reset"],
    ["ENETDOWN", "connection_reset"],
    ["EPIPE", "connection_reset"],
    ["ETIMEDOUT", "connection_reset"],
    ["ERR_SSL_TLSV13_ALERT_CERTIFICATE_REQUIRED", "tls_protocol"],
    ["EPROTO", "tls_protocol"],
    ["UND_ERR_INFO", "unexpected_failure"],
    ["ENOMEM", "unexpected_failure"],
  ])("knows %s as %s", (code, expected) => {
    expect(classifyAnswerError(errorWith(code))).toBe(expected);
  });

  it.each([undefined, "INVALID_CONSTANT"])(
    "takes the HTTP parser's error for a bad response (code %s)",
    (code) => {
      expect(classifyAnswerError(Object.assign(new errors.HTTPParserError("x"), { code }))).toBe(
        "bad_response",
      );
    },
  );

  it("tells a misplaced answer from a closed connection, which undici gives the same code", () => {
    expect(classifyAnswerError(errorWith("UND_ERR_SOCKET", "bad response"))).toBe("bad_response");
    expect(classifyAnswerError(errorWith("UND_ERR_SOCKET", "bad upgrade"))).toBe("bad_response");
    expect(classifyAnswerError(errorWith("UND_ERR_SOCKET", "other side closed"))).toBe("connection_closed");
  });

  it("knows a head that never ends", () => {
    expect(classifyAnswerError(new TransportFloodedError())).toBe("response_head_too_large");
  });

  it("takes an error without a code for unexpected", () => {
    expect(classifyAnswerError(new Error("x"))).toBe("unexpected_failure");
  });
});
