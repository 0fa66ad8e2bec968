// Runs the hostile receivers in their own process, so that floods do not block the test's event loop.
import { createCertificateAuthority } from "./certificates.ts";
import { HOSTILE_BEHAVIOURS, type HostileBehaviour, startHostileReceiver } from "./hostile-receiver.ts";

const authority = await createCertificateAuthority();
const behaviours = Object.keys(HOSTILE_BEHAVIOURS) as HostileBehaviour[];
const receivers = await Promise.all(
  behaviours.map((behaviour) => startHostileReceiver(behaviour, authority)),
);

function byBehaviour(figure: (receiver: (typeof receivers)[number]) => number): Record<string, number> {
  return Object.fromEntries(receivers.map((receiver, index) => [behaviours[index], figure(receiver)]));
}

process.on("message", () => process.send?.(byBehaviour((receiver) => receiver.requestBytesCount)));
process.on("disconnect", () => process.exit());
process.send?.({ caPem: authority.caPem, ports: byBehaviour((receiver) => receiver.port) });
