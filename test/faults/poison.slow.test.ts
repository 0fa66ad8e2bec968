import { describeQuickly } from "./harness/quick-tests.ts";
import { poison } from "./scenarios/poison.ts";

describeQuickly("a poisonous payload", [poison]);
