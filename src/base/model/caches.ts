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

/**
 * A map whose entries expire, and the oldest of which make room for new ones. Setting a key again makes it new.
 *
 * Losing option: lru-cache, one more package for forty lines.
 */
export class TtlMap<Key, Value> {
  readonly #entriesMax: number;
  readonly #now: () => number;
  /** In the order in which they were set. */
  readonly #entries = new Map<Key, { readonly value: Value; readonly expiresAtMs: number }>();

  /** @param now a monotonic clock in milliseconds */
  constructor(entriesMax: number, now = () => performance.now()) {
    this.#entriesMax = entriesMax;
    this.#now = now;
  }

  get(key: Key): Value | undefined {
    const entry = this.#entries.get(key);
    if (entry === undefined) return undefined;
    if (this.#now() < entry.expiresAtMs) return entry.value;
    this.#entries.delete(key);
    return undefined;
  }

  has(key: Key): boolean {
    return this.get(key) !== undefined;
  }

  set(key: Key, value: Value, ttlMs: number): void {
    this.#entries.delete(key);
    // One percent at a time: V8 finds the first entry by walking over the deleted ones, thousands in a large map.
    if (this.#entries.size >= this.#entriesMax) forgetOldest(this.#entries, this.#entriesMax / 100);
    this.#entries.set(key, { value, expiresAtMs: this.#now() + ttlMs });
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
