// What receivers in every language are tried with, and what they must say: the vectors, and what languages differ in.
import { Buffer } from "node:buffer";
import { createHmac } from "node:crypto";
import { readChallenge } from "../../src/signing/index.ts";
import { type SignatureVector, signatureVectors, standardVectors } from "../signing/vectors.ts";

const SECRET = "whsec_bm90LWEtcmVhbC1zZWNyZXQtb25seS1mb3ItdGVzdHM";
const NOW_SECONDS = 1_763_600_000;
const BODY = Buffer.from('{"id":"1"}');

function mac(timestampText: string, body: Uint8Array = BODY, secret = SECRET): string {
  return createHmac("sha256", secret).update(`${timestampText}.`).update(body).digest("hex");
}

function vector(
  name: string,
  verdict: SignatureVector["verdict"],
  header: string,
  { body = BODY, secrets = [SECRET] }: { body?: Uint8Array; secrets?: string[] } = {},
): SignatureVector {
  const body_base64 = Buffer.from(body).toString("base64");
  return { name, verdict, header, body_base64, secrets, now: NOW_SECONDS, tolerance_seconds: 300 };
}

const v1 = `v1=${mac(String(NOW_SECONDS))}`;
const right = `t=${NOW_SECONDS},${v1}`;
/** Rightly signed, over a spelling of the time that is not the one. */
const oddTime = (text: string) =>
  vector(`time ${JSON.stringify(text)}`, "reject", `t=${text},v1=${mac(text)}`);

/** Accepted; the first three are answered, and all others are not quite challenges. */
export const challenges = [
  { name: "a UUID", text: '{"type":"webhook.challenge","challenge":"5f0c6a0e-7f0f-4c55-9d1f-2f1a3c1f7a10"}' },
  { name: "one character", text: '{"type":"webhook.challenge","challenge":"a"}' },
  { name: "128 characters", text: `{"type":"webhook.challenge","challenge":"${"Z".repeat(128)}"}` },
  { name: "129 characters", text: `{"type":"webhook.challenge","challenge":"${"Z".repeat(129)}"}` },
  { name: "no character", text: '{"type":"webhook.challenge","challenge":""}' },
  { name: "a line break after it", text: '{"type":"webhook.challenge","challenge":"a"}\n' },
  { name: "a line break before it", text: '\n{"type":"webhook.challenge","challenge":"a"}' },
  { name: "a byte order mark before it", text: '\ufeff{"type":"webhook.challenge","challenge":"a"}' },
  { name: "in a longer text", text: '[\n{"type":"webhook.challenge","challenge":"a"}\n]' },
  { name: "NUL after it", text: '{"type":"webhook.challenge","challenge":"a"}\u0000' },
  { name: "another type", text: '{"type":"webhookxchallenge","challenge":"a"}' },
  { name: "markup", text: '{"type":"webhook.challenge","challenge":"<b>"}' },
  { name: "not ASCII", text: '{"type":"webhook.challenge","challenge":"é"}' },
  { name: "long", text: `{"type":"webhook.challenge","challenge":"a"}${" ".repeat(2_000)}` },
];

