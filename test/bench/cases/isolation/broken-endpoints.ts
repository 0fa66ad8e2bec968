import { ACCOUNTS } from "../../bench.ts";
import type { Published } from "../../processes/publisher-process.ts";
import type { Flood, Ground, PreparedFlood } from "./flood.ts";

/** For all of them together: a quarter of what is published for the healthy accounts. */
const PER_SECOND = 75;

/** They take the POST and never answer. */
export const timeouts: Flood = {
  name: "time-outs",
  prepare: async (ground) => {
    await ground.bench.behave({ isTiming: true, silentHosts: ground.silentHosts });
    return publishPaced(ground);
  },
};

/** Nothing is ever sent to them: no name server answers. */
export const deadNameServers: Flood = {
  name: "dead name servers",
  prepare: async (ground) => {
    await ground.database.pool.query(
      `update sealpost.endpoints set url = 'https://d' || (random() * $2)::integer || '.example.com/hook'
       where account_id = any ($1)`,
      [ground.accountIds, ACCOUNTS],
    );
    return publishPaced(ground);
  },
};

function publishPaced({ publisher, accountIds }: Ground): PreparedFlood {
  return {
    start: () => publisher.ask("publishPaced", { accountIds, perSecond: PER_SECOND, batch: 1 }),
    stop: async () => {
      const { published } = await publisher.ask<Published>("stop");
      return [{ name: "published by it", value: published, unit: "" }];
    },
  };
}
