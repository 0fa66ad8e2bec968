import { describeQuickly } from "./harness/quick-tests.ts";
import { feedExactlyOnce, feedWithoutDispatchers } from "./scenarios/feed.ts";

describeQuickly("the feed", [feedExactlyOnce, feedWithoutDispatchers]);
