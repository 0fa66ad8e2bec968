import type { Bench, Limit } from "../bench.ts";
import type { BenchCase, Figure } from "../figures.ts";

export const limit: BenchCase<Bench> = {
  name: "limit",
  says:
    "A bare loop signs and POSTs one 1 KB body over kept HTTPS connections to 200 hosts, with no database and no " +
    "checks; best of 16, 64 and 256 in flight.",
  run: async (bench) => {
    const request = await bench.limit("request");
    bench.limitPerSecond = request.perSecond;
    const handler = await bench.limit("handler");
    return [...figuresOf("client.request", request), ...figuresOf("client.dispatch", handler)];
  },
};

function figuresOf(way: string, found: Limit): Figure[] {
  return [
    { name: `${way}: posts`, value: found.perSecond, unit: "/s" },
    { name: `${way}: in flight`, value: found.inFlight, unit: "" },
    { name: `${way}: CPU of the loop`, value: found.cpuMicroseconds, unit: "µs per post" },
  ];
}

/** Posts per second by undici's usual way, measured once a run. */
export async function knownLimit(bench: Bench): Promise<number> {
  bench.limitPerSecond ??= (await bench.limit("request")).perSecond;
  return bench.limitPerSecond;
}

/**
 * The limit right before and right after `work`, by undici's usual way, and the mean of the two. `work` gets the number
 * in flight: of a dispatcher's attempts some wait for the database, so it is the largest that does the limit no harm.
 */
export async function amidLimits<Result>(
  bench: Bench,
  tell: (line: string) => void,
  work: (inFlight: number) => Promise<Result>,
): Promise<{ result: Result; perSecond: number; bareHandlerPerSecond: number }> {
  const before = await bothWays(bench);
  tell(`limit before: ${Math.round(before.request)}/s, by a bare handler ${Math.round(before.handler)}/s`);
  const result = await work(bench.inFlightMax ?? before.inFlight);
  const after = await bothWays(bench);
  tell(`limit after: ${Math.round(after.request)}/s, by a bare handler ${Math.round(after.handler)}/s`);
  return {
    result,
    perSecond: (before.request + after.request) / 2,
    bareHandlerPerSecond: (before.handler + after.handler) / 2,
  };
}

async function bothWays(bench: Bench): Promise<{ request: number; handler: number; inFlight: number }> {
  const request = await bench.limit("request");
  const handler = await bench.limit("handler");
  return { request: request.perSecond, handler: handler.perSecond, inFlight: request.inFlightMax };
}
