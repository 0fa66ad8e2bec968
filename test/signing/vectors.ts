import { readFileSync } from "node:fs";

export interface SignatureVector {
  readonly name: string;
  readonly verdict: "accept" | "reject" | "error";
  readonly header: string;
  readonly body_base64: string;
  readonly secrets: readonly string[];
  readonly now: number;
  readonly tolerance_seconds: number;
}

/** Made by another implementation of the scheme, each with the verdict that a receiver must give. */
export const SIGNATURE_VECTORS_PATH = new URL("../fixtures/signature-vectors.json", import.meta.url);

export const signatureVectors: readonly SignatureVector[] = JSON.parse(
  readFileSync(SIGNATURE_VECTORS_PATH, "utf8"),
).cases;
