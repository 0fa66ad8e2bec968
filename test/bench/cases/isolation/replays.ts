import { API_LIMITS } from "../../../../src/app/api-server.ts";
import { RATE_PER_SECOND_MAX } from "../../../../src/log/replays-api.ts";
import { seedAbandoned } from "../../seeding.ts";
import { countDelivered, type Flood } from "./flood.ts";

/** Of each replay. All of them together start 1,000 a second, so that none is through before the flood ends. */
const DELIVERIES = 8_000;

/** As many at once as an account may have, each of its own part of what was abandoned. */
const CREATE_REPLAYS = `
with made as (
  insert into sealpost.replays (account_id, status, filter, rate_per_second, matched, created_at, paced_at)
  select $1, 'running', '{}', $2, $3, now(), now() from generate_series(1, $4)
  returning id
), numbered as (
  select id, row_number() over (order by id) - 1 as n from made
), abandoned as (
  select id, row_number() over (order by id) - 1 as n
  from sealpost.deliveries where account_id = $1 and status = 'abandoned'
)
insert into sealpost.replay_items (replay_id, position, delivery_id)
select numbered.id, abandoned.n / $4, abandoned.id
from abandoned join numbered on numbered.n = abandoned.n % $4`;

/** One account replays all that it has ever abandoned, as fast as it may, to an endpoint that answers at once. */
export const replays: Flood = {
  name: "flood of replays",
  prepare: async ({ bench, database, accountIds: [accountId = ""] }) => {
    const { pool } = database;
    const count = API_LIMITS.replays.runningMax;
    const deliveries = DELIVERIES * bench.scale;
    await seedAbandoned(pool, accountId, count * deliveries);
    return {
      start: async () => {
        await pool.query(CREATE_REPLAYS, [accountId, RATE_PER_SECOND_MAX, deliveries, count]);
      },
      stop: async () => {
        const { rows } = await pool.query<{ started: number }>(
          "/* bench */ select sum(replayed)::integer as started from sealpost.replays",
        );
        return [
          { name: "replays", value: count, unit: `of ${deliveries.toLocaleString("en")}` },
          { name: "deliveries started", value: rows[0]?.started ?? 0, unit: "" },
          { name: "deliveries that arrived", value: await countDelivered(database, [accountId]), unit: "" },
        ];
      },
    };
  },
};
