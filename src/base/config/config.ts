import { createPrivateKey, X509Certificate } from "node:crypto";
import { readFileSync } from "node:fs";
import { DAY_SECONDS } from "../model/time.ts";
import { removedVariables, type Variable, variables } from "./variables.ts";

type Camel<Name extends string> = Name extends `${infer Head}_${infer Tail}`
  ? `${Lowercase<Head>}${Capitalize<Camel<Tail>>}`
  : Lowercase<Name>;

type ValueOf<V> = V extends Variable<infer T> ? T : never;

/** One field per variable (`ATTEMPT_DEADLINE_MS`: `attemptDeadlineMs`); null where it is unset and has no default. */
export type Config = {
  readonly [Name in keyof typeof variables as Camel<Name>]: ValueOf<(typeof variables)[Name]>;
};

/** The environment is not valid. Holds all problems at once, so that they can be fixed together. */
export class ConfigError extends Error {
  override readonly name = "ConfigError";
  /** One sentence each: the variable, what was found (never a secret), what is expected. */
  readonly problems: readonly string[];

  constructor(problems: readonly string[]) {
    super(`The configuration is not valid. ${problems.join(" ")}`);
    this.problems = Object.freeze([...problems]);
  }
}

/** Reads and validates the environment; an empty variable counts as unset. @throws ConfigError with all problems */
export function readConfig(env: Environment): Config {
  const problems: string[] = [];
  const values: Values & Record<string, unknown> = {};
  for (const [name, variable] of Object.entries<Variable<unknown>>(variables)) {
    const { found, problem, file = name } = lookUp(name, variable, env);
    if (problem) problems.push(problem);
    if (found === undefined) continue;
    const parsed = found === null ? { success: true, data: null } : variable.kind.schema.safeParse(found);
    if (parsed.success) values[camel(name)] = parsed.data;
    else problems.push(`${file} ${foundText(variable, found ?? "")} but must be ${variable.kind.expected}.`);
  }
  for (const [name, now] of Object.entries(removedVariables)) {
    if (env[name]) problems.push(`${name} is set but is no longer read: ${now}. Unset it.`);
  }
  follow(values, env);
  problems.push(...findConflicts(values));
  if (problems.length > 0) throw new ConfigError(problems);
  return Object.freeze(values) as Config;
}

/** The variables that are set and not secret, by name. @param env has been read with `readConfig` */
export function plainSettings(env: Environment): Readonly<Record<string, string>> {
  const set = Object.entries<Variable<unknown>>(variables).flatMap(([name, { kind }]) => {
    const value = env[name];
    return value && !kind.isSecret ? [[name, value] as const] : [];
  });
  return Object.fromEntries(set);
}

type Environment = Readonly<Record<string, string | undefined>>;
type Found = { readonly found?: string | null; readonly problem?: string; readonly file?: string };

/** A secret may be in a file that `…_FILE` names, as orchestrators mount them: `file`. `found` null: it is unset. */
function lookUp(name: string, { kind, fallback }: Variable<unknown>, env: Environment): Found {
  const path = kind.isSecret && env[`${name}_FILE`];
  if (!path) return { found: env[name] || fallback };
  if (env[name]) return { problem: `${name} and ${name}_FILE are both set: unset one of them.` };
  const named = `${name}_FILE is ${JSON.stringify(path)}, which`;
  try {
    const found = readFileSync(path, "utf8").replace(/\r?\n$/, "");
    return found === "" ? { problem: `${named} is empty.` } : { found, file: named };
  } catch (error) {
    return { problem: `${named} cannot be read: ${(error as NodeJS.ErrnoException).code}.` };
  }
}

type Values = { -readonly [Field in keyof Config]?: Config[Field] };

/** A default follows the variable that it must fit, so that who changes the one need not know of the other. */
function follow(values: Values, env: Environment): void {
  const { analysisRetentionSeconds = 0, logRetentionDays = 0 } = values;
  if (env.LOG_RETENTION_DAYS) return;
  values.logRetentionDays = Math.max(logRetentionDays, Math.ceil(analysisRetentionSeconds / DAY_SECONDS));
}

const SHOWN_CHARACTERS_MAX = 60;

function foundText(variable: Variable<unknown>, found: string): string {
  if (variable.kind.isSecret) return "has a value that is not shown here";
  const isLong = found.length > SHOWN_CHARACTERS_MAX;
  return `is ${JSON.stringify(found.slice(0, SHOWN_CHARACTERS_MAX))}${isLong ? "…" : ""}`;
}

function camel(name: string): string {
  return name.toLowerCase().replace(/_(.)/g, (_, letter: string) => letter.toUpperCase());
}

