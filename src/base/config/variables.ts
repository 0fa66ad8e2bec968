import { AREAS } from "../model/areas.ts";
import { CELL_NAME } from "../model/installation.ts";
import { DAY_SECONDS } from "../model/time.ts";
import * as kinds from "./kinds.ts";

/** An environment variable: its kind, its default and its meaning. */
export type Variable<T> = {
  readonly kind: kinds.VariableKind<T>;
  /** Used when the variable is unset or empty. Null: the value is then null. */
  readonly fallback: string | null;
  /** One sentence for docs/configuration.md, with links from there. Says what unset means where `fallback` is null. */
  readonly meaning: string;
};

/** All variables that are read, but for SEALPOST_SECRET, the receivers' own, in src/app/cli/secrets.ts. */
export const variables = {
  DATABASE_URL: optional(
    kinds.databaseUrl(),
    "URL of PostgreSQL 15 to 18. Unset: `start` runs an embedded PostgreSQL in `STATE_DIR`.",
  ),
  READ_DATABASE_URL: optional(
    kinds.databaseUrl(),
    "URL of a streaming standby from which lists of the delivery log are read, while it is up to date. " +
      "Unset: they are read from `DATABASE_URL`.",
  ),
  DATABASE_CONNECTIONS_MAX: withDefault(
    kinds.wholeNumber(5, 200),
    "12",
    "Maximum connections to PostgreSQL of each `serve` and `dispatch`; half as many when idle.",
  ),
  CELL: optional(
    kinds.text(CELL_NAME.rule, CELL_NAME.pattern),
    "Name of the cell, if there are several ([Scaling](scaling.md)). `migrate` writes it into the database " +
      "once; another cell's database is then refused. Unset: not checked.",
  ),
  AREAS: withDefault(
    kinds.someOf(...AREAS),
    AREAS.join(","),
    "Parts of the service that this installation has: `webhooks` (analyses, deliveries, the console), `workspace` " +
      "(spaces, documents, workflows). Run `migrate` after adding one.",
  ),
  STATE_DIR: withDefault(
    kinds.text("the path of a folder", /^[^\0]+$/),
    ".state",
    "Folder of the embedded database, of the secrets generated in development, and of documents without S3.",
  ),
  OBJECT_STORE_URL: optional(
    kinds.s3Address(),
    "S3, or a compatible server, where documents are stored ([Objects](objects.md)): " +
      "`s3://bucket?region=eu-central-1`, elsewhere also with `endpoint=https://…` and `path_style=true`. Unset: in " +
      "files in `STATE_DIR`.",
  ),
  AWS_ACCESS_KEY_ID: optional(
    kinds.secret(kinds.text("an access key's id", /^\S{1,200}$/)),
    "Access key for `OBJECT_STORE_URL`. Required with it, as is the secret.",
  ),
  AWS_SECRET_ACCESS_KEY: optional(
    kinds.secret(kinds.text("an access key's secret", /^\S{1,200}$/)),
    "Secret of that access key.",
  ),
  HOST: withDefault(
    kinds.text("a host name or an IP address to listen on", /^[A-Za-z0-9.:_-]{1,253}$/),
    "127.0.0.1",
    "Address that the API and the metrics listen on. Load balancers and Prometheus on other machines need " +
      "`0.0.0.0`, all addresses.",
  ),
  PORT: withDefault(kinds.wholeNumber(0, 65_535), "8080", "Port of the API; 0 for any free port."),
  METRICS_PORT: withDefault(
    kinds.wholeNumber(0, 65_535),
    "9464",
    "Port of `/metrics`; 0 for any free port. Under `start` the dispatcher uses the next port.",
  ),
  ENVIRONMENT: withDefault(
    kinds.oneOf("development", "production"),
    "development",
    "Decides the class of API keys (`…_test_`, `…_live_`) and whether unsafe settings are allowed.",
  ),
  API_KEY_BRAND: withDefault(
    kinds.list(
      "1 to 16 lowercase letters and digits, starting with a letter, or several of these, separated by commas",
      (item) => /^[a-z][a-z0-9]{0,15}$/.test(item),
    ),
    "svc",
    "Prefix of API keys. After it, separated by commas, those of other cells: their keys are accepted, too, so that " +
      "an account keeps its keys when it moves.",
  ),
  PUBLIC_URL: optional(
    kinds.baseUrl(),
    "URL under which clients reach the API, without `/v1`. Unset: the address it listens on.",
  ),
  PAGES_URL: optional(
    kinds.origin(),
    "Origin under which links to pages of the workspace open, such as `https://pages.example.com`: on another host " +
      "than `PUBLIC_URL` ([how](operating.md#links-to-pages)). Unset: no links to pages.",
  ),
  DOCS_URL: optional(kinds.baseUrl(), "Base URL of the error pages. Unset: `PUBLIC_URL`."),
  SECRETS_KEY: optional(
    kinds.aesKey(),
    "Key that encrypts stored secrets: 32 bytes in base64. Required in production; " +
      "in development one is generated in `STATE_DIR`.",
  ),
  SECRETS_KEY_PREVIOUS: optional(
    kinds.aesKey(),
    "Another key that stored secrets are decrypted with, and never encrypted, while `SECRETS_KEY` is rotated " +
      "([how](operating.md#rotating-the-secrets-key)).",
  ),
  RETRY_WINDOW_SECONDS: withDefault(
    kinds.wholeNumber(1, 5 * DAY_SECONDS),
    "86400",
    "Time over which the attempts of a run are spread, in seconds.",
  ),
  ATTEMPT_DEADLINE_MS: withDefault(
    kinds.wholeNumber(100, 120_000),
    "15000",
    "Deadline of an attempt, from the DNS lookup to the end of the answer.",
  ),
  ANALYSIS_BYTES_MAX: withDefault(
    kinds.wholeNumber(1_024, 8_388_608),
    "1048576",
    "Maximum size of an analysis. Run `migrate` after changing it.",
  ),
  ACCOUNT_STORAGE_BYTES_MAX: withDefault(
    kinds.wholeNumber(16_777_216, 2 ** 50),
    "19327352832",
    "What an account may store apart from analyses, in bytes, shared out by kind " +
      "([Storage](operating.md#storage)). Run `migrate` after changing it.",
  ),
  ACCOUNT_ANALYSES_BYTES_MAX: optional(
    kinds.wholeNumber(1_048_576, 2 ** 50),
    "How much an account's analyses may take up with their log, in bytes: beyond that, publishing is refused, in " +
      "SQL, too. Unset: no limit. Run `migrate` after changing it.",
  ),
  DISPATCH_IN_FLIGHT_MAX: withDefault(
    kinds.wholeNumber(1, 10_000),
    "1000",
    "Maximum number of concurrent attempts per dispatcher.",
  ),
  TARGET_CONSENT: optional(
    kinds.oneOf("success", "challenge"),
    "What proves that a receiver wants webhooks ([Consent](operating.md#consent)): `success`, a 2xx; `challenge`, " +
      "the text of a challenge that is sent before the first webhook. Unset: as `success`, but receivers in " +
      "`UNSAFE_ALLOWED_TARGETS` need prove nothing.",
  ),
  TARGET_DNS_SERVERS: optional(
    kinds.list(
      "a comma-separated list of name server addresses, such as 10.0.0.2,[fd00::2]:53",
      kinds.isAddressWithPort,
    ),
    "Name servers that resolve targets. Unset: the system's.",
  ),
  TARGET_CA_FILE: optional(
    kinds.text("the path of a file", /^[^\0]+$/),
    "File of CA certificates (PEM) that are trusted for targets, besides the public ones.",
  ),
  OWN_ADDRESSES: optional(
    kinds.list(
      "a comma-separated list of addresses or CIDR blocks, such as 198.51.100.7,2001:db8::/64",
      kinds.isAddressOrBlock,
    ),
    "Public addresses of this installation (`198.51.100.7`, `2001:db8::/64`), which are refused as targets.",
  ),
  UNSAFE_ALLOWED_TARGETS: optional(
    kinds.list("a comma-separated list of `host:port` or `*.name:port`", kinds.isHostWithPort),
    "Targets that are allowed although private, for tests: `host:port`, `*.name:port`. Refused in production.",
  ),
  EGRESS_PROXY_URL: optional(
    kinds.secret(kinds.address("the http or https URL of a proxy", ["http:", "https:"])),
    "Proxy for all attempts. It resolves the names and must itself refuse private addresses; " +
      "`TARGET_DNS_SERVERS` and `OWN_ADDRESSES` have no effect. Unset: attempts go out directly.",
  ),
  SMTP_URL: optional(
    kinds.smtpServer(),
    "Mail server that notices are sent through: `smtp://user:password@mail.example.com:587` (with TLS by STARTTLS) " +
      "or `smtps://…`. Unset: notices are listed by the API, and no mail is sent.",
  ),
  NOTICES_FROM: optional(
    kinds.mailSender(),
    "Sender of those emails: `notices@example.com` or `Example <notices@example.com>`. Required with `SMTP_URL`.",
  ),
  RATE_LIMIT_REQUESTS: withDefault(
    kinds.wholeNumber(1, 1_000_000),
    "600",
    "Requests per minute for each API key and console session, not counting publishing. Ten times as many for all " +
      "of an account's keys and sessions that act for no user, taken together, and again for those of each user.",
  ),
  PUBLISH_RATE_PER_SECOND: withDefault(
    kinds.wholeNumber(1, 1_000_000),
    "2000",
    "Analyses that an account's keys that act for no user may publish over HTTP per second; more get 429. Its users " +
      "may publish half as many together, and half of that each. Publishing by SQL has no limit.",
  ),
  TRUST_PROXY: withDefault(
    kinds.proxyTrust(),
    "false",
    "Whose `X-Forwarded-For` is trusted: `false` (none), the number of proxies in front, or their addresses.",
  ),
  CONSOLE_ANCESTORS: optional(
    kinds.list("origins such as https://app.example.com, separated by commas", kinds.isOrigin),
    "Origins of pages that may show the console in a frame. Unset: none.",
  ),
  STAFF_JWT: optional(
    kinds.staffJwt(),
    "Signed assertions with which a proxy in front identifies support staff " +
      "([how](operating.md#staff-behind-a-proxy)), as JSON. Unset: none is accepted.",
  ),
  LOG_LEVEL: withDefault(
    kinds.oneOf("trace", "debug", "info", "warn", "error", "fatal", "silent"),
    "info",
    "Minimum level of log lines. `debug` adds a line for each attempt.",
  ),
  LOG_FORMAT: withDefault(
    kinds.oneOf("json", "pretty"),
    "json",
    "Form of log lines: `json` for machines, `pretty` for people, which takes several times as long.",
  ),
  OTEL_EXPORTER_OTLP_ENDPOINT: optional(
    kinds.baseUrl(),
    "URL of an OpenTelemetry collector, without `/v1/traces`, that [traces](operating.md#traces) are sent to " +
      "(OTLP over HTTP, protobuf). Unset: none are made.",
  ),
  OTEL_EXPORTER_OTLP_HEADERS: optional(
    kinds.secret(kinds.text("name=value, separated by commas", /^[^=,]+=[^,]*(?:,[^=,]+=[^,]*)*$/)),
    "Headers of requests to the collector, as `name=value,name=value`; values are percent-encoded.",
  ),
  OTEL_TRACES_SAMPLER_ARG: withDefault(
    kinds.text("a number from 0 to 1", /^(?:0(?:\.\d{1,9})?|1(?:\.0{1,9})?)$/),
    "1",
    "Share of the deliveries to trace that come without a `traceparent`. For the others, their caller decides.",
  ),
  ANALYSIS_RETENTION_SECONDS: withDefault(
    kinds.wholeNumber(7 * DAY_SECONDS, 90 * DAY_SECONDS),
    "604800",
    "How long an analysis stays readable, in seconds; at least 7 days.",
  ),
  FORGET_AFTER_SECONDS: withDefault(
    kinds.wholeNumber(600, 7 * DAY_SECONDS),
    "3600",
    "When an analysis is erased whose endpoint has `forget_after_success`: so many seconds after it was delivered, " +
      "and up to ten minutes more.",
  ),
  LOG_RETENTION_DAYS: withDefault(
    kinds.wholeNumber(7, 3_650),
    "30",
    "How long the delivery log is kept, in days; by default at least as long as analyses.",
  ),
  MOVED_OBJECT_RETENTION_SECONDS: withDefault(
    kinds.wholeNumber(300, 90 * DAY_SECONDS),
    "86400",
    "How long the old object of a renamed document is kept, in seconds; longer than a backup takes.",
  ),
} as const satisfies Record<string, Variable<unknown>>;

/** Of earlier releases, and what holds now: whoever still sets one relies on it, as on an audit log of seven years. */
export const removedVariables: Readonly<Record<string, string>> = {
  RETRY_ATTEMPTS: "a run has 8 attempts; RETRY_WINDOW_SECONDS sets the time over which they are spread",
  CONNECT_TIMEOUT_MS:
    "connecting may take 5 s, through an egress proxy 10 s, and never more than ATTEMPT_DEADLINE_MS",
  RATE_LIMIT_WINDOW_SECONDS: "RATE_LIMIT_REQUESTS counts requests per minute",
  AUDIT_RETENTION_DAYS: "the audit log is kept for 365 days; copy what you need for longer",
  IDEMPOTENCY_RETENTION_SECONDS: "an idempotency key is remembered for a day",
};

function withDefault<T>(kind: kinds.VariableKind<T>, fallback: string, meaning: string): Variable<T> {
  return { kind, fallback, meaning };
}

function optional<T>(kind: kinds.VariableKind<T>, meaning: string): Variable<T | null> {
  return { kind, fallback: null, meaning };
}
