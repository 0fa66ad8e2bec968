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
