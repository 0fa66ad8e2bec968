import { Problem } from "../http/problems.ts";
import { auditScreen } from "./audit.ts";
import { get, post, type Screen } from "./screen.ts";
import { keyScreens } from "./screens/api-keys.ts";
import { consumerScreens } from "./screens/consumers.ts";
import { deliveriesScreen } from "./screens/deliveries.ts";
import { deliveryScreens } from "./screens/delivery.ts";
import { endpointScreens } from "./screens/endpoint.ts";
import { newReplayScreens } from "./screens/new-replay.ts";
import { checkScreens } from "./screens/receiver-check.ts";
import { recipientScreens } from "./screens/recipients.ts";
import { replayScreens } from "./screens/replays.ts";
import { runScreen } from "./screens/run.ts";
import { secretScreens } from "./screens/signing-secret.ts";
import { userScreens } from "./screens/users.ts";

/** Ends the session. */
export function leaveTo(goTo: string): Screen {
  return post("/leave", async ({ leave }) => {
    await leave();
    return { goTo };
  });
}

/** Whatever else is asked for, by somebody who is known. */
export const unknownScreen = get("/*", async () => {
  throw new Problem("not_found");
});

/** Every screen of an account's console. */
export const screens: readonly Screen[] = [
  get("", async ({ base }) => ({ goTo: `${base}/deliveries` })),
  deliveriesScreen,
  ...deliveryScreens,
  runScreen,
  ...newReplayScreens,
  ...replayScreens,
  ...endpointScreens,
  ...consumerScreens,
  ...checkScreens,
  ...recipientScreens,
  ...secretScreens,
  auditScreen,
  ...keyScreens,
  ...userScreens,
  leaveTo("/console/left"),
  unknownScreen,
];
