/** What became of a step. `lost`: it was somebody else's by then, or its run had ended. */
export type StepEnd = "recorded" | "lost" | "given_back" | "run_succeeded" | "run_failed";
