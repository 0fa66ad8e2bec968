import { afterEach, expect, it } from "vitest";
import { freePort } from "../support/ports.ts";
import { startBlackHole, startTcpServer, type TestServer } from "./server.ts";

let server: TestServer;
afterEach(() => server.close());

it("says why there is no black hole, where its port is taken", async () => {
  server = await startTcpServer();
  await expect(startBlackHole("127.0.0.1", server.port)).rejects.toThrow(/EADDRINUSE/);
});

it("listens on a port that was free, at each address of loopback", async () => {
  const port = await freePort();
  server = await startTcpServer({ host: "127.0.0.2", port });
  const blackHole = await startBlackHole("127.0.0.1", port);
  expect([server.port, blackHole.port]).toEqual([port, port]);
  await blackHole.close();
});
