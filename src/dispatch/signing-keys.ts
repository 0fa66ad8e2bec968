import { BoundedCache } from "../model/bounded-cache.ts";
import { importSigningKey, type SigningKey } from "../signing/index.ts";
import type { LeasedDelivery } from "../store/claim.ts";
import { unseal } from "../store/sealing.ts";

const CACHED_KEYS_MAX = 20_000;

/**
 * The keys that sign a delivery: the account's current secret first and, while its overlap lasts, the one before it.
 * Unsealing a secret and importing its key costs more than signing, so imported keys are cached, each under its
 * secret's id and sealed text.
 */
export class SigningKeys {
  readonly #secretsKey: Uint8Array;
  readonly #ready = new BoundedCache<string, SigningKey>(CACHED_KEYS_MAX);

  /** `secretsKey`: 32 bytes, the key that secrets are sealed with. */
  constructor(secretsKey: Uint8Array) {
    this.#secretsKey = secretsKey;
  }

  /** @throws Error when the account has no valid secret, or one does not open: an internal error. */
  of(delivery: LeasedDelivery): readonly SigningKey[] {
    if (delivery.sealedSecrets.length === 0) {
      throw new Error(`account ${delivery.accountId} has no valid signing secret`);
    }
    return delivery.sealedSecrets.map((entry) =>
      this.#ready.get(entry, () => {
        const [id = "", sealed = ""] = entry.split(":");
        const owner = { accountId: delivery.accountId, id };
        return importSigningKey(unseal(Buffer.from(sealed, "base64"), this.#secretsKey, owner));
      }),
    );
  }
}
