// A small certificate authority for tests: every kind of good and bad certificate, for real.
import * as authorities from "../../src/app/certificate-authority.ts";
import { DAY_MS } from "../../src/base/model/time.ts";

export type { IssuedCertificate } from "../../src/app/certificate-authority.ts";

export type CertificateRequest = {
  /** Host names (`*.localhost` too) and IP addresses; each becomes a subject alternative name. */
  names: readonly string[];
  /** Default: a day ago. */
  notBefore?: Date;
  /** Default: in a year. */
  notAfter?: Date;
};

export type CertificateAuthority = {
  caPem: string;
  issue(request: CertificateRequest): Promise<authorities.IssuedCertificate>;
  selfSigned(request: CertificateRequest): Promise<authorities.IssuedCertificate>;
};

/** Creates a new authority; its certificates are not trusted under another's `caPem`. */
export async function createCertificateAuthority(
  name = "Sealpost test authority",
): Promise<CertificateAuthority> {
  const authority = await authorities.createCertificateAuthority(name, usualValidity());
  return {
    caPem: authority.caPem,
    issue: (request) => authority.issue({ ...usualValidity(), ...request }),
    selfSigned: (request) => authority.selfSigned({ ...usualValidity(), ...request }),
  };
}

let shared: Promise<CertificateAuthority> | null = null;

/** The authority that all receivers of a test process use by default. */
export function sharedAuthority(): Promise<CertificateAuthority> {
  shared ??= createCertificateAuthority();
  return shared;
}

function usualValidity() {
  return { notBefore: new Date(Date.now() - DAY_MS), notAfter: new Date(Date.now() + 365 * DAY_MS) };
}
