import { TtlMap } from "./caches.ts";

export type PlacesOptions = {
  /** In all. */
  readonly placesMax: number;
  /** Of these, those that only accounts get that hold none; absent: a quarter. */
  readonly keptPlaces?: number;
  /** An account that has held places for longer than this lately is not among those; absent: it may be. */
  readonly lightMs?: number;
  /** What has to move while it has a place, in bytes a second, once somebody needs one; absent: nothing has to. */
  readonly movingBytesPerSecond?: number;
  /** For so long nothing has to move; absent: 10 s, as connections begin slowly, falter, and move in bursts. */
  readonly stillMs?: number;
  /** Monotonic, in milliseconds. */
  readonly now?: () => number;
};

export type AskedPlaces = {
  /** Absent: one. */
  readonly places?: number;
  /** Rather fewer than none; absent: all or none. */
  readonly placesMin?: number;
  /** For how long it may be held, as far as is known before: what is short comes first. Absent: nothing is known. */
  readonly expectedMs?: number | undefined;
  /** Called once the places are another's, because too little has moved; absent: they are kept, however little. */
  readonly onCut?: () => void;
};

export type Place = {
  /** Again does nothing. */
  giveBack(): void;
  /** What has come, or gone, of what the place is for. */
  moved(bytes: number): void;
  /** It waits for us: until it moves again, nothing has to. */
  rest(): void;
};

/** Whose places they are: a user's, or the account's own. An account's id alone is one without users. */
export function sharerOf(accountId: string, { userId }: { readonly userId: string | null }): string {
  return `${accountId} ${userId ?? ""}`;
}

export const accountOf = (sharer: string) => sharer.split(" ", 1)[0]!;
export const isUser = (sharer: string) => /. ./.test(sharer);

/** Of what is free and not kept, how many times as much an account may hold: alone, it gets half of all. */
const TIMES_FREE = 2;
/** Whoever holds none and has waited for so long without a turn has every second one. */
const LONG_MS = 1_000;
/** What was held counts half after this. */
const HALF_LIFE_MS = 60_000;
const REMEMBERED_ACCOUNTS_MAX = 10_000;

type Taken = Place & {
  readonly accountId: string;
  readonly onCut: (() => void) | undefined;
  movesUntilMs: number;
  restedMs: number | null;
};
type Waiting = { readonly sharer: string; readonly asked: AskedPlaces; start(place: Place): void };
/** Of an account, by sharer. `sinceMs`: since when it has had no turn. */
type Queue = { readonly all: Map<string, Set<Waiting>>; sinceMs: number };

/**
 * Places of which each account has its share, whatever others do. An account gets another only while it holds less than
 * a multiple of what is free (a dynamic threshold: Choudhury and Hahne, 1998), and some are kept for accounts that hold
 * none. What waits goes by who holds the fewest, then by who will have held the least lately, but for every second
 * turn, which is that of whoever has waited long. Where none is free, whoever lets the least move loses its own to an
 * account that has none.
 *
 * In an account, a user gets half of what its others leave of its part. Its users, and what acts for none, take turns,
 * and whoever lets the least move makes room for one of them that has none.
 *
 * Losing options: half of all for each account: two had everything. By what was held lately alone: two newcomers shut
 * an account out that had been busy before, for a minute.
 */
export class AccountPlaces {
  readonly #options: Required<PlacesOptions>;
  readonly #held = new Map<string, number>();
  readonly #waiting = new Map<string, Queue>();
  readonly #moving = new Set<Taken>();
  readonly #heldLately: TtlMap<string, { readonly ms: number; readonly atMs: number }>;
  #free: number;
  #isLongTurn = false;
  #looking: NodeJS.Timeout | undefined;

