import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { createServer, type Server, type Socket } from "node:net";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { ChildEvent } from "../../src/app/supervisor.ts";

type Child = { name: string; pid: number; socket: Socket; ended: Promise<unknown> };

const file = fileURLToPath(new URL("./cli/processes/supervisor.ts", import.meta.url));

let server: Server;
let supervisor: ChildProcess;
const events: ChildEvent[] = [];
/** Children that said who they are and that no test has taken yet, and the tests that wait for one. */
const arrived: Child[] = [];
const waiting: ((child: Child) => void)[] = [];

beforeEach(async () => {
  events.length = 0;
  arrived.length = 0;
  server = createServer((socket) => {
    socket.on("error", () => undefined);
    socket.once("data", (data) => {
      const child = { ...JSON.parse(String(data)), socket, ended: once(socket, "close") };
      const waiter = waiting.shift();
      if (waiter) waiter(child);
      else arrived.push(child);
    });
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
});

afterEach(() => {
  supervisor.kill("SIGKILL");
  server.close();
});

function nextChild(): Promise<Child> {
  const child = arrived.shift();
  return child ? Promise.resolve(child) : new Promise((resolve) => waiting.push(resolve));
}

/** Starts a supervisor and waits for its two children. */
async function start(graceMs = 60_000): Promise<Record<string, Child>> {
  const { port } = server.address() as { port: number };
  supervisor = spawn(process.execPath, [file, `${port}`, `${graceMs}`], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  if (supervisor.stdout)
    createInterface(supervisor.stdout).on("line", (line) => events.push(JSON.parse(line)));
  const children = [await nextChild(), await nextChild()];
  return Object.fromEntries(children.map((child) => [child.name, child]));
}

describe("the supervisor", () => {
  test("starts a child again that was killed, and leaves the other alone", async () => {
    const { one, two } = await start();
    process.kill(one?.pid ?? 0, "SIGKILL");
    const again = await nextChild();
    expect(again.name).toBe("one");
    expect(again.pid).not.toBe(one?.pid);
    expect(two?.socket.closed).toBe(false);
    expect(events).toContainEqual({ kind: "ended", name: "one", how: "SIGKILL", restartInMs: 250 });
  });

  test("waits longer each time", async () => {
    const { one } = await start();
    one?.socket.write("exit 1");
    (await nextChild()).socket.write("exit 1");
    await nextChild();
    const ends = events.filter((item) => item.kind === "ended");
    expect(ends.map((item) => item.restartInMs)).toEqual([250, 500]);
    expect(ends[0]?.how).toBe("exit code 1");
  });

  test("passes on the messages of a child", async () => {
    const { one } = await start();
    one?.socket.write("exit 1");
    await nextChild();
    expect(events).toContainEqual({ kind: "message", name: "one", pid: one?.pid, message: { ready: "one" } });
  });

  test.each(["SIGTERM", "SIGINT", "SIGHUP"] as const)(
    "ends its children and then itself on %s",
    async (signal) => {
      const { one, two } = await start();
      supervisor.kill(signal);
      await Promise.all([one?.ended, two?.ended]);
      const [code] = await once(supervisor, "close");
      expect(code).toBe(0);
      expect(events.filter((item) => item.kind === "ended").map((item) => item.restartInMs)).toEqual([
        null,
        null,
      ]);
    },
  );

  test("kills a child that does not end on SIGTERM", async () => {
    const { one } = await start(200);
    one?.socket.write("be stubborn");
    await once(one?.socket as Socket, "data");
    supervisor.kill("SIGTERM");
    const [code] = await once(supervisor, "close");
    expect(code).toBe(0);
    expect(events).toContainEqual({ kind: "ended", name: "one", how: "SIGKILL", restartInMs: null });
  });

  test("gives up, and ends the other child, when one ends with 2", async () => {
    const { one, two } = await start();
    one?.socket.write("exit 2");
    await two?.ended;
    const [code] = await once(supervisor, "close");
    expect(code).toBe(2);
  });

  test("leaves no children behind when it is killed", async () => {
    const { one, two } = await start();
    supervisor.kill("SIGKILL");
    await Promise.all([one?.ended, two?.ended]);
  });
});
