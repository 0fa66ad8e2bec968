import { once } from "node:events";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import type { Command } from "@commander-js/extra-typings";
import { readConfig } from "../config/read-config.ts";
import { Mistake } from "./mistake.ts";
import type { Surroundings } from "./surroundings.ts";

export function addServeCommand(program: Command, surroundings: Surroundings): void {
  program
    .command("serve")
    .description("run the API: as many of these as you like beside one database")
    .option("--json", "no difference: the log is JSON always")
    .action(async () => {
      const asked = surroundings.untilAskedToEnd();
      const { host, port } = readConfig(surroundings.env);
      const server = createServer((request, response) => {
        response.writeHead(request.url === "/healthz" ? 204 : 404).end();
      });
      const url = await listen(server, host, port);
      surroundings.tellParent({ listening: url });
      if (!asked.aborted) await once(asked, "abort");
      server.close();
      server.closeIdleConnections();
      await once(server, "close");
    });
}

/** @throws Mistake when the port or the address cannot be had. */
async function listen(server: Server, host: string, port: number): Promise<string> {
  server.listen(port, host);
  try {
    await once(server, "listening");
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    throw new Mistake(`The API cannot listen on HOST ${host}, PORT ${port} (${code}).`, { cause: error });
  }
  const bound = server.address() as AddressInfo;
  return `http://${host.includes(":") ? `[${host}]` : host}:${bound.port}`;
}