/** Where languages differ: what ends a line, what is a digit, what a number looks like, what is empty. */
export const traps: readonly SignatureVector[] = [
  vector("right", "accept", right),
  vector(
    "signed by both secrets, and both known",
    "accept",
    `${right},v1=${mac(String(NOW_SECONDS), BODY, "old")}`,
    {
      secrets: [SECRET, "old"],
    },
  ),
  vector("time last", "accept", `${v1},t=${NOW_SECONDS}`),
  oddTime(`0${NOW_SECONDS}`),
  oddTime(`${NOW_SECONDS}\n`),
  oddTime(`${NOW_SECONDS} `),
  oddTime(`\t${NOW_SECONDS}`),
  oddTime("١٧٦٣٦٠٠٠٠٠"),
  oddTime("１７６３６００００"),
  oddTime("1_763_600_000"),
  oddTime(`${NOW_SECONDS}+0`),
  oddTime(`${NOW_SECONDS}=`),
  oddTime("17636e5"),
  oddTime("99999999999999999999999999"),
  oddTime("a[0]"),
  oddTime(""),
  vector("time without =", "reject", `t,${v1}`),
  vector("time twice, the same", "reject", `${right},t=${NOW_SECONDS}`),
  vector("names without =", "reject", `v1,t=${NOW_SECONDS},v1,=,`),
  vector("a line break after the signature", "reject", `${right}\n`),
  vector("white space before the signature", "reject", `t=${NOW_SECONDS}, ${v1}`),
  vector("a signature that is not ASCII", "reject", `t=${NOW_SECONDS},v1=é${"a".repeat(63)}`),
  vector("name in upper case", "reject", `t=${NOW_SECONDS},${v1.replace("v", "V")}`),
  vector("8,192 characters", "accept", `${right},x=${"y".repeat(8_192 - right.length - 3)}`),
  vector("8,193 characters", "reject", `${right},x=${"y".repeat(8_193 - right.length - 3)}`),
  vector("an empty secret beside the right one", "error", right, { secrets: [SECRET, ""] }),
  ...["é€🦉", "s".repeat(64), "s".repeat(65), "%s%d\\x41'\"$(:)|", "\u0001\u007f\u0080"].map((secret) =>
    vector(
      `secret ${JSON.stringify(secret).slice(0, 20)}`,
      "accept",
      right.replace(v1, `v1=${mac(String(NOW_SECONDS), BODY, secret)}`),
      {
        secrets: [SECRET, secret],
      },
    ),
  ),
  ...challenges.map(({ name, text }) => {
    const body = Buffer.from(text);
    const header = `t=${NOW_SECONDS},v1=${mac(String(NOW_SECONDS), body)}`;
    return vector(`challenge: ${name}`, "accept", header, { body });
  }),
  vector("challenge: forged", "reject", right, { body: Buffer.from(challenges[0]!.text) }),
  ...["%s\\x41\\n", "\n\n", "\u0000\u0000", "é".repeat(999)].map((text) => {
    const body = Buffer.from(text);
    const header = `t=${NOW_SECONDS},v1=${mac(String(NOW_SECONDS), body)}`;
    return vector(`body ${JSON.stringify(text).slice(0, 20)}`, "accept", header, { body });
  }),
];

/** One line for each: header, body, now, tolerance, and secrets that each begin with a colon; texts in base64. */
export const trialLines = [...signatureVectors, ...traps].map((vector) => trialLine(vector, vector.header));

/** The packages' beside those: all headers, one a line, and a sixth field that says so. */
export const packageLines = [
  ...trialLines,
  ...standardVectors.map((vector) => {
    const headers = Object.entries(vector.headers).map(([name, value]) => `${name}: ${value}`);
    return `${trialLine(vector, headers.join("\n"))}|headers`;
  }),
];

function trialLine(vector: Omit<SignatureVector, "header">, signed: string): string {
  const base64 = (text: string) => Buffer.from(text).toString("base64");
  const secrets = vector.secrets.map((secret) => `:${base64(secret)}`).join("");
  return [base64(signed), vector.body_base64, vector.now, vector.tolerance_seconds, secrets].join("|");
}

export const expectedVerdicts = [...signatureVectors, ...traps].map(({ name, verdict, ...vector }) => {
  if (verdict !== "accept") return { name, verdict };
  const { header, secrets, now, tolerance_seconds: toleranceSeconds } = vector;
  const rawBody = Buffer.from(vector.body_base64, "base64");
  const answer = readChallenge({ rawBody, header, secrets, now, toleranceSeconds });
  return { name, verdict: answer === null ? verdict : `answer ${answer}` };
});

export const packageVerdicts = [
  ...expectedVerdicts,
  ...standardVectors.map(({ name, verdict }) => ({ name, verdict: verdict as string })),
];

/** Told with the name of what was tried, so that a difference shows what it is about. */
export function namedVerdicts(
  output: string,
): readonly { readonly name: string; readonly verdict: string }[] {
  const verdicts = output.trimEnd().split("\n");
  return verdicts.map((verdict, at) => ({ name: packageVerdicts[at]?.name ?? "one too many", verdict }));
}
