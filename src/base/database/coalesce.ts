/** What all callers of one turn share, and which of them this one was. */
export type Coalesced<Answer> = {
  readonly answer: Answer;
  /** How many shared it. */
  readonly callers: number;
  /** From 1, in the order in which they came. */
  readonly place: number;
};

/**
 * Asks once, at the end of a turn of the event loop, for all callers of that turn with the same key. A burst costs one
 * statement, and nobody gets what was read before they asked. An error goes to all of them.
 *
 * @param ask is told for how many it asks
 */
export function coalesceByTurn<Answer>(
  ask: (key: string, callers: number) => Promise<Answer>,
): (key: string) => Promise<Coalesced<Answer>> {
  type Turn = { callers: number; readonly asked: Promise<Answer> };
  const turns = new Map<string, Turn>();

  function begin(key: string): Turn {
    const asked = new Promise(setImmediate).then(() => {
      turns.delete(key);
      return ask(key, turn.callers);
    });
    const turn: Turn = { callers: 0, asked };
    turns.set(key, turn);
    return turn;
  }

  return async (key) => {
    const turn = turns.get(key) ?? begin(key);
    turn.callers += 1;
    const place = turn.callers;
    const answer = await turn.asked;
    return { answer, callers: turn.callers, place };
  };
}

/**
 * The same with one question for all keys of a turn. An error goes to all callers.
 *
 * @param ask is told which keys there are, and for how many each; a key that it does not answer is undefined
 */
export function gatherByTurn<Answer>(
  ask: (callers: ReadonlyMap<string, number>) => Promise<ReadonlyMap<string, Answer>>,
): (key: string) => Promise<Coalesced<Answer | undefined>> {
  type Turn = {
    readonly callers: Map<string, number>;
    readonly asked: Promise<ReadonlyMap<string, Answer>>;
  };
  let turn: Turn | null = null;

  function begin(): Turn {
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
