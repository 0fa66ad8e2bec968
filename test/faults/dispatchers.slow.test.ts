import { describeQuickly } from "./harness/quick-tests.ts";
import * as killed from "./scenarios/killed.ts";
import * as stopped from "./scenarios/stopped.ts";

describeQuickly("dispatchers", [...Object.values(killed), ...Object.values(stopped)]);
