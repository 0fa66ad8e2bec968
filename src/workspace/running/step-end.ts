/** What became of a step. `lost`: it was somebody else's by then, or its run had ended. */
export type StepEnd = "recorded" | "lost" | "given_back" | "run_succeeded" | "run_failed";

/** Of a step that was taken to its end; the last two are its run's, too. */
export type TakenStep = Exclude<StepEnd, "lost" | "given_back">;
