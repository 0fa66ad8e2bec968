// Random schedules of each part that does many things at once in one process.
import fc from "fast-check";
import { DispatchingWorld } from "./dispatching.ts";
import { RecordingWorld } from "./recording.ts";
import { Schedule, Time } from "./schedule.ts";
import { WritingWorld } from "./writing.ts";

const worlds = { dispatching: DispatchingWorld, recording: RecordingWorld, writing: WritingWorld };

export type PartName = keyof typeof worlds;

/** How many of all schedules are each part's: what has more to do at once gets more. */
export const SHARES: Readonly<Record<PartName, number>> = { dispatching: 0.6, recording: 0.2, writing: 0.2 };

/** @throws Error with the order of events in which a part did what it must not, and the seed that plays it again */
export async function playSchedules(part: PartName, runs: number, seed: number): Promise<void> {
  using time = new Time();
  const property = fc.asyncProperty(fc.scheduler(), fc.nat(), async (scheduler, chance) => {
    await new worlds[part](new Schedule(scheduler, time, chance)).play();
  });
  // A smaller example would be another schedule: what happens in one decides what can happen next.
  await fc.assert(property, { numRuns: runs, seed, endOnFailure: true });
}
