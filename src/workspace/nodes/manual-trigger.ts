import type { NodeStep } from "./node-step.ts";

/** Hands on the run's input. */
export const triggerStep: NodeStep<"manual_trigger"> = async ({ runInput }) => ({
  kind: "succeeded",
  items: [runInput],
});
