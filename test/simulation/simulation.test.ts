import { expect, it } from "vitest";
import { patience } from "../support/time-limits.ts";
import { History } from "./history.ts";
import { playHistories } from "./tally.ts";

const HISTORIES = 100_000;

/** All that can happen, so that a simulation which has become tame is noticed. */
const HAPPENS = [
  "claim ends what is exhausted",
  "claim ends what was cut in quarantine",
  "claim leased",
  "claim leased in quarantine",
  "claim left",
  "claim must_be_quarantined",
  "ended abandoned analysis_expired",
  "ended abandoned attempts_exhausted",
  "ended abandoned interrupted",
  "ended abandoned no_target",
  "ended abandoned target_refused",
  "ended abandoned window_ended",
  "ended succeeded",
  "endpoint",
  "promote found nothing",
  "promote woke",
  "publish",
  "record abandoned",
  "record failed",
  "record fenced off",
  "record released",
  "record succeeded",
  "replay expired",
  "replay not_replayable",
  "replay replayed",
  "replay replayed under way",
];

it(
  `nothing that must not happen happens in ${HISTORIES} histories, and everything else does`,
  () => {
    const tally = playHistories(1, HISTORIES);
    expect([...tally.keys()].sort()).toEqual(HAPPENS);
    for (const [name, count] of tally) expect(count, name).toBeGreaterThanOrEqual(50);
  },
  patience(120_000),
);

it("a seed tells the same history every time", () => {
  const tell = (seed: number) => {
    const operations: string[] = [];
    new History(seed, (operation) => operations.push(JSON.stringify(operation))).play();
    return operations;
  };
  expect(tell(17)).toEqual(tell(17));
  expect(tell(17)).not.toEqual(tell(18));
});
