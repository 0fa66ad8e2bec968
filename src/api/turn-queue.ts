/** What becomes of an item that is offered: it goes, stays where it is, or is left with all that come after it. */
export type Offered = "gone" | "stays" | "stop";

/** Items of several owners: each owner's in the order in which they came, and the owners in turn (round robin). */
export class TurnQueue<Item> {
  readonly #queues = new Map<string, Item[]>();

  add(owner: string, item: Item): void {
    const queue = this.#queues.get(owner);
    if (queue === undefined) this.#queues.set(owner, [item]);
    else queue.push(item);
  }

  /** Offers one item of each owner after the other, until all were offered or one is answered with "stop". */
  offer(take: (item: Item) => Offered): void {
    const turns = [...this.#queues].map(([owner, items]) => ({ owner, items, next: 0, stay: [] as Item[] }));
    let isStopped = false;
    while (!isStopped && turns.some(({ items, next }) => next < items.length)) {
      for (const turn of turns) {
        isStopped = takeTurn(turn, take);
        if (isStopped) break;
      }
    }
    for (const { owner, items, next, stay } of turns) {
      if (next === 0) continue;
      // Whoever had a turn is the last next time.
      this.#queues.delete(owner);
      const left = [...stay, ...items.slice(next)];
      if (left.length > 0) this.#queues.set(owner, left);
    }
  }
}

type Turn<Item> = { readonly items: Item[]; readonly stay: Item[]; next: number };

/** The owner's next item that goes. Returns whether to stop. */
function takeTurn<Item>(turn: Turn<Item>, take: (item: Item) => Offered): boolean {
  while (turn.next < turn.items.length) {
    const item = turn.items[turn.next]!;
    const offered = take(item);
    if (offered === "stop") return true;
    turn.next++;
    if (offered === "gone") return false;
    turn.stay.push(item);
  }
  return false;
}

/** Does the work for each item, at most so many at a time, owners in turn. `work` never rejects. */
export function inTurns<Item>(
  runningMax: number,
  work: (item: Item) => Promise<void>,
): (owner: string, item: Item) => void {
  const queue = new TurnQueue<Item>();
  let running = 0;
  async function next(): Promise<void> {
    const [item] = running < runningMax ? takeOne(queue) : [];
    if (item === undefined) return;
    running++;
    await work(item);
    running--;
    next();
  }
  return (owner, item) => {
    queue.add(owner, item);
    next();
  };
}

function takeOne<Item>(queue: TurnQueue<Item>): readonly Item[] {
  const taken: Item[] = [];
  queue.offer((item) => {
    if (taken.length > 0) return "stop";
    taken.push(item);
    return "gone";
  });
  return taken;
}
