import { describeQuickly } from "./harness/quick-tests.ts";
import { publishingKilled } from "./scenarios/publishing-killed.ts";

describeQuickly("publishing", [publishingKilled]);
