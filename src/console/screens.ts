import type { Screen } from "./screen.ts";
import { deliveriesScreen } from "./screens/deliveries.ts";
import { deliveryScreen, replayDelivery } from "./screens/delivery.ts";
import { leave } from "./screens/leave.ts";

/** Every screen of an account's console. */
export const screens: readonly Screen[] = [deliveriesScreen, deliveryScreen, replayDelivery, leave];
