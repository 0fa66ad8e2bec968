// A small certificate authority for tests: every kind of good and bad certificate, for real.
import "reflect-metadata"; // @peculiar/x509 needs it loaded first.

import type { webcrypto } from "node:crypto";
import { isIP } from "node:net";
import * as x509 from "@peculiar/x509";
import { DAY_MS } from "../../src/base/model/time.ts";

export type CertificateRequest = {
  /** Host names (`*.localhost` too) and IP addresses; each becomes a subject alternative name. */
  names: readonly string[];
  /** Default: a day ago. */
  notBefore?: Date;
  /** Default: in a year. */
  notAfter?: Date;
};

/** `certPem` is only the leaf. Clients trust it through the authority's `caPem`; a self-signed one they never trust. */
export type IssuedCertificate = { keyPem: string; certPem: string };

export type CertificateAuthority = {
  caPem: string;
  issue(request: CertificateRequest): Promise<IssuedCertificate>;
  selfSigned(request: CertificateRequest): Promise<IssuedCertificate>;
};

// A P-256 key takes a millisecond to generate; an RSA key takes a hundred.
const ALGORITHM = { name: "ECDSA", namedCurve: "P-256", hash: "SHA-256" } as const;

/** Creates an authority with a new key; its certificates are not trusted under another's `caPem`. */
export async function createCertificateAuthority(
  name = "Sealpost test authority",
): Promise<CertificateAuthority> {
  const keys = await generateKeys();
  const certificate = await x509.X509CertificateGenerator.createSelfSigned({
    ...common({}),
    name: `CN=${name}`,
    keys,
    extensions: [
      new x509.BasicConstraintsExtension(true, 1, true),
      new x509.KeyUsagesExtension(x509.KeyUsageFlags.keyCertSign | x509.KeyUsageFlags.cRLSign, true),
      await x509.SubjectKeyIdentifierExtension.create(keys.publicKey),
    ],
  });

  return {
    caPem: certificate.toString("pem"),
    issue: async (request) => {
      const leafKeys = await generateKeys();
      const leaf = await x509.X509CertificateGenerator.create({
        ...common(request),
        subject: subjectOf(request),
        issuer: certificate.subject,
        publicKey: leafKeys.publicKey,
        signingKey: keys.privateKey,
        extensions: [
          ...leafExtensions(request),
          await x509.AuthorityKeyIdentifierExtension.create(keys.publicKey),
        ],
      });
      return { keyPem: await exportKey(leafKeys.privateKey), certPem: leaf.toString("pem") };
    },
    selfSigned: async (request) => {
      const leafKeys = await generateKeys();
      const leaf = await x509.X509CertificateGenerator.createSelfSigned({
        ...common(request),
        name: subjectOf(request),
        keys: leafKeys,
        extensions: leafExtensions(request),
      });
      return { keyPem: await exportKey(leafKeys.privateKey), certPem: leaf.toString("pem") };
    },
  };
}

let shared: Promise<CertificateAuthority> | null = null;

/** The authority that all receivers of a test process use by default. */
export function sharedAuthority(): Promise<CertificateAuthority> {
  shared ??= createCertificateAuthority();
  return shared;
}

function common({ notBefore, notAfter }: Pick<CertificateRequest, "notBefore" | "notAfter">) {
  return {
    serialNumber: crypto.randomUUID().replaceAll("-", "").replace(/^./, "1"), // never negative, never zero
    notBefore: notBefore ?? new Date(Date.now() - DAY_MS),
    notAfter: notAfter ?? new Date(Date.now() + 365 * DAY_MS),
    signingAlgorithm: ALGORITHM,
  };
}

function subjectOf(request: CertificateRequest): string {
  return `CN=${(request.names[0] ?? "nobody").replace("*", "any")}`;
}

function leafExtensions(request: CertificateRequest): x509.Extension[] {
  const names = request.names.map((value) => ({ type: isIP(value) === 0 ? "dns" : "ip", value }) as const);
  return [
    new x509.BasicConstraintsExtension(false),
    new x509.KeyUsagesExtension(x509.KeyUsageFlags.digitalSignature, true),
    new x509.ExtendedKeyUsageExtension([x509.ExtendedKeyUsage.serverAuth]),
    new x509.SubjectAlternativeNameExtension(names),
  ];
}

function generateKeys(): Promise<webcrypto.CryptoKeyPair> {
  return crypto.subtle.generateKey(ALGORITHM, true, ["sign", "verify"]);
}

async function exportKey(key: webcrypto.CryptoKey): Promise<string> {
  return x509.PemConverter.encode(await crypto.subtle.exportKey("pkcs8", key), "PRIVATE KEY");
}
