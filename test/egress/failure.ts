import { ConnectError } from "../../src/egress/egress.ts";

/** The error with which a connection to a target failed; anything else is the test's failure. */
export async function failureOf(work: Promise<unknown>): Promise<ConnectError> {
  const outcome = await work.then(
    () => new Error("It succeeded."),
    (error: unknown) => error,
  );
  if (outcome instanceof ConnectError) return outcome;
  throw outcome;
}
