import { describeQuickly } from "./harness/quick-tests.ts";
import * as changes from "./scenarios/changes.ts";

describeQuickly("changes on the way", Object.values(changes));
