import { auditScreen } from "./audit.ts";
import { post, type Screen } from "./screen.ts";
import { deliveriesScreen } from "./screens/deliveries.ts";
import { deliveryScreens } from "./screens/delivery.ts";
import { endpointScreens } from "./screens/endpoint.ts";
import { newReplayScreens } from "./screens/new-replay.ts";
import { checkScreens } from "./screens/receiver-check.ts";
import { recipientScreens } from "./screens/recipients.ts";
import { replayScreens } from "./screens/replays.ts";
import { runScreen } from "./screens/run.ts";
import { secretScreens } from "./screens/signing-secret.ts";

/** Ends the session. */
export function leaveTo(goTo: string): Screen {
  return post("/leave", async ({ leave }) => {
    await leave();
    return { goTo };
  });
}

/** Every screen of an account's console. */
export const screens: readonly Screen[] = [
  deliveriesScreen,
  ...deliveryScreens,
  runScreen,
  ...newReplayScreens,
  ...replayScreens,
  ...endpointScreens,
  ...checkScreens,
  ...recipientScreens,
  ...secretScreens,
  auditScreen,
  leaveTo("/console/left"),
];
