// A real SMTP server on 127.0.0.1, and what stands in its place when it is ill.
import { once } from "node:events";
import { type AddressInfo, createServer, type Server, type Socket } from "node:net";
import { text } from "node:stream/consumers";
import { SMTPServer } from "smtp-server";
import { sharedAuthority } from "./certificates.ts";
import { patience, patientSignal } from "./time-limits.ts";

export type ReceivedMail = {
  readonly from: string;
  readonly to: readonly string[];
  /** By their names in small letters; decoded. */
  readonly headers: ReadonlyMap<string, string>;
  readonly text: string;
  /** As it came. */
  readonly raw: string;
  readonly isSecure: boolean;
  readonly user: string | null;
};

export type MailServerOptions = {
  /** TLS from the first byte; otherwise STARTTLS is offered, unless `plain`. */
  readonly secure?: boolean;
  readonly plain?: boolean;
  /** Whoever does not log in with these is refused. */
  readonly credentials?: { readonly user: string; readonly password: string };
  /** Takes the whole message and never says that it has. */
  readonly hangsAfterMessage?: boolean;
  /** An answer to RCPT TO, or to the message, such as `550 no such mailbox`; null: it is taken. */
  readonly refusesRecipient?: (address: string) => string | null;
  readonly refusesMessage?: () => string | null;
};

export type MailServer = {
  readonly port: number;
  readonly url: string;
  readonly caPem: string;
  /** Whole messages, those included that were not acknowledged. */
  readonly mails: readonly ReceivedMail[];
  /** Resolves with the first `count` mails. */
  waitForMails(count: number, timeoutMs?: number): Promise<readonly ReceivedMail[]>;
  close(): Promise<void>;
};

export async function startMailServer(options: MailServerOptions = {}): Promise<MailServer> {
  const authority = await sharedAuthority();
  const { keyPem, certPem } = await authority.issue({ names: ["localhost", "127.0.0.1"] });
  const { credentials, secure = false } = options;
  const mails: ReceivedMail[] = [];
  const changed = new EventTarget();
  const server = new SMTPServer({
    secure,
    key: keyPem,
    cert: certPem,
    disabledCommands: options.plain ? ["STARTTLS"] : [],
    allowInsecureAuth: options.plain ?? false,
    authOptional: credentials === undefined,
    // Clients that have hung up need not be waited for.
    closeTimeout: 1,
    logger: false,
    onAuth: (auth, _session, done) => {
      const isRight = auth.username === credentials?.user && auth.password === credentials?.password;
      if (isRight) done(null, { user: auth.username });
      else done(answer("535 wrong user name or password"));
    },
    onRcptTo: ({ address }, _session, done) => done(answerOrNull(options.refusesRecipient?.(address))),
    onData: (stream, session, done) => {
      void text(stream).then((raw) => {
        const { mailFrom, rcptTo } = session.envelope;
        mails.push({
          from: mailFrom === false ? "" : mailFrom.address,
          to: rcptTo.map(({ address }) => address),
          ...readMail(raw),
          isSecure: session.secure,
          user: session.user ? String(session.user) : null,
        });
        changed.dispatchEvent(new Event("mail"));
        if (!options.hangsAfterMessage) done(answerOrNull(options.refusesMessage?.()));
      });
    },
  });
  // Connections that are cut are what some tests are about.
  server.on("error", () => undefined);
  server.listen(0, "127.0.0.1");
  await once(server.server, "listening");
  const { port } = server.server.address() as AddressInfo;
  const user =
    credentials === undefined ? "" : `${credentials.user}:${encodeURIComponent(credentials.password)}@`;
  return {
    port,
    url: `${secure ? "smtps" : "smtp"}://${user}localhost:${port}`,
    caPem: authority.caPem,
    mails,
    waitForMails: async (count, timeoutMs = 10_000) => {
      const signal = patientSignal(timeoutMs);
      while (mails.length < count) {
        await new Promise<void>((resolve, reject) => {
          changed.addEventListener("mail", () => resolve(), { once: true });
          const late = () =>
            reject(new Error(`${mails.length} of ${count} mails in ${patience(timeoutMs)} ms`));
          signal.addEventListener("abort", late, { once: true });
        });
      }
      return mails.slice(0, count);
    },
    close: () => new Promise((resolve) => server.close(() => resolve())),
  };
}

export type IllServer = {
  readonly url: string;
  /** Connections that it has taken. */
  readonly connectionsCount: number;
  /** Resolves when another client connects. */
  nextConnection(): Promise<unknown>;
  close(): Promise<void>;
};

/** Takes every connection, and then does what it is told to, or nothing at all. */
export async function startIllServer(
  onSocket: (socket: Socket) => void = () => undefined,
): Promise<IllServer> {
  const sockets = new Set<Socket>();
  let connectionsCount = 0;
  const server: Server = createServer((socket) => {
    connectionsCount += 1;
    sockets.add(socket);
    socket.on("error", () => undefined).on("close", () => sockets.delete(socket));
    socket.resume();
    onSocket(socket);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    url: `smtp://127.0.0.1:${(server.address() as AddressInfo).port}`,
    get connectionsCount() {
      return connectionsCount;
    },
    nextConnection: () => once(server, "connection"),
    close: async () => {
      for (const socket of sockets) socket.destroy();
      server.close();
      await once(server, "close");
    },
  };
}

/** Sends without end, and never a whole answer. */
export function flood(socket: Socket): void {
  const piece = Buffer.alloc(1_024, "x");
  const send = () => {
    while (!socket.destroyed && socket.write(piece));
  };
  socket.on("drain", send);
  send();
}

/** A line of a greeting every now and then, and never its last. */
export function drip(socket: Socket): void {
  const timer = setInterval(() => socket.write("220-wait\r\n"), 20);
  socket.on("close", () => clearInterval(timer));
}

function answer(line: string): Error {
  return Object.assign(new Error(line.slice(4)), { responseCode: Number(line.slice(0, 3)) });
}

function answerOrNull(line: string | null | undefined): Error | null {
  return line === null || line === undefined ? null : answer(line);
}

function readMail(raw: string): Pick<ReceivedMail, "headers" | "text" | "raw"> {
  const [head = "", ...body] = raw.split("\r\n\r\n");
  const lines = head.replace(/\r\n[ \t]+/g, " ").split("\r\n");
  const headers = new Map(
    lines.map((line) => {
      const [name = "", ...value] = line.split(": ");
      return [name.toLowerCase(), decodedWords(value.join(": "))];
    }),
  );
  const encoded = body.join("\r\n\r\n");
  const encoding = headers.get("content-transfer-encoding");
  const decoded =
    encoding === "quoted-printable"
      ? fromQuotedPrintable(encoded)
      : encoding === "base64"
        ? Buffer.from(encoded, "base64").toString()
        : encoded;
  return { headers, text: decoded.replaceAll("\r\n", "\n"), raw };
}

function fromQuotedPrintable(encoded: string): string {
  const bytes = encoded.replace(/=\r\n/g, "").replace(/=([0-9A-F]{2})/g, (_, hex) => {
    return String.fromCharCode(Number.parseInt(hex, 16));
  });
  return Buffer.from(bytes, "latin1").toString();
}

function decodedWords(value: string): string {
  return value.replace(/=\?UTF-8\?([QB])\?([^?]*)\?=(?: (?==\?))?/gi, (_, kind: string, encoded: string) =>
    kind.toUpperCase() === "B"
      ? Buffer.from(encoded, "base64").toString()
      : fromQuotedPrintable(encoded.replaceAll("_", " ")),
  );
}
