import { judgeTargetUrl, type TargetUrlVerdict } from "../egress/rules/target-url.ts";
import type { UnsafeAllowedTargets } from "../egress/rules/unsafe-allowed-targets.ts";
import { BoundedCache } from "../model/bounded-cache.ts";
import type { LeasedDelivery } from "../store/claim.ts";

const CACHED_VERDICTS_MAX = 20_000;

/** Where one attempt goes, judged by its text; null: the delivery has nowhere to go. */
export type DeliveryTarget = TargetUrlVerdict | null;

/** Finds the target of a delivery: the per-request webhook_url, else the account's endpoint as it is now. */
export class DeliveryTargets {
  readonly #unsafeAllowedTargets: UnsafeAllowedTargets;
  readonly #verdicts = new BoundedCache<string, TargetUrlVerdict>(CACHED_VERDICTS_MAX);

  constructor(unsafeAllowedTargets: UnsafeAllowedTargets) {
    this.#unsafeAllowedTargets = unsafeAllowedTargets;
  }

  find(delivery: LeasedDelivery): DeliveryTarget {
    const text = delivery.webhookUrl ?? delivery.endpointUrl;
    if (text === null) return null;
    return this.#verdicts.get(text, () =>
      judgeTargetUrl(text, { unsafeAllowedTargets: this.#unsafeAllowedTargets }),
    );
  }
}
