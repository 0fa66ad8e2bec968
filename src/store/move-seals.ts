import type { Page, Value } from "./move-pages.ts";
import { seal, unseal } from "./sealing.ts";

/** The page with its secrets as the target can open them. */
export function resealPage(page: Page, sourceKey: Uint8Array, targetKey: Uint8Array): Page {
  const placeOf = (name: string) => page.columns.findIndex((column) => column.name === name);
  const account = placeOf("account_id");
  const reseal = (row: readonly Value[], sealed: number, id: string) => {
    const owner = { accountId: row[account]!, id };
    const text = unseal(Buffer.from(row[sealed]!.slice(2), "hex"), sourceKey, owner);
    return row.with(sealed, `\\x${seal(text, targetKey, owner).toString("hex")}`);
  };
  switch (page.table) {
    case "signing_secrets": {
      const [id, sealed] = [placeOf("id"), placeOf("sealed")];
      return { ...page, rows: page.rows.map((row) => reseal(row, sealed, row[id]!)) };
    }
    case "idempotency_keys": {
      const [key, idempotencyKey] = [placeOf("key_id"), placeOf("idempotency_key")];
      const [isSealed, body] = [placeOf("is_sealed"), placeOf("body")];
      return {
        ...page,
        rows: page.rows.map((row) =>
          row[isSealed] === "true" && row[body] !== null
            ? reseal(row, body, `${row[key]}/${row[idempotencyKey]}`)
            : row,
        ),
      };
    }
    default:
      return page;
  }
}
