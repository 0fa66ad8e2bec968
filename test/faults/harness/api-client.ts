import { patientSignal } from "../../support/time-limits.ts";
/** One answer of the API, and how long it took. status 0: it gave none. */
export type ApiAnswer = { readonly status: number; readonly code: string | null; readonly tookMs: number };

export async function ask(url: string, apiKey: string, path: string, timeoutMs = 15_000): Promise<ApiAnswer> {
  const startedAt = performance.now();
  const took = () => Math.round(performance.now() - startedAt);
  try {
    const response = await fetch(new URL(path, url), {
      headers: { authorization: `Bearer ${apiKey}` },
      signal: patientSignal(timeoutMs),
    });
    const body = (await response.json()) as { code?: string };
    return { status: response.status, code: body.code ?? null, tookMs: took() };
  } catch (error) {
    return { status: 0, code: String(error), tookMs: took() };
  }
}
