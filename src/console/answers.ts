import type { z } from "zod";
import type { AccountAuditEntry, AuditEntry } from "../accounts/accounts-schema.ts";
import type { Published } from "../delivery/analyses-api.ts";
import type * as endpoints from "../delivery/endpoint-api.ts";
import type { SigningSecretShape } from "../delivery/signing-secrets-api.ts";
import type { PageBody } from "../http/pagination.ts";
import type * as accounts from "../log/accounts-api.ts";
import type { Account, Found } from "../log/accounts-schema.ts";
import type { Activity } from "../log/activity-schema.ts";
import type { Delivery, DeliveryWithAttempts } from "../log/delivery-schema.ts";
import type * as replays from "../log/replays-api.ts";
import type { Replay } from "../log/replays-schema.ts";
import type { ReceiverReport } from "../receivers/receiver-check.ts";

export type AccountReplay = z.output<typeof accounts.AccountReplay>;
export type DryRun = z.output<typeof replays.DryRun>;
export type Endpoint = z.output<typeof endpoints.Endpoint>;
type SigningSecrets = z.output<typeof SigningSecretShape>;

/** The operations that pages run, with what each answers: the types of their own schemas. */
export type Answers = {
  "accounts.audit.list": PageBody<AccountAuditEntry>;
  "accounts.list": PageBody<Account>;
  "accounts.replays.list": PageBody<AccountReplay>;
  "audit.list": PageBody<AuditEntry>;
  "search.find": Found;
  "webhooks.activity": Activity;
  "webhooks.deliveries.get": DeliveryWithAttempts;
  "webhooks.deliveries.list": PageBody<Delivery>;
  "webhooks.deliveries.replay": Delivery;
  "webhooks.endpoint.check": ReceiverReport;
  "webhooks.endpoint.get": Endpoint;
  "webhooks.endpoint.pause": Endpoint;
  "webhooks.endpoint.remove": null;
  "webhooks.endpoint.resume": Endpoint;
  "webhooks.endpoint.set": Endpoint;
  "webhooks.endpoint.test": z.output<typeof Published>;
  "webhooks.replays.cancel": Replay;
  "webhooks.replays.create": Replay | DryRun;
  "webhooks.replays.get": Replay;
  "webhooks.replays.list": PageBody<Replay>;
  "webhooks.signing_secret.get": SigningSecrets;
  "webhooks.signing_secret.rotate": SigningSecrets;
};
