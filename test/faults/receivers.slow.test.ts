import { describeQuickly } from "./harness/quick-tests.ts";
import { badNames, hostile, rebinding, redirected } from "./scenarios/receivers.ts";

describeQuickly("receivers", [hostile, redirected, badNames, rebinding]);
