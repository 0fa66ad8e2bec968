// The short form of `npm run partitions`.
import { describeQuickly } from "../faults/harness/quick-tests.ts";
import { failover } from "./failover.ts";
import { line } from "./line.ts";

describeQuickly("partitions", [line, failover]);
