import type { z } from "zod";
import type {
  AccountAuditEntry,
  ApiKey,
  AuditEntry,
  CreatedApiKey,
  User,
} from "../accounts/accounts-schema.ts";
import type { ConsoleSession } from "../base/model/console.ts";
import type { AnalysisOrigin, PublishedAnalysis } from "../base/model/events.ts";
import type { DeliveredWorkflow, ShownRun } from "../base/model/origins.ts";
import type { Published } from "../delivery/analyses-api.ts";
import type * as endpoints from "../delivery/endpoint-schema.ts";
import type { SigningSecretShape } from "../delivery/signing-secrets-api.ts";
import type { EventConsumer } from "../feed/events-api.ts";
import type { PageBody } from "../http/pagination.ts";
import type * as accounts from "../log/accounts-api.ts";
import type { Account, Found } from "../log/accounts-schema.ts";
import type { Activity, EndpointHealth } from "../log/activity-schema.ts";
import type { Delivery, DeliveryWithAttempts } from "../log/delivery-schema.ts";
import type * as replays from "../log/replays-api.ts";
import type { Replay } from "../log/replays-schema.ts";
import type { Notice, Recipient } from "../notices/notice-kinds.ts";
import type { ReceiverReport } from "../receivers/receiver-check.ts";
import type { Part } from "./html.ts";

export type AccountReplay = z.output<typeof accounts.AccountReplay>;
export type DryRun = z.output<typeof replays.DryRun>;
export type Endpoint = endpoints.Endpoint;
export type { EndpointHealth };

type SigningSecrets = z.output<typeof SigningSecretShape>;

/** The operations that pages run, with what each answers: the types of their own schemas. */
export type Answers = {
  "accounts.audit.list": PageBody<AccountAuditEntry>;
  "accounts.list": PageBody<Account>;
  "accounts.replays.list": PageBody<AccountReplay>;
  "api_keys.create": z.output<typeof CreatedApiKey>;
  "api_keys.list": PageBody<ApiKey>;
  "api_keys.revoke": null;
  "audit.list": PageBody<AuditEntry>;
  "search.find": Found;
  "users.create": User;
  "users.disable": User;
  "users.list": PageBody<User>;
  "webhooks.activity": Activity;
  "webhooks.deliveries.get": DeliveryWithAttempts;
  "webhooks.deliveries.list": PageBody<Delivery>;
  "webhooks.deliveries.replay": Delivery;
  "webhooks.endpoint.check": ReceiverReport;
  "webhooks.endpoint.get": Endpoint;
  "webhooks.endpoint.health": EndpointHealth;
  "webhooks.endpoint.pause": Endpoint;
  "webhooks.endpoint.remove": null;
  "webhooks.endpoint.resume": Endpoint;
  "webhooks.endpoint.set": Endpoint;
  "webhooks.endpoint.test": z.output<typeof Published>;
  "webhooks.events.consumers.list": PageBody<EventConsumer>;
  "webhooks.events.consumers.remove": null;
  "webhooks.notices.list": PageBody<z.output<typeof Notice>>;
  "webhooks.notices.recipients.add": Recipient;
  "webhooks.notices.recipients.list": PageBody<Recipient> & { readonly sends_mail: boolean };
  "webhooks.notices.recipients.remove": null;
  "webhooks.replays.cancel": Replay;
  "webhooks.replays.create": Replay | DryRun;
  "webhooks.replays.get": Replay;
  "webhooks.replays.list": PageBody<Replay>;
  "webhooks.signing_secret.get": SigningSecrets;
  "webhooks.signing_secret.rotate": SigningSecrets;
  "workflows.runs.get": ShownRun;
};

/** Parameters of an address, by name; of several of one name the list. */
export type Fields = Readonly<Record<string, string | readonly string[]>>;

/** What screens say of where they are. */
export type Installation = {
  /** Under which browsers, and whoever asks without the console, reach the service. */
  readonly publicUrl: string;
  /** How long after its publication a delivery can be replayed. */
  readonly analysisRetentionMs: number;
  /** Of a run. */
  readonly attemptsMax: number;
  /** What the audit log can tell of, by operations' keys and names like those, with a summary of each. */
  readonly audited: Readonly<Record<string, string>>;
};