  constructor(options: PlacesOptions) {
    this.#options = {
      keptPlaces: Math.ceil(options.placesMax / 4),
      lightMs: Number.POSITIVE_INFINITY,
      movingBytesPerSecond: 0,
      stillMs: 10_000,
      now: () => performance.now(),
      ...options,
    };
    this.#free = options.placesMax;
    this.#heldLately = new TtlMap(REMEMBERED_ACCOUNTS_MAX, this.#options.now);
  }

  get taken(): number {
    return this.#options.placesMax - this.#free;
  }

  /** By a sharer, or, of an id alone, by all of the account. */
  held(sharer: string): number {
    return this.#held.get(sharer) ?? 0;
  }

  /** At once, or null. */
  tryTake(sharer: string, asked: AskedPlaces = {}): Place | null {
    // Nobody comes before those who wait for others alone.
    if (this.#next() !== null) return null;
    while (this.#granted(sharer, asked) === 0) if (!this.#cutFor(sharer)) return null;
    return this.#take(sharer, asked);
  }

  /** As soon as there is one. Rejects with the signal's reason, and has none then. */
  async take(sharer: string, asked: AskedPlaces, signal: AbortSignal): Promise<Place> {
    signal.throwIfAborted();
    const taken = this.tryTake(sharer, asked);
    if (taken !== null) return taken;
    return await new Promise((resolve, reject) => {
      const accountId = accountOf(sharer);
      const queue = this.#waiting.get(accountId) ?? { all: new Map(), sinceMs: this.#options.now() };
      this.#waiting.set(accountId, queue);
      const own = queue.all.get(sharer) ?? new Set();
      queue.all.set(sharer, own);
      const leave = () => {
        this.#leave(waiting);
        reject(signal.reason);
        this.#startNext();
      };
      const waiting: Waiting = {
        sharer,
        asked,
        start: (place) => {
          signal.removeEventListener("abort", leave);
          resolve(place);
        },
      };
      own.add(waiting);
      signal.addEventListener("abort", leave, { once: true });
      // Those before it may wait for more than is free, or for what is kept for such as this one.
      this.#startNext();
      this.#cutForWaiting();
    });
  }

  /** How many it gets now; 0: none. */
  #granted(sharer: string, { places = 1, placesMin = places }: AskedPlaces): number {
    const unkept = this.#free - this.#options.keptPlaces;
    if (!this.#mayHaveAnother(sharer)) return 0;
    if (placesMin > (this.#isNew(accountOf(sharer)) ? this.#free : unkept)) return 0;
    const most = isUser(sharer) ? Math.ceil(unkept / (TIMES_FREE + 1)) : unkept;
    return Math.max(placesMin, Math.min(places, most));
  }

  /** Only others can be in its way. A user holds fewer than the account may still get. */
  #mayHaveAnother(sharer: string): boolean {
    const accountId = accountOf(sharer);
    const ofUser = isUser(sharer) ? (TIMES_FREE + 1) * this.held(sharer) : 0;
    const unkept = this.#free - this.#options.keptPlaces;
    return this.#isNew(accountId) || this.held(accountId) + ofUser < TIMES_FREE * unkept;
  }

  #isNew(accountId: string): boolean {
    return this.held(accountId) === 0 && this.#loadOf(accountId) === 0;
  }

  /** For how long it has held places lately, in milliseconds; 0 for a light one. */
  #loadOf(accountId: string): number {
    const lately = this.#heldLately.get(accountId);
    if (lately === undefined) return 0;
    const ms = lately.ms * 2 ** ((lately.atMs - this.#options.now()) / HALF_LIFE_MS);
    return ms <= this.#options.lightMs ? 0 : ms;
  }

  #take(sharer: string, asked: AskedPlaces): Place {
    const accountId = accountOf(sharer);
    const places = this.#granted(sharer, asked);
    const { movingBytesPerSecond, stillMs, now } = this.#options;
    const sinceMs = now();
    this.#count(sharer, places);
    let isTaken = true;
    const taken: Taken = {
      accountId,
      onCut: asked.onCut,
      movesUntilMs: sinceMs + stillMs,
      restedMs: null,
      giveBack: () => {
        if (!isTaken) return;
        isTaken = false;
        this.#moving.delete(taken);
        this.#count(sharer, -places);
        this.#remember(accountId, places * (now() - sinceMs));
        this.#startNext();
      },
      moved: (bytes) => {
        const nowMs = now();
        const from = taken.restedMs === null ? taken.movesUntilMs : nowMs + taken.restedMs;
        taken.restedMs = null;
        const movesUntilMs = Math.max(from, nowMs - stillMs) + (bytes * 1_000) / movingBytesPerSecond;
        taken.movesUntilMs = Math.min(movesUntilMs, nowMs + stillMs);
      },
      rest: () => {
        taken.restedMs ??= taken.movesUntilMs - now();
        taken.movesUntilMs = Number.POSITIVE_INFINITY;
      },
    };
    if (asked.onCut !== undefined && movingBytesPerSecond > 0) this.#moving.add(taken);
    return taken;
  }

  #count(sharer: string, change: number): void {
    this.#free -= change;
    for (const holder of new Set([sharer, accountOf(sharer)])) {
      const held = this.held(holder) + change;
      if (held > 0) this.#held.set(holder, held);
      else this.#held.delete(holder);
    }
  }

  #remember(accountId: string, ms: number): void {
    if (this.#options.lightMs === Number.POSITIVE_INFINITY) return;
    const { ms: before, atMs } = this.#heldLately.get(accountId) ?? { ms: 0, atMs: 0 };
    const nowMs = this.#options.now();
    const all = ms + before * 2 ** ((atMs - nowMs) / HALF_LIFE_MS);
    this.#heldLately.set(accountId, { ms: all, atMs: nowMs }, 20 * HALF_LIFE_MS);
  }

  /** Whose turn it is among those that wait; null: none is waiting for others alone. */
  #next(): Waiting | null {
    let next: Waiting | null = null;
    let [heldByNext, loadOfNext] = [0, 0];
    for (const [accountId, queue] of this.#waiting) {
      const first = this.#firstOf(queue);
      if (first === null) continue;
      const held = this.held(accountId);
      const load = this.#loadOf(accountId) + (first.asked.expectedMs ?? 0);
      if (next !== null && (held > heldByNext || (held === heldByNext && load >= loadOfNext))) continue;
      [next, heldByNext, loadOfNext] = [first, held, load];
    }
    return next;
  }

  #firstOf({ all }: Queue): Waiting | null {
    for (const [sharer, [first]] of all) if (this.#mayHaveAnother(sharer)) return first!;
    return null;
  }

  /** Who has waited the longest of those that hold none; null: nobody for long. */
  #longest(): Waiting | null {
    let longest: Waiting | null = null;
    let sinceMs = this.#options.now() - LONG_MS;
    for (const [accountId, queue] of this.#waiting) {
      if (queue.sinceMs > sinceMs || (longest !== null && queue.sinceMs === sinceMs)) continue;
      const first = this.held(accountId) === 0 ? this.#firstOf(queue) : null;
      if (first !== null) [longest, sinceMs] = [first, queue.sinceMs];
    }
    return longest;
  }

  #startNext(): void {
    for (;;) {
      const next = (this.#isLongTurn ? this.#longest() : null) ?? this.#next();
      if (next === null) return;
      const { sharer, asked } = next;
      // It comes first even where others would have room enough, or it never would.
      if (this.#granted(sharer, asked) === 0) return;
      this.#isLongTurn = !this.#isLongTurn;
      const queue = this.#waiting.get(accountOf(sharer))!;
      const own = queue.all.get(sharer)!;
      queue.sinceMs = this.#options.now();
      // To the end of the turn in its account, and of that among those that hold as many.
      queue.all.delete(sharer);
      queue.all.set(sharer, own);
      this.#waiting.delete(accountOf(sharer));
      this.#waiting.set(accountOf(sharer), queue);
      this.#leave(next);
      next.start(this.#take(sharer, asked));
    }
  }

  #leave(waiting: Waiting): void {
    const { sharer } = waiting;
    const { all } = this.#waiting.get(accountOf(sharer))!;
    all.get(sharer)!.delete(waiting);
    if (all.get(sharer)!.size === 0) all.delete(sharer);
    if (all.size === 0) this.#waiting.delete(accountOf(sharer));
  }

  /** Takes a place from whoever lets the least move, for one who has none. False: there is nobody. */
  #cutFor(sharer: string): boolean {
    const slowest = this.#slowestFor(sharer);
    if (slowest === null || slowest.movesUntilMs > this.#options.now()) return false;
    slowest.giveBack();
    slowest.onCut?.();
    return true;
  }

  /** Of all, for an account that has none; of its own account, for a sharer that has none in it. */
  #slowestFor(sharer: string): Taken | null {
    let slowest: Taken | null = null;
    if (this.held(sharer) > 0) return null;
    const ofAll = this.held(accountOf(sharer)) === 0;
    for (const taken of this.#moving) {
      if (!ofAll && taken.accountId !== accountOf(sharer)) continue;
      if (slowest === null || taken.movesUntilMs < slowest.movesUntilMs) slowest = taken;
    }
    return slowest;
  }

  /** Now, and as long as somebody waits as soon as somebody else is too slow. */
  #cutForWaiting(): void {
    clearTimeout(this.#looking);
    for (let next = this.#next(); next !== null; next = this.#next()) if (!this.#cutFor(next.sharer)) break;
    const next = this.#next();
    const slowest = next && this.#slowestFor(next.sharer);
    if (slowest === null || slowest.movesUntilMs === Number.POSITIVE_INFINITY) return;
    const inMs = Math.max(1, slowest.movesUntilMs - this.#options.now());
    this.#looking = setTimeout(() => this.#cutForWaiting(), inMs).unref();
  }
}
