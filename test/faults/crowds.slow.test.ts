import { describeQuickly } from "./harness/quick-tests.ts";
import * as crowds from "./scenarios/crowds.ts";
import * as surroundings from "./scenarios/surroundings.ts";

describeQuickly("crowds and surroundings", [...Object.values(crowds), ...Object.values(surroundings)]);
