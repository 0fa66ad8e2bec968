import "reflect-metadata"; // @peculiar/x509 needs it loaded first.

import { createPrivateKey, X509Certificate } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:https";
import type { AddressInfo } from "node:net";
import { connect } from "node:tls";
import * as x509 from "@peculiar/x509";
import { describe, expect, onTestFinished, test } from "vitest";
import { createLocalCertificate } from "../../src/app/local-certificate.ts";
import { DAY_MS } from "../../src/base/model/time.ts";

const NAMES = ["localhost", "a.localhost", "127.0.0.1", "::1", "FD00::1:2:1.2.3.4", "fe80::1%eth0"];
const NOW_MS = Date.now();
const EC = { name: "ECDSA", namedCurve: "P-256", hash: "SHA-256" } as const;

/** `null` when a client that trusts `ca` accepts the server, else the client's error code. */
async function refusal(key: string, cert: string, ca: string): Promise<string | null> {
  const server = createServer({ key, cert });
  await once(server.listen(0, "127.0.0.1"), "listening");
  onTestFinished(() => void server.close());
  const { port } = server.address() as AddressInfo;
  const socket = connect({ port, host: "127.0.0.1", servername: "localhost", ca });
  const code = await once(socket, "secureConnect").then(
    () => null,
    (error) => error.code,
  );
  socket.destroy();
  return code;
}

describe("a certificate for this machine", () => {
  test("is for its names and no other", () => {
    const certificate = new X509Certificate(createLocalCertificate(NAMES, NOW_MS).cert);
    for (const name of ["localhost", "a.localhost"]) expect(certificate.checkHost(name)).toBe(name);
    for (const address of ["127.0.0.1", "::1", "fd00::1:2:102:304", "fe80::1"]) {
      expect(certificate.checkIP(address), address).toBe(address);
    }
    expect(certificate.checkHost("b.localhost")).toBeUndefined();
    expect(certificate.checkIP("127.0.0.2")).toBeUndefined();
    expect(certificate.checkIP("::2")).toBeUndefined();
  });

  test("is valid for a year, with a key and a number of its own", () => {
    const made = createLocalCertificate(NAMES, NOW_MS);
    const [one, other] = [made, createLocalCertificate(NAMES, NOW_MS)].map(
      ({ cert }) => new X509Certificate(cert),
    );
    const second = (ms: number) => Math.floor(ms / 1_000) * 1_000;
    expect(Date.parse(one!.validFrom)).toBe(second(NOW_MS - DAY_MS));
    expect(Date.parse(one!.validTo)).toBe(second(NOW_MS + 365 * DAY_MS));
    expect(one!.checkPrivateKey(createPrivateKey(made.key))).toBe(true);
    expect(other!.checkPrivateKey(createPrivateKey(made.key))).toBe(false);
    expect(one!.serialNumber).not.toBe(other!.serialNumber);
  });

  test("is trusted by who has it, and by nobody else", async () => {
    const [made, other] = [createLocalCertificate(NAMES, NOW_MS), createLocalCertificate(NAMES, NOW_MS)];
    expect(await refusal(made.key, made.cert, made.cert)).toBeNull();
    expect(await refusal(made.key, made.cert, other.cert)).toBe("DEPTH_ZERO_SELF_SIGNED_CERT");
  });

  test("is no authority: what its key signs is not trusted", async () => {
    const made = createLocalCertificate(NAMES, NOW_MS);
    const pkcs8 = createPrivateKey(made.key).export({ type: "pkcs8", format: "der" });
    const signingKey = await crypto.subtle.importKey("pkcs8", new Uint8Array(pkcs8), EC, false, ["sign"]);
    const keys = await crypto.subtle.generateKey(EC, true, ["sign", "verify"]);
    const forged = await x509.X509CertificateGenerator.create({
      subject: "CN=localhost",
      issuer: new x509.X509Certificate(made.cert).subject,
      notBefore: new Date(NOW_MS - DAY_MS),
      notAfter: new Date(NOW_MS + DAY_MS),
      publicKey: keys.publicKey,
      signingKey,
      signingAlgorithm: EC,
      extensions: [new x509.SubjectAlternativeNameExtension([{ type: "dns", value: "localhost" }])],
    });
    const key = x509.PemConverter.encode(
      await crypto.subtle.exportKey("pkcs8", keys.privateKey),
      "PRIVATE KEY",
    );
    const chain = `${forged.toString("pem")}\n${made.cert}`;
    expect(await refusal(key, chain, made.cert)).toBe("INVALID_PURPOSE");
  });
});
