import { describeQuickly } from "./harness/quick-tests.ts";
import { frozen, noSlots, restarted } from "./scenarios/database.ts";
import { diskFull } from "./scenarios/disk.ts";

describeQuickly("the database", [restarted, frozen, noSlots, diskFull]);
