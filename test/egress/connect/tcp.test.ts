import { once } from "node:events";
import { connect, Socket } from "node:net";
import { afterEach, describe, expect, it } from "vitest";
import { refuseOtherPeer } from "../../../src/egress/connect/direct-connector.ts";
import { HAS_IPV6 } from "../../support/ports.ts";
import { startTcpServer, type TestServer } from "../server.ts";

let server: TestServer | undefined;
afterEach(async () => {
  await server?.close();
  server = undefined;
});

describe("a peer at another address than the one checked", () => {
  it("is left before a byte is sent", async () => {
    server = await startTcpServer();
    const accepted = server.nextConnection();
    const socket = connect(server.port, "127.0.0.1");
    await once(socket, "connect");
    const peer = await accepted;
    expect(() => refuseOtherPeer(socket, "127.0.0.2")).toThrow(
      expect.objectContaining({ code: "target_not_public" }),
    );
    await once(peer, "close");
    expect(peer.bytesRead).toBe(0);
  });

  it("is told from one that is gone already", () => {
    const gone = expect.objectContaining({ code: "connect_reset" });
    expect(() => refuseOtherPeer(new Socket(), "127.0.0.1")).toThrow(gone);
  });

  it.runIf(HAS_IPV6)(
    "is told from the one checked by value, not by spelling (if there is IPv6)",
    async () => {
      server = await startTcpServer({ host: "::1" });
      const socket = connect(server.port, "::1");
      await once(socket, "connect");
      expect(refuseOtherPeer(socket, "0:0:0:0:0:0:0:1")).toBe(socket);
      socket.destroy();
    },
  );
});
