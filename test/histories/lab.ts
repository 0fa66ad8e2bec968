// Plays histories of each model, many at a time, and has them judged.
import { mkdirSync } from "node:fs";
import { fileURLToPath, pathToFileURL } from "node:url";
import { inWords } from "../faults/harness/figures.ts";
import type { Figures } from "../faults/harness/scenario.ts";
import { Chance } from "../simulation/chance.ts";
import { slowness } from "../support/time-limits.ts";
import { cell, feed, type Mover, pause } from "./account-plays.ts";
import { Checker, type History, MODELS, type Model, type Refusal } from "./checker.ts";
import type { Installation } from "./installation.ts";
import { Recording } from "./recording.ts";
import { analysis, draft, idempotency, newPlace, type Place } from "./writing-plays.ts";

/** Where refused histories are drawn. */
export const PICTURES = fileURLToPath(new URL("../../.cache/histories", import.meta.url));

type Play = {
  /** Of a hundred histories. */
  readonly share: number;
  /** On a machine as fast as usual; requests of more would be answered too late. */
  readonly atOnce: number;
  readonly play: (to: Recording, place: Place, mover: Mover) => Promise<History>;
};

/** Those that wait more than they work are many at once; moves take longest. */
const PLAYS: Readonly<Record<Model, Play>> = {
  idempotency: { share: 26, atOnce: 8, play: idempotency },
  analysis: { share: 26, atOnce: 8, play: analysis },
  draft: { share: 20, atOnce: 6, play: draft },
  pause: { share: 12, atOnce: 24, play: pause },
  feed: { share: 12, atOnce: 16, play: feed },
  cell: { share: 4, atOnce: 5, play: (to, _place, mover) => cell(to, mover) },
};

/** `tree`: the folder whose code moves accounts; default: this project. */
export async function loadMover(tree?: string): Promise<Mover> {
  const root = tree === undefined ? new URL("../../", import.meta.url) : pathToFileURL(`${tree}/`);
  const load = (file: string) => import(new URL(`src/cells/${file}`, root).href);
  return { ...(await load("move-account.ts")), ...(await load("calling-off.ts")) } as Mover;
}

/** Histories that share an account. */
const PER_PLACE = 50;

export type LabOptions = {
  readonly count: number;
  readonly seed: number;
  /** Default: all. */
  readonly models?: readonly Model[];
  readonly mover: Mover;
  /** Ends with the first history that is refused. */
  readonly stopsAtFirst?: boolean;
};

export type Judged = { readonly figures: Figures; readonly refusals: readonly Refusal[] };

export async function playHistories(world: Installation, options: LabOptions): Promise<Judged> {
  const { count, seed, models = MODELS, mover, stopsAtFirst = false } = options;
  mkdirSync(PICTURES, { recursive: true });
  const checker = new Checker(stopsAtFirst ? null : PICTURES);
  const startedAt = performance.now();
  const figures: Record<string, number> = {};
  const add = (name: string, n: number) => {
    figures[name] = (figures[name] ?? 0) + n;
  };
  const shares = models.reduce((sum, model) => sum + PLAYS[model].share, 0);
  let hasFailed = false;
  const isOver = () => hasFailed || (stopsAtFirst && checker.refusals.length > 0);

  const playAll = async (model: Model) => {
    const { share, atOnce, play } = PLAYS[model];
    const total = Math.ceil((count * share) / shares);
    let next = 0;
    const playOneByOne = async () => {
      let place: Place | null = null;
      for (let played = 0; next < total && !isOver(); played++) {
        const n = next++;
        const chance = new Chance(seed * 1_000_003 + n * MODELS.length + MODELS.indexOf(model));
        const to = new Recording(world, chance, model, `${model}-${seed}-${n}`);
        if (place === null || played % PER_PLACE === 0) place = await newPlace(to);
        const history = await play(to, place, mover).catch((cause: unknown) => {
          hasFailed = true;
          throw new Error(`${to.name} could not be played`, { cause });
        });
        checker.judge(history);
        add(model, 1);
        add("operations", history.operations.length);
        add("unanswered", history.operations.filter(({ out }) => out === null).length);
      }
    };
    const together = Math.ceil(atOnce / slowness());
    await Promise.all(Array.from({ length: Math.min(together, total) }, playOneByOne));
  };
  const telling = setInterval(
    () => console.log(`  ${inWords("so far", { ...figures, ...world.faults })}`),
    10_000,
  );
  const troubling = new AbortController();
  const trouble = world.trouble(troubling.signal);
  trouble.catch(() => {
    hasFailed = true;
  });
  const played = await Promise.allSettled(models.map(playAll));
  clearInterval(telling);
  troubling.abort();
  const [, refusals] = await Promise.all([trouble, checker.end()]);
  for (const one of played) if (one.status === "rejected") throw one.reason;
  const seconds = Math.round((performance.now() - startedAt) / 1_000);
  return { figures: { ...figures, ...world.faults, refused: refusals.length, seconds }, refusals };
}
