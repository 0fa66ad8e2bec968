import type { Reader } from "../base/model/reader.ts";

/**
 * What a statement says for a reader: `and`, an SQL condition to be added, whose one parameter is `values`. Both are
 * empty where all of the account is read, so those statements are as if there were no users. `name` tells the two
 * apart where statements are prepared by name.
 */
export type Sight = {
  readonly and: string;
  readonly values: readonly unknown[];
  readonly name: "" | "_of_user";
};

const ALL: Sight = { and: "", values: [], name: "" };

/**
 * The one place that says what of the log a reader sees. All that reads deliveries, analyses, events or replays for
 * somebody says it with one of these three.
 *
 * @param row alias of a row of `sealpost.deliveries`
 * @param first number of the parameter
 */
export function sightOf(reader: Reader, row: string, first: number): Sight {
  // As a subquery it is hashed once, however many spaces there are.
  return sight(reader, `(${row}.space_id is null or ${row}.space_id in (select unnest($${first}::uuid[])))`);
}

/** The same where only the delivery's id is at hand. @param id SQL */
export function sightOfDelivery(reader: Reader, accountId: string, id: string, first: number): Sight {
  const seen = sightOf(reader, "seen", first);
  // With the limit it is a look-up for each row, and never a join with the whole log.
  return sight(
    reader,
    `(select true from sealpost.deliveries as seen
      where seen.account_id = ${accountId} and seen.id = ${id}${seen.and} limit 1)`,
  );
}

/**
 * A bulk replay is seen by whoever sees all that it replays: its counts tell of each. Whose deliveries it has is not
 * known of one that an older version has made. @param row alias of a row of `sealpost.replays`
 */
export function sightOfReplay(reader: Reader, row: string, first: number): Sight {
  return sight(reader, `${row}.space_ids <@ $${first}::uuid[]`);
}

function sight({ spaceIds }: Reader, condition: string): Sight {
  return spaceIds === null ? ALL : { and: ` and ${condition}`, values: [spaceIds], name: "_of_user" };
}
