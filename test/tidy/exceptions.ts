/**
 * Breaches that are let through for now: how many of which rule in which file. It may only shrink: a number
 * that is higher than what is left fails too. Nothing is added here to get a change through.
 */
export const exceptions: readonly { rule: string; path: string; count: number }[] = [];
