import { afterEach, describe, expect, test } from "vitest";
import { createSendMail, type Mail, SMTP_LIMITS, type SmtpOptions } from "../../src/notices/smtp.ts";
import { createCertificateAuthority, sharedAuthority } from "../support/certificates.ts";
import {
  drip,
  flood,
  type IllServer,
  type MailServer,
  type MailServerOptions,
  startIllServer,
  startMailServer,
} from "../support/mail-server.ts";
import { patience } from "../support/time-limits.ts";

const mail: Mail = {
  id: "m-1",
  to: "ada@example.com",
  subject: "Grüße — it works",
  text: "Ünïcode\n.\n\nlast\n",
};
const FROM = "Sealpost <notices@example.org>";

const open: { close(): Promise<void> }[] = [];
afterEach(async () => {
  await Promise.all(open.splice(0).map((one) => one.close()));
});

async function start(options: MailServerOptions = {}): Promise<MailServer> {
  const server = await startMailServer(options);
  open.push(server);
  return server;
}

async function startIll(...given: Parameters<typeof startIllServer>): Promise<IllServer> {
  const server = await startIllServer(...given);
  open.push(server);
  return server;
}

async function send(url: string, options: Partial<SmtpOptions> = {}, signal = new AbortController().signal) {
  const { caPem: ca } = await sharedAuthority();
  return await createSendMail({ url, from: FROM, ca, ...options })(mail, signal);
}

describe("a mail arrives as it was written", () => {
  test.each([
    ["over TLS from the start", { secure: true }, true],
    ["over STARTTLS", {}, true],
    ["in the clear, where the server has no TLS", { plain: true }, false],
  ] as const)("%s", async (_, options, isSecure) => {
    const server = await start(options);
    expect(await send(server.url)).toEqual({ kind: "sent" });
    const [received, ...others] = server.mails;
    expect(others).toEqual([]);
    expect(received).toMatchObject({
      from: "notices@example.org",
      to: ["ada@example.com"],
      isSecure,
      user: null,
    });
    expect(received?.text.trimEnd()).toBe(mail.text.trimEnd());
    const header = (name: string) => received?.headers.get(name);
    expect(header("subject")).toBe(mail.subject);
    expect(header("from")).toBe(FROM);
    expect(header("to")).toBe(mail.to);
    expect(header("message-id")).toBe("<m-1@example.org>");
    expect(header("auto-submitted")).toBe("auto-generated");
  });

  test("for whoever has logged in", async () => {
    const server = await start({ credentials: { user: "sealpost", password: "p@ss: word/%" } });
    expect(await send(server.url)).toEqual({ kind: "sent" });
    expect(server.mails[0]).toMatchObject({ user: "sealpost", isSecure: true });
  });

  test("in one header each, whatever a name has in it", async () => {
    const server = await start();
    const { caPem: ca } = await sharedAuthority();
    const evil = { ...mail, subject: "x\r\nBcc: eve@example.com\r\n\r\nHello" };
    await createSendMail({ url: server.url, from: FROM, ca })(evil, new AbortController().signal);
    expect(server.mails[0]?.to).toEqual(["ada@example.com"]);
    expect(server.mails[0]?.headers.has("bcc")).toBe(false);
  });
});

describe("a mail has not left", () => {
  const notSent = { kind: "not_sent", isRefusedForGood: false };
  const refused = { kind: "not_sent", isRefusedForGood: true };

  test.each<[string, MailServerOptions, object]>([
    ["when the recipient is refused for good", { refusesRecipient: () => "550 no such mailbox" }, refused],
    ["when the recipient is refused for now", { refusesRecipient: () => "451 come back later" }, notSent],
    ["when the mail is refused for good", { refusesMessage: () => "554 looks like spam" }, refused],
    ["when the mail is refused for now", { refusesMessage: () => "452 disk full" }, notSent],
  ])("%s", async (_, options, result) => {
    const server = await start(options);
    expect(await send(server.url)).toMatchObject(result);
  });

  test("when the password is wrong, and the error does not tell it", async () => {
    const server = await start({ credentials: { user: "sealpost", password: "right" } });
    const result = await send(server.url.replace("right", "planted-secret"));
    expect(result).toMatchObject({ ...notSent, error: expect.stringContaining("535") });
    expect(JSON.stringify(result)).not.toContain("planted-secret");
  });

  test("when there is a password and no TLS: it is not sent in the clear", async () => {
    const server = await start({ plain: true, credentials: { user: "sealpost", password: "right" } });
    expect(await send(server.url)).toMatchObject(notSent);
    expect(server.mails).toEqual([]);
  });

  test.each([{ secure: true }, { secure: false }])(
    "when nobody vouches for the server: %j",
    async (options) => {
      const server = await start(options);
      const { caPem: ca } = await createCertificateAuthority("another");
      expect(await send(server.url, { ca })).toMatchObject(notSent);
      expect(server.mails).toEqual([]);
    },
  );

  test("when nobody listens", async () => {
    const server = await startIllServer();
    await server.close();
    expect(await send(server.url)).toMatchObject({
      ...notSent,
      error: expect.stringContaining("ECONNREFUSED"),
    });
  });

  const limits = { ...SMTP_LIMITS, connectMs: 200, silenceMs: 200, totalMs: 400 };
  test.each([
    ["says nothing", undefined],
    ["never ends its greeting", drip],
    ["floods", flood],
    ["hangs up", (socket) => socket.destroy()],
    ["says goodbye at once", (socket) => socket.end("421 too busy\r\n")],
    ["speaks HTTP", (socket) => socket.end("HTTP/1.1 400 Bad Request\r\n\r\n")],
  ] as [string, Parameters<typeof startIllServer>[0]][])("when the server %s", async (_, onSocket) => {
    const server = await startIll(onSocket);
    expect(await send(server.url, { limits })).toMatchObject(notSent);
    expect(server.connectionsCount).toBe(1);
  });

  test("when we are told to stop before it began", async () => {
    const server = await startIll();
    const stopping = new AbortController();
    const sending = send(server.url, {}, stopping.signal);
    await server.nextConnection();
    stopping.abort(new Error("the process is stopping"));
    expect(await sending).toEqual({ ...notSent, error: "the process is stopping" });
  });

  test("when we were told to stop before", async () => {
    expect(await send("smtp://127.0.0.1:1", {}, AbortSignal.abort())).toMatchObject(notSent);
  });
});

describe("a mail has perhaps left", () => {
  test("when the server takes it and never says so", async () => {
    const server = await start({ hangsAfterMessage: true });
    const limits = { ...SMTP_LIMITS, silenceMs: patience(500) };
    expect(await send(server.url, { limits })).toMatchObject({ kind: "perhaps_sent" });
    expect(server.mails).toHaveLength(1);
  });

  test("when we are told to stop just then", async () => {
    const server = await start({ hangsAfterMessage: true });
    const stopping = new AbortController();
    const sending = send(server.url, {}, stopping.signal);
    await server.waitForMails(1);
    stopping.abort(new Error("the process is stopping"));
    expect(await sending).toEqual({ kind: "perhaps_sent", error: "the process is stopping" });
  });
});
