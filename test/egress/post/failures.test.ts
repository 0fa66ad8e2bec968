import { errors } from "undici";
import { describe, expect, it } from "vitest";
import {
  CONNECT_ERRORS,
  isErrorCode,
  outcomeOfErrorCode,
  TLS_ERRORS,
} from "../../../src/base/model/error-codes.ts";
import { EgressProxyError } from "../../../src/egress/connect/proxy-connector.ts";
import { TargetError, type TargetErrorCode } from "../../../src/egress/connect/target-error.ts";
import { TransportFloodedError } from "../../../src/egress/post/connection.ts";
import {
  classifyAnswerError,
  classifyConnectError,
  classifySlowConnect,
} from "../../../src/egress/post/failures.ts";

function errorWith(code: string, message = "something"): Error {
  return Object.assign(new Error(message), { code });
}

const OUT_OF_RESOURCES = "local_resources_exhausted";

describe("an error before the request was begun", () => {
  it.each([
    ...Object.keys(CONNECT_ERRORS),
    ...Object.keys(TLS_ERRORS),
    OUT_OF_RESOURCES,
  ] as TargetErrorCode[])("keeps the target's own code %s", (code) => {
    expect(classifyConnectError(new TargetError(code, "x"))).toBe(code);
    expect(isErrorCode(code) && outcomeOfErrorCode(code)).toMatch(
      /^(unreachable|tls_failed|target_refused)$/,
    );
  });

  it("charges the egress proxy's failure to us", () => {
    expect(classifyConnectError(new EgressProxyError("down"))).toBe("egress_proxy_failed");
  });

  it("leaves it to whoever aborted to say why", () => {
    expect(classifyConnectError(new TargetError("aborted", "x"))).toBe("unexpected_failure");
  });

  it.each([new Error("x"), errorWith("ECONNRESET"), "text", undefined, null])(
    "does not guess what it does not know: %s",
    (error) => {
      expect(classifyConnectError(error)).toBe("unexpected_failure");
    },
  );
});

describe("a connection that was not made in time", () => {
  it.each([
    [{ dnsMs: null, connectMs: null }, "dns_timeout"],
    [{ dnsMs: 0, connectMs: null }, "connect_timeout"],
    [{ dnsMs: 1, connectMs: 0 }, "tls_timeout"],
    [{ dnsMs: null, connectMs: 5 }, "tls_timeout"],
  ])("got as far as %j: %s", (timings, expected) => {
    expect(classifySlowConnect(timings)).toBe(expected);
  });
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
    expect(classifyAnswerError(new TransportFloodedError("x"))).toBe("response_head_too_large");
  });

  it("takes an error without a code for unexpected", () => {
    expect(classifyAnswerError(new Error("x"))).toBe("unexpected_failure");
  });
});
