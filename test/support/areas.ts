import { workspaceTests } from "../workspace/area-tests.ts";
import type { AreaTests } from "./area-tests.ts";

/** Of the areas beside the webhooks. A test builds the service without them, and replaces this file. */
export const areaTests: readonly AreaTests[] = [workspaceTests];
