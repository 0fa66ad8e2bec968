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
      if (this.#entries.size >= this.#entriesMax) this.#forgetOldestHalf();
      this.#entries.set(key, value);
    }
    return value;
  }

  #forgetOldestHalf(): void {
    let left = this.#entriesMax / 2;
    for (const key of this.#entries.keys()) {
      if (left-- <= 0) return;
      this.#entries.delete(key);
    }
  }
}

export type TtlMapOptions = {
  readonly entriesMax: number;
  /** A monotonic clock in milliseconds. */
  readonly now: () => number;
};

/** A map whose entries expire, and the oldest of which make room for new ones. Setting a key again makes it new. */
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
    this.#entries.delete(key);
    if (this.#entries.size >= this.#options.entriesMax) this.#evict();
    this.#entries.set(key, { value, expiresAtMs: this.#options.now() + ttlMs });
  }

  delete(key: Key): void {
    this.#entries.delete(key);
  }

  /** One percent at a time: V8 finds the first entry by walking over the deleted ones, thousands in a large map. */
  #evict(): void {
    let left = Math.ceil(this.#options.entriesMax / 100);
    for (const oldest of this.#entries.keys()) {
      if (left-- <= 0) return;
      this.#entries.delete(oldest);
    }
  }
}
