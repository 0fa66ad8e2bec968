import { describeQuickly } from "./harness/quick-tests.ts";
import { allKilled } from "./scenarios/all-killed.ts";
import { frozen, noSlots, restarted } from "./scenarios/database.ts";
import { diskFull } from "./scenarios/disk.ts";

describeQuickly("the database", [allKilled, restarted, frozen, noSlots, diskFull]);