/** What a screen is made of: its account's session, the address, and operations in the session's name. */
export type View = {
  readonly installation: Installation;
  /** Nothing else of it: what a screen shows is the same for all who may and ask for the same; see refresh.ts. */
  readonly session: Pick<ConsoleSession, "timeZone">;
  /** Null: none, on staff's pages across accounts. */
  readonly accountId: string | null;
  /** Where the account's part begins: `/console/a/ACCOUNT`, or staff's. */
  readonly base: string;
  readonly params: Readonly<Record<string, string>>;
  /** The address's query. */
  readonly query: Fields;
  /** A form's fields; empty for a GET. */
  readonly form: URLSearchParams;
  /** Whether a control that needs this scope is shown. */
  readonly may: (scope: string) => boolean;
  /** Whether all of the account is shown: who acts for a user is not told what counts over it. */
  readonly isOfAccount: boolean;
  /** Whether an API key opened the session: without one it makes and revokes none. */
  readonly hasKey: boolean;
  /** Ends the session. */
  readonly leave: () => Promise<void>;
  /** Runs an operation and returns its JSON; throws its problem. */
  readonly ask: <Key extends keyof Answers>(operationKey: Key, asked?: Asking) => Promise<Answers[Key]>;
  /** The same with the response's own headers, by their names in lower case. */
  readonly askWithHeaders: <Key extends keyof Answers>(
    operationKey: Key,
    asked?: Asking,
  ) => Promise<{ readonly body: Answers[Key]; readonly headers: Readonly<Record<string, string>> }>;
  /** The same for one that answers with bytes, which are text. */
  readonly askForText: (operationKey: "webhooks.deliveries.body", asked?: Asking) => Promise<string>;
  /** Null: nobody here knows what made it. */
  readonly findOrigin: (published: PublishedAnalysis) => Promise<AnalysisOrigin | null>;
  /** Null: none that is published; for a session that acts for a user, it throws that operation's problem. */
  readonly findRun: (runId: string) => Promise<ShownRun | null>;
  /** By the ids of their deliveries; of those that no run has published, or that are not seen, nothing. */
  readonly findWorkflows: (
    published: readonly PublishedAnalysis[],
  ) => Promise<ReadonlyMap<string, DeliveredWorkflow>>;
  /** Milliseconds since the epoch. */
  readonly nowMs: number;
};

export type Asking = {
  readonly params?: Readonly<Record<string, string>>;
  readonly query?: Readonly<Record<string, unknown>>;
  readonly body?: unknown;
  /** Default: the form's, so that the same twice has its effect once. Reads need none. */
  readonly idempotencyKey?: string | null;
  /** Across accounts, which only staff's operations are; default: the page's account. */
  readonly isOfAll?: boolean;
};

type Show = (view: View) => Promise<Shown>;

export type Screen = {
  readonly method: "GET" | "POST";
  /** Below the account, or staff's own part, with `{name}` for parameters. */
  readonly path: string;
  readonly show: Show;
};

export function get(path: string, show: Show): Screen {
  return { method: "GET", path, show };
}

/** What a form does; its page says whether it was done. */
export function post(path: string, show: Show): Screen {
  return { method: "POST", path, show };
}

export type ShownFile = {
  readonly name: string;
  readonly type: string;
  /**
   * For each who reads it, made as fast as it is read. One that fails ends the connection, so that what is there does
   * not look whole.
   */
  readonly parts: () => AsyncIterable<string>;
};

export type Page = {
  readonly title: string;
  /** Default: the title; null: it is in `main`. */
  readonly heading?: string | null;
  /** Beside the heading. */
  readonly beside?: Part;
  /** The page that it is a part of. */
  readonly up?: { readonly href: string; readonly name: string };
  readonly main: Part;
  /** Default 200. */
  readonly status?: number;
};

/** A page's content, a file to be kept, or where to go on. */
export type Shown = Page | { readonly file: ShownFile } | { readonly goTo: string };