/** Variables that are valid alone but not together. A field that is not valid is absent, and not checked again. */
function findConflicts(config: Values): string[] {
  const { smtpUrl, objectStoreUrl, pagesUrl, publicUrl, analysisRetentionSeconds, logRetentionDays } = config;
  const problems: string[] = [];
  const needs = (name: string, value: unknown, why: string) => {
    if (value === null) problems.push(`${name} is unset but required when ${why}`);
  };
  if (config.environment === "production") {
    const generate = "generate one with `openssl rand -base64 32`";
    needs("SECRETS_KEY", config.secretsKey, `ENVIRONMENT is production: ${generate}.`);
    if (config.unsafeAllowedTargets) {
      problems.push("UNSAFE_ALLOWED_TARGETS is set but must be unset when ENVIRONMENT is production.");
    }
    const urls = {
      "OBJECT_STORE_URL's endpoint": objectStoreUrl?.endpoint,
      "STAFF_JWT's jwks_url": config.staffJwt?.jwks_url,
      PAGES_URL: pagesUrl,
    };
    for (const [name, url] of Object.entries(urls)) {
      if (url?.startsWith("http:"))
        problems.push(`${name} must be an https URL when ENVIRONMENT is production.`);
    }
  }
  if (config.secretsKeyPrevious && config.secretsKey?.equals(config.secretsKeyPrevious))
    problems.push("SECRETS_KEY_PREVIOUS is the same key as SECRETS_KEY: unset it, or give the other one.");
  for (const name of ["DATABASE_URL", "READ_DATABASE_URL"] as const) {
    const url = config[name === "DATABASE_URL" ? "databaseUrl" : "readDatabaseUrl"];
    const given = url ? new URL(url).searchParams : new URLSearchParams();
    const files = ["sslrootcert", "sslcert", "sslkey"].filter((parameter) => given.get(parameter));
    const faults = files.flatMap((parameter) => {
      const path = given.get(parameter)!;
      const fault = faultOf(path, parameter === "sslkey");
      return fault === null ? [] : [`${name} has ${parameter}=${path}, which ${fault}.`];
    });
    const [cert, key] = [given.get("sslcert"), given.get("sslkey")];
    if (cert && key && faults.length === 0 && !isItsKey(cert, key))
      faults.push(`${name} has sslkey=${key}, which is not the key of sslcert=${cert}.`);
    problems.push(...faults);
  }
  if (smtpUrl) {
    needs("NOTICES_FROM", config.noticesFrom, "SMTP_URL is set.");
    needs("PUBLIC_URL", publicUrl, "SMTP_URL is set: links in emails lead there.");
  }
  if (objectStoreUrl) {
    needs("AWS_ACCESS_KEY_ID", config.awsAccessKeyId, "OBJECT_STORE_URL is set.");
    needs("AWS_SECRET_ACCESS_KEY", config.awsSecretAccessKey, "OBJECT_STORE_URL is set.");
  }
  // Users write pages, and a host's cookies are sent to all of its ports.
  const pagesHost = pagesUrl && new URL(pagesUrl).hostname;
  if (pagesHost && pagesHost === (publicUrl ? new URL(publicUrl).hostname : config.host)) {
    problems.push(
      `PAGES_URL has the host ${pagesHost} but must have a different one from ${publicUrl ? "PUBLIC_URL" : "HOST"}: ` +
        "pages must not share a host with the API and the console. On your own machine, use localhost for " +
        "one and 127.0.0.1 for the other.",
    );
  }
  if (
    analysisRetentionSeconds &&
    logRetentionDays &&
    logRetentionDays * DAY_SECONDS < analysisRetentionSeconds
  ) {
    problems.push(
      `LOG_RETENTION_DAYS is ${logRetentionDays} but must be at least ` +
        `ANALYSIS_RETENTION_SECONDS, which is ${analysisRetentionSeconds}.`,
    );
  }
  return problems;
}

/** What is wrong with a file of certificates, or of a key, that is read as text; null: nothing. */
function faultOf(path: string, isKey: boolean): string | null {
  let text: string;
  try {
    text = readFileSync(path, "utf8");
  } catch (error) {
    const { code = "unreadable" } = error as NodeJS.ErrnoException;
    return `cannot be read (${code}): mount the file, or correct the path`;
  }
  try {
    if (isKey) createPrivateKey(text);
    else new X509Certificate(text);
    return null;
  } catch {
    return isKey
      ? "has no key in PEM without a passphrase"
      : "has no certificate in PEM, or several that do not begin on lines of their own";
  }
}

const isItsKey = (cert: string, key: string) =>
  new X509Certificate(readFileSync(cert)).checkPrivateKey(createPrivateKey(readFileSync(key)));
