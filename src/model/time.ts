export const DAY_SECONDS = 86_400;
export const DAY_MS = DAY_SECONDS * 1_000;
