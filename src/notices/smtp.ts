import { Readable } from "node:stream";
import MailComposer from "nodemailer/lib/mail-composer";
import SMTPConnection from "nodemailer/lib/smtp-connection";

/** A plain-text mail to one address. */
export type Mail = {
  readonly id: string;
  readonly to: string;
  readonly subject: string;
  readonly text: string;
};

/** How sending one ended. `error`: in the server's or the system's words, on one line, without credentials. */
export type SendResult =
  | { readonly kind: "sent" }
  /** Not one byte of it has left, or the server has refused it. */
  | { readonly kind: "not_sent"; readonly error: string; readonly isRefusedForGood: boolean }
  /** It was on its way when the connection ended. */
  | { readonly kind: "perhaps_sent"; readonly error: string };

/** Never rejects. The signal ends it at once. */
export type SendMail = (mail: Mail, signal: AbortSignal) => Promise<SendResult>;

export type SmtpOptions = {
  /** `smtp://` (STARTTLS where the server offers it, and always with a user name) or `smtps://`. */
  readonly url: string;
  /** The sender: `name@example.com` or `Name <name@example.com>`. */
  readonly from: string;
  readonly limits?: typeof SMTP_LIMITS;
  /** PEM; absent: the public certificate authorities. */
  readonly ca?: string;
};

export const SMTP_LIMITS = {
  /** From the name's look-up to the end of TLS. */
  connectMs: 10_000,
  /** Without a byte from the server. */
  silenceMs: 20_000,
  /** For everything, however much the server has to say. */
  totalMs: 30_000,
  answerBytesMax: 64 * 1_024,
};

const PORTS = { "smtp:": 587, "smtps:": 465 } as const;
const ERROR_CHARS_MAX = 300;

/**
 * Sends by nodemailer's connection, not by the transport above it: that one does not tell whether the message had begun
 * to leave when the connection ended, which is the difference between trying again and a second mail.
 */
export function createSendMail({ url, from, ca, limits = SMTP_LIMITS }: SmtpOptions): SendMail {
  const server = new URL(url);
  const credentials = {
    user: decodeURIComponent(server.username),
    pass: decodeURIComponent(server.password),
  };
  const hasCredentials = credentials.user !== "";
  const host = server.hostname.replace(/^\[|\]$/g, "");
  const senderHost = /@([^\s>]+)>?$/.exec(from)?.[1] ?? host;

  const options = {
    host,
    port: server.port === "" ? PORTS[server.protocol as keyof typeof PORTS] : Number(server.port),
    secure: server.protocol === "smtps:",
    requireTLS: hasCredentials && server.protocol === "smtp:",
    name: senderHost,
    dnsTimeout: limits.connectMs,
    connectionTimeout: limits.connectMs,
    greetingTimeout: limits.connectMs,
    socketTimeout: limits.silenceMs,
    socketCloseTimeout: 0,
    maxResponseSize: limits.answerBytesMax,
    ...(ca === undefined ? {} : { tls: { ca } }),
  };

  return async (mail, signal) => {
    let hasBegun = false;
    const { message, envelope } = await compose(mail, from, senderHost);
    const connection = new SMTPConnection(options);
    const ended = Promise.withResolvers<SendResult>();
    const fail = (error: unknown) => ended.resolve(failure(error, hasBegun));
    const stop = () => fail(signal.reason);
    const timer = setTimeout(() => fail(new Error("no end within the time for a mail")), limits.totalMs);
    signal.addEventListener("abort", stop, { once: true });
    connection.on("error", fail);

    const send = () => {
      const body = new Readable({
        // First read once the server has agreed to take the message.
        read: () => {
          hasBegun = true;
          body.push(message);
          body.push(null);
        },
      });
      connection.send(envelope, body, (error) => (error ? fail(error) : ended.resolve({ kind: "sent" })));
    };
    connection.connect((error) => {
      if (error) fail(error);
      else if (hasCredentials)
        connection.login({ credentials }, (failed) => (failed ? fail(failed) : send()));
      else send();
    });
    if (signal.aborted) stop();

    const result = await ended.promise;
    clearTimeout(timer);
    signal.removeEventListener("abort", stop);
    connection.close();
    return result;
  };
}

async function compose(mail: Mail, from: string, senderHost: string) {
  const node = new MailComposer({
    from,
    to: mail.to,
    subject: mail.subject,
    text: mail.text,
    messageId: `<${mail.id}@${senderHost}>`,
    // So that no out-of-office answer comes back.
    headers: { "auto-submitted": "auto-generated" },
    disableFileAccess: true,
    disableUrlAccess: true,
  }).compile();
  const { from: sender, to } = node.getEnvelope();
  if (sender === false || to.length !== 1) throw new Error("a mail has one sender and one recipient");
  return { message: await node.build(), envelope: { from: sender, to } };
}

function failure(error: unknown, hasBegun: boolean): SendResult {
  const { message, responseCode, command } = error as Refusal;
  const text = oneLine(message);
  // An answer with a code is the server's word that it has not taken the mail.
  if (hasBegun && responseCode === undefined) return { kind: "perhaps_sent", error: text };
  // Of the recipient or the mail. What is wrong with our credentials or sender, an operator can put right.
  const isOfMail = command === "RCPT TO" || command === "DATA";
  return { kind: "not_sent", error: text, isRefusedForGood: isOfMail && (responseCode ?? 0) >= 500 };
}

type Refusal = Error & { readonly responseCode?: number; readonly command?: string };

function oneLine(text: string): string {
  return text
    .replace(/\p{Cc}+/gu, " ")
    .slice(0, ERROR_CHARS_MAX)
    .toWellFormed();
}
