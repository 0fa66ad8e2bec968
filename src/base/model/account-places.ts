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

/** Of what is free and not kept, how many times as much an account may hold: alone, it gets half of all. */
const TIMES_FREE = 2;
/** Whoever holds none and has waited for so long without a turn has every second one. */
const LONG_MS = 1_000;
/** What was held counts half after this. */
const HALF_LIFE_MS = 60_000;
const REMEMBERED_ACCOUNTS_MAX = 10_000;

type Taken = Place & {
  readonly onCut: (() => void) | undefined;
  movesUntilMs: number;
  restedMs: number | null;
};
type Waiting = { readonly asked: AskedPlaces; readonly start: (place: Place) => void };
/** `sinceMs`: since when its account has had no turn. */
type Queue = { readonly all: Set<Waiting>; sinceMs: number };

/**
 * Places of which each account has its share, whatever others do. An account gets another only while it holds less than
 * a multiple of what is free (a dynamic threshold: Choudhury and Hahne, 1998), and some are kept for accounts that hold
 * none. What waits goes by who holds the fewest, then by who will have held the least lately, but for every second
 * turn, which is that of whoever has waited long. Where none is free, whoever lets the least move loses its own to an
 * account that has none.
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

  held(accountId: string): number {
    return this.#held.get(accountId) ?? 0;
  }

  /** At once, or null. */
  tryTake(accountId: string, asked: AskedPlaces = {}): Place | null {
    // Nobody comes before those who wait for others alone.
    if (this.#next() !== null) return null;
    while (this.#granted(accountId, asked) === 0) if (!this.#cutFor(accountId)) return null;
    return this.#take(accountId, asked);
  }

  /** As soon as there is one. Rejects with the signal's reason, and has none then. */
  async take(accountId: string, asked: AskedPlaces, signal: AbortSignal): Promise<Place> {
    signal.throwIfAborted();
    const taken = this.tryTake(accountId, asked);
    if (taken !== null) return taken;
    return await new Promise((resolve, reject) => {
      const own = this.#waiting.get(accountId) ?? { all: new Set(), sinceMs: this.#options.now() };
      this.#waiting.set(accountId, own);
      const leave = () => {
        this.#leave(accountId, waiting);
        reject(signal.reason);
        this.#startNext();
      };
      const waiting: Waiting = {
        asked,
        start: (place) => {
          signal.removeEventListener("abort", leave);
          resolve(place);
        },
      };
      own.all.add(waiting);
      signal.addEventListener("abort", leave, { once: true });
      // Those before it may wait for more than is free, or for what is kept for such as this one.
      this.#startNext();
      this.#cutForWaiting();
    });
  }

  /** How many it gets now; 0: none. */
  #granted(accountId: string, { places = 1, placesMin = places }: AskedPlaces): number {
    const unkept = this.#free - this.#options.keptPlaces;
    if (!this.#mayHaveAnother(accountId)) return 0;
    if (placesMin > (this.#isNew(accountId) ? this.#free : unkept)) return 0;
    return Math.max(placesMin, Math.min(places, unkept));
  }

  /** Only others can be in its way. */
  #mayHaveAnother(accountId: string): boolean {
    return (
      this.#isNew(accountId) || this.held(accountId) < TIMES_FREE * (this.#free - this.#options.keptPlaces)
    );
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

  #take(accountId: string, asked: AskedPlaces): Place {
    const places = this.#granted(accountId, asked);
    const { movingBytesPerSecond, stillMs, now } = this.#options;
    const sinceMs = now();
    this.#count(accountId, places);
    let isTaken = true;
    const taken: Taken = {
      onCut: asked.onCut,
      movesUntilMs: sinceMs + stillMs,
      restedMs: null,
      giveBack: () => {
        if (!isTaken) return;
        isTaken = false;
        this.#moving.delete(taken);
        this.#count(accountId, -places);
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

  #count(accountId: string, change: number): void {
    this.#free -= change;
    const held = this.held(accountId) + change;
    if (held > 0) this.#held.set(accountId, held);
    else this.#held.delete(accountId);
  }

  #remember(accountId: string, ms: number): void {
    if (this.#options.lightMs === Number.POSITIVE_INFINITY) return;
    const { ms: before, atMs } = this.#heldLately.get(accountId) ?? { ms: 0, atMs: 0 };
    const nowMs = this.#options.now();
    const all = ms + before * 2 ** ((atMs - nowMs) / HALF_LIFE_MS);
    this.#heldLately.set(accountId, { ms: all, atMs: nowMs }, 20 * HALF_LIFE_MS);
  }

  /** Whose turn it is among those that wait; null: none is waiting for others alone. */
  #next(): string | null {
    let next: string | null = null;
    let [heldByNext, loadOfNext] = [0, 0];
    for (const [accountId, { all }] of this.#waiting) {
      if (!this.#mayHaveAnother(accountId)) continue;
      const [first] = all;
      const held = this.held(accountId);
      const load = this.#loadOf(accountId) + (first!.asked.expectedMs ?? 0);
      if (next !== null && (held > heldByNext || (held === heldByNext && load >= loadOfNext))) continue;
      [next, heldByNext, loadOfNext] = [accountId, held, load];
    }
    return next;
  }

  /** Who has waited the longest of those that hold none; null: nobody for long. */
  #longest(): string | null {
    let longest: string | null = null;
    let sinceMs = this.#options.now() - LONG_MS;
    for (const [accountId, queue] of this.#waiting) {
      if (queue.sinceMs > sinceMs || (longest !== null && queue.sinceMs === sinceMs)) continue;
      if (this.held(accountId) === 0 && this.#mayHaveAnother(accountId))
        [longest, sinceMs] = [accountId, queue.sinceMs];
    }
    return longest;
  }

  #startNext(): void {
    for (;;) {
      const next = (this.#isLongTurn ? this.#longest() : null) ?? this.#next();
      if (next === null) return;
      const own = this.#waiting.get(next)!;
      const [first] = own.all;
      // It comes first even where others would have room enough, or it never would.
      if (this.#granted(next, first!.asked) === 0) return;
      this.#isLongTurn = !this.#isLongTurn;
      own.sinceMs = this.#options.now();
      this.#leave(next, first!);
      // To the end of the turn among those that hold as many.
      if (own.all.size > 0) {
        this.#waiting.delete(next);
        this.#waiting.set(next, own);
      }
      first!.start(this.#take(next, first!.asked));
    }
  }

  #leave(accountId: string, waiting: Waiting): void {
    const own = this.#waiting.get(accountId);
    own?.all.delete(waiting);
    if (own?.all.size === 0) this.#waiting.delete(accountId);
  }

  /** Takes a place from whoever lets the least move, for an account that has none. False: there is nobody. */
  #cutFor(accountId: string): boolean {
    const slowest = this.held(accountId) > 0 ? null : this.#slowest();
    if (slowest === null || slowest.movesUntilMs > this.#options.now()) return false;
    slowest.giveBack();
    slowest.onCut?.();
    return true;
  }

  #slowest(): Taken | null {
    let slowest: Taken | null = null;
    for (const taken of this.#moving) {
      if (slowest === null || taken.movesUntilMs < slowest.movesUntilMs) slowest = taken;
    }
    return slowest;
  }

  /** Now, and as long as somebody waits as soon as somebody else is too slow. */
  #cutForWaiting(): void {
    clearTimeout(this.#looking);
    for (let next = this.#next(); next !== null; next = this.#next()) if (!this.#cutFor(next)) break;
    const next = this.#next();
    const slowest = next === null || this.held(next) > 0 ? null : this.#slowest();
    if (slowest === null || slowest.movesUntilMs === Number.POSITIVE_INFINITY) return;
    const inMs = Math.max(1, slowest.movesUntilMs - this.#options.now());
    this.#looking = setTimeout(() => this.#cutForWaiting(), inMs).unref();
  }
}
