/** Memoizes a pure function. When full, it drops the oldest half: cheaper per lookup than LRU. */
export class BoundedCache<Key, Value> {
  readonly #entriesMax: number;
  readonly #entries = new Map<Key, Value>();

  constructor(entriesMax: number) {
    this.#entriesMax = entriesMax;
  }

  get(key: Key, make: (key: Key) => Value): Value {
    let value = this.#entries.get(key);
    if (value === undefined) {
      value = make(key);
      if (this.#entries.size >= this.#entriesMax) forgetOldest(this.#entries, this.#entriesMax / 2);
      this.#entries.set(key, value);
    }
    return value;
  }
}

export type TtlMapOptions = {
  readonly entriesMax: number;
  /** A monotonic clock in milliseconds. */
  readonly now: () => number;
};

/**
 * A map whose entries expire, and the oldest of which make room for new ones. Setting a key again makes it new.
 *
 * Losing option: lru-cache, one more package for forty lines.
 */
export class TtlMap<Key, Value> {
  readonly #options: TtlMapOptions;
  /** In the order in which they were set. */
  readonly #entries = new Map<Key, { readonly value: Value; readonly expiresAtMs: number }>();

  constructor(options: TtlMapOptions) {
    this.#options = options;
  }

  get(key: Key): Value | undefined {
    const entry = this.#entries.get(key);
    if (entry === undefined) return undefined;
    if (this.#options.now() < entry.expiresAtMs) return entry.value;
    this.#entries.delete(key);
    return undefined;
  }

  has(key: Key): boolean {
    return this.get(key) !== undefined;
  }

  set(key: Key, value: Value, ttlMs: number): void {
    const { entriesMax, now } = this.#options;
    this.#entries.delete(key);
    // One percent at a time: V8 finds the first entry by walking over the deleted ones, thousands in a large map.
    if (this.#entries.size >= entriesMax) forgetOldest(this.#entries, entriesMax / 100);
    this.#entries.set(key, { value, expiresAtMs: now() + ttlMs });
  }

  delete(key: Key): void {
    this.#entries.delete(key);
  }
}

function forgetOldest(entries: Map<unknown, unknown>, count: number): void {
  let left = Math.ceil(count);
  for (const key of entries.keys()) {
    if (left-- <= 0) return;
    entries.delete(key);
  }
}
