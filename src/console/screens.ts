import type { Screen } from "./screen.ts";
import { deliveriesScreen } from "./screens/deliveries.ts";
import { deliveryScreen, replayDelivery } from "./screens/delivery.ts";
import { leave } from "./screens/leave.ts";
import { createReplay, newReplayScreen, tryReplay } from "./screens/new-replay.ts";
import { cancelReplay, replayScreen, replaysScreen } from "./screens/replays.ts";

/** Every screen of an account's console. */
export const screens: readonly Screen[] = [
  deliveriesScreen,
  deliveryScreen,
  replayDelivery,
  replaysScreen,
  newReplayScreen,
  createReplay,
  tryReplay,
  replayScreen,
  cancelReplay,
  leave,
];
