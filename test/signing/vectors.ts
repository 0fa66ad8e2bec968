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

/** The same of Standard Webhooks, whose signature is in several headers. */
export interface StandardVector extends Omit<SignatureVector, "header"> {
  readonly headers: Readonly<Record<string, string>>;
}

export const standardVectors: readonly StandardVector[] = JSON.parse(
  readFileSync(new URL("../fixtures/standard-webhooks-vectors.json", import.meta.url), "utf8"),
).cases;

export const signatureVectors: readonly SignatureVector[] = JSON.parse(
  readFileSync(SIGNATURE_VECTORS_PATH, "utf8"),
).cases;
