import type { Screen } from "./screen.ts";
import { deliveriesScreen } from "./screens/deliveries.ts";
import { deliveryScreen, replayDelivery } from "./screens/delivery.ts";
import { endpointScreen } from "./screens/endpoint.ts";
import {
  changeEndpoint,
  changeEndpointForm,
  removeEndpoint,
  removeEndpointForm,
  sendTestEvent,
} from "./screens/endpoint-changes.ts";
import { leave } from "./screens/leave.ts";
import { checkAddress, checkReceiver } from "./screens/receiver-check.ts";
import { revealSecret, rotateSecret, rotateSecretForm, secretAddress } from "./screens/signing-secret.ts";

/** Every screen of an account's console. */
export const screens: readonly Screen[] = [
  deliveriesScreen,
  deliveryScreen,
  replayDelivery,
  endpointScreen,
  changeEndpointForm,
  changeEndpoint,
  removeEndpointForm,
  removeEndpoint,
  sendTestEvent,
  checkAddress,
  checkReceiver,
  secretAddress,
  revealSecret,
  rotateSecretForm,
  rotateSecret,
  leave,
];
