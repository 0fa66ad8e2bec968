import { Mistake } from "./mistake.ts";

/** @param variable the configuration's name of the port */
export function cannotListen(
  who: string,
  host: string,
  variable: "PORT" | "METRICS_PORT",
  port: number,
  error: unknown,
): Mistake {
  const { code } = error as NodeJS.ErrnoException;
  return new Mistake(`${who} cannot listen on HOST ${host}, ${variable} ${port} (${code}).`, {
    cause: error,
  });
}

export function httpUrl(host: string, port: number): string {
  return `http://${host.includes(":") ? `[${host}]` : host}:${port}`;
}
