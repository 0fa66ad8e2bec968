import { createPrivateKey, generateKeyPairSync, randomBytes, sign, X509Certificate } from "node:crypto";
import { readFile, rm, writeFile } from "node:fs/promises";
import { isIP, isIPv4 } from "node:net";
import { DAY_MS } from "../base/model/time.ts";
import { type Announce, UsageError } from "./output.ts";

/** In PEM. */
export type LocalCertificate = { readonly key: string; readonly cert: string };

const VALIDITY_DAYS = 365;

/**
 * A certificate with a new key for receivers on this machine. It signs itself, so whoever is given it trusts it, and it
 * is no authority: its key makes no other certificate that they would trust.
 *
 * Written out here, because nothing else in production needs a library for certificates, and Node only reads them.
 * @param names host names and IP addresses
 * @param nowMs Unix time in milliseconds; valid from a day before, until a year later
 */
export function createLocalCertificate(names: readonly string[], nowMs: number): LocalCertificate {
  const { publicKey, privateKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const name = sequence(
    der(SET, sequence(COMMON_NAME, der(UTF8_STRING, Buffer.from("Sealpost local receiver")))),
  );
  const algorithm = sequence(ECDSA_WITH_SHA256);
  const extensions = [
    sequence(BASIC_CONSTRAINTS, der(OCTET_STRING, sequence())),
    sequence(EXTENDED_KEY_USAGE, der(OCTET_STRING, sequence(SERVER_AUTH))),
    sequence(SUBJECT_ALT_NAME, der(OCTET_STRING, sequence(...names.map(alternativeName)))),
  ];
  const contents = sequence(
    der(VERSION, der(INTEGER, Buffer.of(2))),
    // Its first byte is set, so that it is neither negative nor zero.
    der(INTEGER, Buffer.concat([Buffer.of(1), randomBytes(15)])),
    algorithm,
    name,
    sequence(utcTime(nowMs - DAY_MS), utcTime(nowMs + VALIDITY_DAYS * DAY_MS)),
    name,
    publicKey.export({ type: "spki", format: "der" }),
    der(EXTENSIONS, sequence(...extensions)),
  );
  const signature = der(BIT_STRING, Buffer.of(0), sign("sha256", contents, privateKey));
  return {
    key: privateKey.export({ type: "pkcs8", format: "pem" }).toString(),
    cert: new X509Certificate(sequence(contents, algorithm, signature)).toString(),
  };
}

// Tags of DER; the last two are explicit in a certificate's contents (RFC 5280, 4.1).
const [INTEGER, BIT_STRING, OCTET_STRING, UTF8_STRING] = [0x02, 0x03, 0x04, 0x0c] as const;
const [UTC_TIME, SEQUENCE, SET] = [0x17, 0x30, 0x31] as const;
const [VERSION, EXTENSIONS] = [0xa0, 0xa3] as const;
const [DNS_NAME, IP_ADDRESS] = [0x82, 0x87] as const;

const COMMON_NAME = objectId("550403");
const BASIC_CONSTRAINTS = objectId("551d13");
const SUBJECT_ALT_NAME = objectId("551d11");
const EXTENDED_KEY_USAGE = objectId("551d25");
const SERVER_AUTH = objectId("2b06010505070301");
const ECDSA_WITH_SHA256 = objectId("2a8648ce3d040302");

function der(tag: number, ...parts: readonly Uint8Array[]): Buffer {
  const content = Buffer.concat(parts);
  const { length } = content;
  const size =
    length < 0x80 ? [length] : length < 0x100 ? [0x81, length] : [0x82, length >> 8, length & 0xff];
  return Buffer.concat([Buffer.of(tag, ...size), content]);
}

function sequence(...parts: readonly Uint8Array[]): Buffer {
  return der(SEQUENCE, ...parts);
}

function objectId(hex: string): Buffer {
  return der(0x06, Buffer.from(hex, "hex"));
}

/** `YYMMDDhhmmssZ`, until 2049. */
function utcTime(ms: number): Buffer {
  const digits = new Date(ms).toISOString().replace(/\D/g, "").slice(2, 14);
  return der(UTC_TIME, Buffer.from(`${digits}Z`));
}

function alternativeName(name: string): Buffer {
  return isIP(name) === 0 ? der(DNS_NAME, Buffer.from(name)) : der(IP_ADDRESS, addressBytes(name));
}

function addressBytes(address: string): Buffer {
  if (isIPv4(address)) return Buffer.from(address.split(".").map(Number));
  // A URL's form has lower-case groups without a dotted end.
  const { hostname } = new URL(`http://[${address.replace(/%.*/, "")}]`);
  const [head = "", tail = ""] = hostname
    .slice(1, -1)
    .split("::")
    .map((groups) => groups.replace(/[^:]+/g, (group) => group.padStart(4, "0")).replaceAll(":", ""));
  return Buffer.from(head.padEnd(32 - tail.length, "0") + tail, "hex");
}

/**
 * The certificate of a receiver on this machine. With `caFile` it is kept there, and its key beside it (`.key`), for
 * the next start: a service reads what it trusts once, and trusts the receiver again.
 * @param caFile null: a certificate that nobody knows
 * @throws UsageError when the files cannot be written
 */
export async function issueLocalCertificate(
  host: string,
  caFile: string | null,
  now: () => number,
  announce: Announce,
): Promise<LocalCertificate> {
  const certificate = () =>
    createLocalCertificate([...new Set(["localhost", "127.0.0.1", "::1", host])], now());
  if (caFile === null) return certificate();
  const read = (path: string) => readFile(path, "utf8").catch(() => null);
  const [cert, key] = [await read(caFile), await read(`${caFile}.key`)];
  if (cert !== null && key !== null && isUsable({ key, cert }, host, now())) return { key, cert };

  const made = certificate();
  await writeFiles(caFile, made);
  if (cert !== null) {
    const text = `Replaced the certificate in ${caFile}: restart the service that trusts the old one (TARGET_CA_FILE).`;
    announce("authority_replaced", { ca_file: caFile }, text);
  }
  return made;
}

/** Whether it is for this host, its key is with it, and it holds for another day. */
function isUsable({ key, cert }: LocalCertificate, host: string, nowMs: number): boolean {
  try {
    const certificate = new X509Certificate(cert);
    return (
      certificate.checkPrivateKey(createPrivateKey(key)) &&
      (isIP(host) === 0 ? certificate.checkHost(host) : certificate.checkIP(host)) !== undefined &&
      Date.parse(certificate.validTo) > nowMs + DAY_MS
    );
  } catch {
    // Something else lies there.
    return false;
  }
}

async function writeFiles(caFile: string, { key, cert }: LocalCertificate): Promise<void> {
  const keyFile = `${caFile}.key`;
  try {
    // Made anew, so that nobody else has it open.
    await rm(keyFile, { force: true });
    await writeFile(keyFile, key, { mode: 0o600, flag: "wx" });
    await writeFile(caFile, cert);
  } catch (error) {
    const { code, path = caFile } = error as NodeJS.ErrnoException;
    const message = `${path} cannot be written (${code}). Name another file with --ca-file.`;
    throw new UsageError(message, { cause: error });
  }
}
