import { UsageError } from "./output.ts";

/** Why an address cannot be listened on, and what to do about it. */
const reasons: Readonly<Record<string, string>> = {
  EADDRINUSE: "another process already listens there; stop it or choose another port",
  EACCES: "this user may not use that port; choose one above 1023",
  EADDRNOTAVAIL: "this machine has no such address",
  ENOTFOUND: "there is no such host name",
};

/**
 * Explains why somebody cannot listen.
 * @param where the address, as the caller configured it
 */
export function cannotListen(who: string, where: string): (error: unknown) => never {
  return (error) => {
    const { code = "unknown error" } = error as NodeJS.ErrnoException;
    const reason = reasons[code] === undefined ? `(${code})` : `(${code}): ${reasons[code]}`;
    throw new UsageError(`${who} cannot listen on ${where} ${reason}.`, { cause: error });
  };
}

export function httpUrl(host: string, port: number): string {
  return `http://${host.includes(":") ? `[${host}]` : host}:${port}`;
}
