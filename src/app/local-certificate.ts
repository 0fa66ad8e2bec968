import { createPrivateKey, X509Certificate } from "node:crypto";
import { readFile, rm, writeFile } from "node:fs/promises";
import { isIP } from "node:net";
import { DAY_MS } from "../base/model/time.ts";
import type { IssuedCertificate } from "./certificate-authority.ts";
import { type Announce, UsageError } from "./output.ts";

const VALIDITY_MS = 365 * DAY_MS;

/**
 * A certificate for a receiver on this machine. With `caFile`, its authority is written there, and the certificate with
 * its key beside it (`.key`), for the next start: a service reads what it trusts once, and trusts the receiver again.
 * The authority's own key is kept nowhere, so that what lies there is good for this receiver alone.
 * @param caFile null: an authority that nobody knows
 * @throws UsageError when the files cannot be written
 */
export async function issueLocalCertificate(
  host: string,
  caFile: string | null,
  now: () => number,
  announce: Announce,
): Promise<IssuedCertificate> {
  const found = caFile === null ? null : await readFiles(caFile);
  const kept = found && keptCertificate(found, host, now());
  if (kept) return kept;

  // Imported here, so that other commands do not spend time and memory on it.
  const { createCertificateAuthority } = await import("./certificate-authority.ts");
  const validity = { notBefore: new Date(now() - DAY_MS), notAfter: new Date(now() + VALIDITY_MS) };
  const authority = await createCertificateAuthority("Sealpost local receiver", validity);
  const names = [...new Set(["localhost", "127.0.0.1", "::1", host])];
  const issued = await authority.issue({ names, ...validity });
  if (caFile === null) return issued;
  await writeFiles(caFile, { ca: authority.caPem, ...issued });
  if (found !== null) {
    const text = `Replaced the authority in ${caFile}: restart the service that trusts the old one (TARGET_CA_FILE).`;
    announce("authority_replaced", { ca_file: caFile }, text);
  }
  return issued;
}

type Files = { readonly ca: string; readonly keyAndCertificate: string | null };

/** Null when there is no such authority yet. */
async function readFiles(caFile: string): Promise<Files | null> {
  const read = (path: string) => readFile(path, "utf8").catch(() => null);
  const ca = await read(caFile);
  return ca === null ? null : { ca, keyAndCertificate: await read(keyFileOf(caFile)) };
}

/** Null when it is not for this host, not of this authority, or will not hold for another day. */
function keptCertificate(
  { ca, keyAndCertificate }: Files,
  host: string,
  nowMs: number,
): IssuedCertificate | null {
  const [keyPem, certPem] = keyAndCertificate?.split(/(?=-----BEGIN CERTIFICATE-----)/) ?? [];
  if (keyPem === undefined || certPem === undefined) return null;
  try {
    const authority = new X509Certificate(ca);
    const certificate = new X509Certificate(certPem);
    const holds =
      certificate.verify(authority.publicKey) &&
      certificate.checkPrivateKey(createPrivateKey(keyPem)) &&
      (isIP(host) === 0 ? certificate.checkHost(host) : certificate.checkIP(host)) !== undefined &&
      Date.parse(certificate.validTo) > nowMs + DAY_MS;
    return holds ? { keyPem, certPem } : null;
  } catch {
    // Something else lies there.
    return null;
  }
}

async function writeFiles(
  caFile: string,
  { ca, keyPem, certPem }: IssuedCertificate & { readonly ca: string },
): Promise<void> {
  try {
    // Made anew, so that nobody else has it open.
    await rm(keyFileOf(caFile), { force: true });
    await writeFile(keyFileOf(caFile), `${keyPem.trimEnd()}\n${certPem}`, { mode: 0o600, flag: "wx" });
    await writeFile(caFile, ca);
  } catch (error) {
    const { code, path = caFile } = error as NodeJS.ErrnoException;
    const message = `${path} cannot be written (${code}). Name another file with --ca-file.`;
    throw new UsageError(message, { cause: error });
  }
}

function keyFileOf(caFile: string): string {
  return `${caFile}.key`;
}
