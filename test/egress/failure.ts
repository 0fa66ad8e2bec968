import { TargetError } from "../../src/egress/connect/target-error.ts";

/** The error with which a connection to a target failed; anything else is the test's failure. */
export async function failureOf(work: Promise<unknown>): Promise<TargetError> {
  const outcome = await work.then(
    () => new Error("It succeeded."),
    (error: unknown) => error,
  );
  if (outcome instanceof TargetError) return outcome;
  throw outcome;
}
