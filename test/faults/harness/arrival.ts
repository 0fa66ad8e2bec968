/** One webhook as it came to the receiver. Moments are milliseconds of the wall clock. */
export type Arrival = {
  readonly deliveryId: string;
  readonly path: string;
  readonly atMs: number;
  /** SHA-256 (hex) of the text that stands after `"data":`. */
  readonly dataDigest: string;
  readonly isSigned: boolean;
  /** How many of the v1 in its signature header are right. */
  readonly signatures: number;
  /** POSTs of the same delivery that were under way when it came, itself included. */
  readonly atOnce: number;
  /** Null: it was never answered. */
  answer: { readonly status: number; readonly atMs: number } | null;
};

/** What a path of the receiver does; by default it answers 200 at once. */
export type Behaviour = {
  readonly status?: number;
  readonly headers?: Record<string, string>;
  readonly delayMs?: number;
  /** A random delay up to this, on top. */
  readonly jitterMs?: number;
  /** Never answers. */
  readonly isSilent?: boolean;
  /** Answers so many, and then never again. */
  readonly answersMax?: number;
};

export type ToReceiver =
  | { readonly kind: "secrets"; readonly secrets: readonly string[] }
  | { readonly kind: "behave"; readonly path: string; readonly behaviour: Behaviour }
  | { readonly kind: "trouble"; readonly trouble: Behaviour | null };

export type FromReceiver =
  | { readonly kind: "listening"; readonly port: number; readonly caPem: string }
  | { readonly kind: "done" }
  | { readonly kind: "arrived"; readonly nth: number; readonly arrival: Arrival }
  | { readonly kind: "answered"; readonly nth: number; readonly status: number; readonly atMs: number };
