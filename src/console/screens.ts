import type { Screen } from "./screen.ts";
import { auditScreen } from "./screens/audit.ts";
import { deliveriesScreen } from "./screens/deliveries.ts";
import { deliveryBodyScreen, deliveryScreen, replayDelivery } from "./screens/delivery.ts";
import { endpointScreen, pauseEndpoint, resumeEndpoint } from "./screens/endpoint.ts";
import {
  changeEndpoint,
  changeEndpointForm,
  removeEndpoint,
  removeEndpointForm,
  sendTestEvent,
} from "./screens/endpoint-changes.ts";
import { leave } from "./screens/leave.ts";
import { createReplay, newReplayScreen, tryReplay } from "./screens/new-replay.ts";
import { checkAddress, checkReceiver } from "./screens/receiver-check.ts";
import { cancelReplay, replayScreen, replaysScreen } from "./screens/replays.ts";
import { rotateSecret, rotateSecretForm } from "./screens/secret-rotation.ts";
import { revealSecret, secretAddress } from "./screens/signing-secret.ts";

/** Every screen of an account's console. */
export const screens: readonly Screen[] = [
  deliveriesScreen,
  deliveryScreen,
  deliveryBodyScreen,
  replayDelivery,
  replaysScreen,
  newReplayScreen,
  createReplay,
  tryReplay,
  replayScreen,
  cancelReplay,
  endpointScreen,
  changeEndpointForm,
  changeEndpoint,
  removeEndpointForm,
  removeEndpoint,
  sendTestEvent,
  pauseEndpoint,
  resumeEndpoint,
  checkAddress,
  checkReceiver,
  secretAddress,
  revealSecret,
  rotateSecretForm,
  rotateSecret,
  auditScreen,
  leave,
];
