import { TargetError } from "./target-error.ts";

/** The error of a TCP connection that did not come about, by its cause; `what` is the address and port. */
export function tcpError(error: Error, family: 4 | 6, what: string): TargetError {
  const systemCode = "code" in error ? String(error.code) : "";
  const code = tcpErrorCode(systemCode, family);
  const messages: Record<typeof code, string> = {
    connect_refused: `${what} refused the connection.`,
    connect_timeout: `${what} did not take the connection in time.`,
    connect_reset: `${what} reset the connection.`,
    host_unreachable: `No route leads to ${what}.`,
    local_resources_exhausted: `This machine has no descriptor, port or memory left to connect to ${what}.`,
    connect_failed: `The connection to ${what} failed.`,
  };
  return new TargetError(code, messages[code], { cause: error });
}

function tcpErrorCode(systemCode: string, family: 4 | 6) {
  switch (systemCode) {
    case "ECONNREFUSED":
      return "connect_refused";
    case "ETIMEDOUT":
      return "connect_timeout";
    case "ECONNRESET":
    case "ECONNABORTED":
    case "EPIPE":
      return "connect_reset";
    case "EHOSTUNREACH":
    case "EHOSTDOWN":
    case "ENETUNREACH":
    case "ENETDOWN":
    case "EAFNOSUPPORT":
      return "host_unreachable";
    case "EADDRNOTAVAIL":
      // Without IPv6 on this machine that is how it shows; with IPv4 all ports are taken.
      return family === 6 ? "host_unreachable" : "local_resources_exhausted";
    case "EMFILE":
    case "ENFILE":
    case "ENOBUFS":
    case "ENOMEM":
      return "local_resources_exhausted";
    default:
      return "connect_failed";
  }
}
