import type { Scenario } from "./harness/scenario.ts";
import { allKilled } from "./scenarios/all-killed.ts";
import * as changes from "./scenarios/changes.ts";
import * as crowds from "./scenarios/crowds.ts";
import { frozen, noSlots, restarted } from "./scenarios/database.ts";
import { diskFull } from "./scenarios/disk.ts";
import { feedExactlyOnce, feedWithoutDispatchers } from "./scenarios/feed.ts";
import * as killed from "./scenarios/killed.ts";
import { poison } from "./scenarios/poison.ts";
import { publishingKilled } from "./scenarios/publishing-killed.ts";
import { badNames, hostile, rebinding, redirected } from "./scenarios/receivers.ts";
import * as stopped from "./scenarios/stopped.ts";
import * as surroundings from "./scenarios/surroundings.ts";

/** All of them, in the order in which they are played. */
export const scenarios: readonly Scenario[] = [
  ...Object.values(killed),
  allKilled,
  publishingKilled,
  feedExactlyOnce,
  feedWithoutDispatchers,
  ...Object.values(stopped),
  restarted,
  frozen,
  noSlots,
  diskFull,
  hostile,
  redirected,
  badNames,
  rebinding,
  ...Object.values(changes),
  ...Object.values(crowds),
  ...Object.values(surroundings),
  poison,
];
