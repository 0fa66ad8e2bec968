/** What all callers of one turn share, and which of them this one was. */
export type Coalesced<Answer> = {
  readonly answer: Answer;
  /** How many shared it. */
  readonly callers: number;
  /** From 1, in the order in which they came. */
  readonly place: number;
};

/**
 * Asks once, at the end of a turn of the event loop, for all callers of that turn. A burst costs one statement, and
 * nobody gets what was read before they asked. An error goes to all of them.
 *
 * @param ask is told which keys there are, and for how many each; a key that it does not answer is undefined
 */
export function gatherByTurn<Answer>(
  ask: (callers: ReadonlyMap<string, number>) => Promise<ReadonlyMap<string, Answer>>,
): (key: string) => Promise<Coalesced<Answer | undefined>> {
  let turn: ReturnType<typeof begin> | null = null;

  function begin() {
    const callers = new Map<string, number>();
    const asked = new Promise(setImmediate).then(() => {
      turn = null;
      return ask(callers);
    });
    return { callers, asked };
  }

  return async (key) => {
    turn ??= begin();
    const { callers, asked } = turn;
    const place = (callers.get(key) ?? 0) + 1;
    callers.set(key, place);
    const answer = (await asked).get(key);
    return { answer, callers: callers.get(key) ?? 0, place };
  };
}

/** The same with a question for each key of a turn; an error goes to the callers with that key. */
export function coalesceByTurn<Answer>(
  ask: (key: string, callers: number) => Promise<Answer>,
): (key: string) => Promise<Coalesced<Answer>> {
  const gather = gatherByTurn(
    async (callers) => new Map([...callers].map(([key, count]) => [key, ask(key, count)] as const)),
  );
  return async (key) => {
    const { answer, ...shared } = await gather(key);
    return { answer: await answer!, ...shared };
  };
}
