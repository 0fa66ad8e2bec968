// The child's side of a question that the benchmark asks one of its processes.

type Question = { readonly number: number; readonly name: string; readonly input: unknown };

/** Each answers the questions of its name; what it returns or throws goes back to whoever asked. */
export type Answers = Readonly<Record<string, (input: never) => unknown>>;

/** Answers until the benchmark goes away; a process of its own never outlives it. */
export function answerQuestions(answers: Answers): void {
  process.on("message", async (question: Question) => {
    const { number, name, input } = question;
    try {
      const answer = answers[name] as ((input: unknown) => unknown) | undefined;
      if (answer === undefined) throw new Error(`There is no answer to "${name}".`);
      process.send?.({ number, answer: await answer(input) });
    } catch (error) {
      process.send?.({
        number,
        failure: error instanceof Error ? (error.stack ?? error.message) : String(error),
      });
    }
  });
  process.once("disconnect", () => process.exit());
}

/** Milliseconds of a clock that all processes of one machine share, with microseconds behind the point. */
export function sharedClockMs(): number {
  return Number(process.hrtime.bigint()) / 1e6;
}
