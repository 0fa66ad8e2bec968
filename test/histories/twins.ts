// Broken twins: what the service is without one of its guards. The checker has to notice.
import { type Change, inCopy, redefine, without } from "../support/broken-twins.ts";
import type { Guard } from "./guards.ts";
import type { Installation } from "./installation.ts";
import { loadMover, playHistories } from "./lab.ts";

/** Of which one at least has to be refused. */
const HISTORIES = 400;

/** Resolves to what the checker says of the first history that it refuses without the guard; null: it refuses none. */
export async function prove(world: Installation, { model, sql, changes }: Guard, seed: number) {
  const play = async (tree?: string) => {
    const options = {
      count: HISTORIES,
      seed,
      models: [model],
      mover: await loadMover(tree),
      stopsAtFirst: true,
    };
    const { figures, refusals } = await playHistories(world, options);
    const [first] = refusals;
    return first
      ? `${first.verdict}, ${first.name} (${figures[model]} histories, ${figures.seconds} s)`
      : null;
  };
  return sql === null
    ? await withProcesses(world, changes, play)
    : await withFunction(world, sql, changes[0]!, play);
}

/** With another text of the function in both databases. */
async function withFunction<T>(
  world: Installation,
  name: string,
  { text, without: changed }: Change,
  work: () => Promise<T>,
): Promise<T> {
  const pools = [world.pool("source"), world.pool("target")];
  const originals = await Promise.all(
    pools.map((pool) =>
      redefine(pool, name, (original) => {
        if (!original.includes(text)) throw new Error(`sealpost.${name} no longer has ${text}`);
        return original.replace(text, () => changed);
      }),
    ),
  );
  try {
    return await work();
  } finally {
    for (const [at, texts] of originals.entries()) for (const one of texts) await pools[at]!.query(one);
  }
}

/** With processes of a copy of the project, in which the texts are changed. */
async function withProcesses<T>(
  world: Installation,
  changes: readonly Change[],
  work: (tree: string) => Promise<T>,
): Promise<T> {
  try {
    return await inCopy((tree) =>
      without(tree, changes, async () => {
        await world.run(tree);
        return await work(tree);
      }),
    );
  } finally {
    await world.run();
  }
}
