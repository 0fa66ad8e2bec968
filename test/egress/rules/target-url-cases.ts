import { readFileSync } from "node:fs";

/** One URL with the verdict it must get. */
export type TargetUrlCase = {
  url: string;
  verdict: "allow" | "refuse";
  reason: string;
  /** What DNS answers at the first, second … lookup; the verdict is that of the lookup that gets a private address. */
  dns_answers?: string[][];
};

const CASES_URL = new URL("../../fixtures/target-urls.json", import.meta.url);

export const TARGET_URL_CASES: readonly TargetUrlCase[] = JSON.parse(readFileSync(CASES_URL, "utf8"));
