/** Bodies in flight, so that memory stays bounded, shared by account. */
const BYTES_MAX = 64 * 1024 * 1024;
/** Of these, what only accounts that hold next to nothing get. */
const RESERVED_BYTES = 8 * 1024 * 1024;
const NEXT_TO_NOTHING_BYTES = 64 * 1024;

/**
 * Bytes of bodies that are being posted. An account that holds more than is left free, but for the reserve, starts
 * nothing: a dynamic threshold, as in `AccountTurns`.
 */
export class BytesInFlight {
  readonly #byAccount = new Map<string, number>();
  readonly #held = new Set<string>();
  readonly #setHeld: (accountId: string, isHeld: boolean) => void;
  #total = 0;

  constructor(setHeld: (accountId: string, isHeld: boolean) => void) {
    this.#setHeld = setHeld;
  }

  get total(): number {
    return this.#total;
  }

  /** Accounts that start nothing until they hold less. */
  get heldAccounts(): number {
    return this.#held.size;
  }

  get free(): number {
    return BYTES_MAX - this.#total;
  }

  /** `bytes`: negative when a body is done with. */
  count(accountId: string, bytes: number): void {
    this.#total += bytes;
    const held = (this.#byAccount.get(accountId) ?? 0) + bytes;
    if (held === 0) this.#byAccount.delete(accountId);
    else this.#byAccount.set(accountId, held);
    this.#judge(accountId);
    if (bytes < 0) for (const other of this.#held) this.#judge(other);
  }

  #judge(accountId: string): void {
    const bytes = this.#byAccount.get(accountId) ?? 0;
    const isHeld = bytes > NEXT_TO_NOTHING_BYTES && bytes > this.free - RESERVED_BYTES;
    if (isHeld === this.#held.has(accountId)) return;
    if (isHeld) this.#held.add(accountId);
    else this.#held.delete(accountId);
    this.#setHeld(accountId, isHeld);
  }
}
