/** What all callers of one turn got, and which of them one was. */
export type Coalesced<Answer> = {
  readonly answer: Answer;
  /** How many shared it. */
  readonly callers: number;
  /** From 1, in the order in which they came. */
  readonly place: number;
};

/**
 * Asks once for all who come with the same key in one turn of the event loop, at its end. A burst costs one statement,
 * and nobody is told what was read before they came. An error is everybody's.
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
