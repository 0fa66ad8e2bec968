/** What stored secrets are encrypted with, 32 bytes a key. Of several, the first seals, and any of them opens. */
export type SecretsKey = Uint8Array | readonly [Uint8Array, ...Uint8Array[]];

export function keysOf(secretsKey: SecretsKey): readonly [Uint8Array, ...Uint8Array[]] {
  return secretsKey instanceof Uint8Array ? [secretsKey] : secretsKey;
}
