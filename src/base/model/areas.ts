/** Parts of this service that an installation may run without the others. */
export const AREAS = ["webhooks", "workspace"] as const;

export type Area = (typeof AREAS)[number];
