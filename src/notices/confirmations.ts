import type { Pool } from "pg";
import { type Confirmation, confirmRecipient, findConfirmation } from "../store/notice-recipients.ts";
import { digestToken } from "./mail-sending.ts";

/** A page's texts; the button's is null where there is nothing to press. */
export type ConfirmationText = {
  readonly title: string;
  readonly message: string;
  readonly button: string | null;
};

/** What the link in a mail shows. Null: it is not valid, or not any more. */
export async function askToConfirm(pool: Pool, token: string): Promise<ConfirmationText | null> {
  const found = await findConfirmation(pool, digestToken(token));
  if (found === null) return null;
  if (found.isConfirmed) return confirmed(found);
  return {
    title: "Confirm this address",
    message:
      `Send notices about the webhooks of "${found.accountName}" to ${found.address}? ` +
      "If you did not expect this, close this page: nothing will be sent.",
    button: "Yes, send them",
  };
}

/** The button was pressed. Null as above. */
export async function confirm(pool: Pool, token: string): Promise<ConfirmationText | null> {
  const found = await confirmRecipient(pool, digestToken(token));
  return found === null ? null : confirmed(found);
}

function confirmed({ address, accountName }: Confirmation): ConfirmationText {
  return {
    title: "Confirmed",
    message: `${address} gets notices about the webhooks of "${accountName}" from now on.`,
    button: null,
  };
}

export const INVALID_LINK: ConfirmationText = {
  title: "This link is not valid",
  message:
    "It has expired, or the address was removed, or a newer mail has replaced it. Whoever added the address can add " +
    "it again, which sends a new link.",
  button: null,
};
