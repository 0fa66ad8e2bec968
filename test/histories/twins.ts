// Broken twins: what the service is without one of its guards. The checker has to notice.
import { cp, mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type pg from "pg";
import type { Change, Guard } from "./guards.ts";
import type { Installation } from "./installation.ts";
import { loadMover, playHistories } from "./lab.ts";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));
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
    ? await inCopy(world, changes, play)
    : await withFunction(world, sql, changes[0]!, play);
}

/** With another text of the function in both databases. */
async function withFunction<T>(
  world: Installation,
  name: string,
  { text, without }: Change,
  work: () => Promise<T>,
): Promise<T> {
  const pools = [world.pool("source"), world.pool("target")];
  const original = await definitionOf(world.pool(), name);
  if (!original.includes(text)) throw new Error(`sealpost.${name} no longer has ${text}`);
  for (const pool of pools) await pool.query(original.replace(text, without));
  try {
    return await work();
  } finally {
    for (const pool of pools) await pool.query(original);
  }
}

async function definitionOf(pool: pg.Pool, name: string): Promise<string> {
  const { rows } = await pool.query<{ text: string }>(
    `select pg_get_functiondef(oid) as text from pg_proc
     where proname = $1 and pronamespace = 'sealpost'::regnamespace`,
    [name],
  );
  return rows[0]!.text;
}

/** With processes of a copy of the project, in which the texts are changed. */
async function inCopy<T>(
  world: Installation,
  changes: readonly Change[],
  work: (tree: string) => Promise<T>,
): Promise<T> {
  const tree = await mkdtemp(join(tmpdir(), "sealpost-twin-"));
  try {
    for (const name of ["src", "sql", "package.json"])
      await cp(join(ROOT, name), join(tree, name), { recursive: true });
    await symlink(join(ROOT, "node_modules"), join(tree, "node_modules"), "dir");
    for (const { path, text, without } of changes) {
      const original = await readFile(join(tree, path), "utf8");
      if (!original.includes(text)) throw new Error(`${path} no longer has ${text}`);
      await writeFile(join(tree, path), original.replace(text, without));
    }
    await world.run(tree);
    return await work(tree);
  } finally {
    await world.run();
    await rm(tree, { recursive: true, force: true });
  }
}
