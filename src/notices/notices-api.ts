import type { Pool } from "pg";
import { z } from "zod";
import { id } from "../api/fields.ts";
import { operationsOf } from "../api/operations.ts";
import { judgeMailAddress, MAIL_ADDRESS_CHARS_MAX, maskMailAddress } from "../base/model/formats.ts";
import { cutPage } from "../base/model/list-page.ts";
import { NOTICE_KINDS, NOTICE_MEANINGS } from "../base/model/notices.ts";
import { findNameFault } from "../egress/rules/host.ts";
import { emptyResponse, jsonBody, jsonResponse, type Operation } from "../http/operation.ts";
import { createCursors, pageOf, pageQuery, totalCappedHeader, totalHeaders } from "../http/pagination.ts";
import { invalidRequest, Problem } from "../http/problems.ts";
import { Notice, noticeText, Recipient, type StoredNotice } from "./notice-kinds.ts";
import { addRecipient, listRecipients, removeRecipient } from "./notice-recipients-sql.ts";
import { listNotices } from "./notices-sql.ts";

const meanings = NOTICE_KINDS.map((kind) => `\`${kind}\`: ${NOTICE_MEANINGS[kind]}`).join("; ");

const noticeKind = z.enum(NOTICE_KINDS).describe(`What happened. ${meanings}.`);

function noticeBody({ id, created_at, ...notice }: StoredNotice): z.output<typeof Notice> {
  return { id, created_at, ...noticeText(notice), ...notice };
}

const { read, write } = operationsOf("Notices");
const path = "/v1/webhooks/notices";

/** Said to whoever has asked for too many of those mails in a day. */
const ASK_AGAIN_AFTER_SECONDS = 3_600;

const NewRecipient = z.strictObject({
  address: z
    .string()
    .max(MAIL_ADDRESS_CHARS_MAX)
    .meta({ description: "A plain e-mail address, ASCII only.", example: "webhooks@example.com" }),
});

export type NoticeDependencies = {
  readonly pool: Pool;
  /** Whether this installation has a mail server for notices. */
  readonly sendsMail: boolean;
};

/** What happened to the endpoint, and who is told of it by mail. */
export function noticeOperations({ pool, sendsMail }: NoticeDependencies): readonly Operation[] {
  const cursors = createCursors(id);
  const recipientPage = createCursors(id);
  return [
    read({
      key: "webhooks.notices.list",
      summary: "List notices",
      description:
        "What happened to the account's endpoint, newest first, whether or not an email was sent. Notices " +
        "are kept as long as the delivery log. Deliveries with their own `webhook_url` are not watched.",
      path,
      scope: "webhooks:read",
      isOfAccount: true,
      query: z.strictObject({ ...pageQuery, kind: noticeKind.optional() }),
      response: jsonResponse(200, pageOf(Notice), totalCappedHeader),
      handle: async ({ accountId, query: { cursor, limit, kind } }) => {
        const filter = [accountId, kind ?? null];
        const page = await listNotices(pool, accountId, kind ?? null, cursors.read(cursor, filter), limit);
        return { body: cursors.pageBody(page, filter, noticeBody), headers: totalHeaders(page) };
      },
    }),
    read({
      key: "webhooks.notices.recipients.list",
      summary: "List recipients",
      description:
        "The addresses that get the account's notices by mail, newest first; at most 10. `sends_mail` is false where " +
        "this installation has no mail server: then notices are only in the list.",
      path: `${path}/recipients`,
      scope: "webhooks:read",
      isOfAccount: true,
      query: z.strictObject(pageQuery),
      response: jsonResponse(
        200,
        pageOf(Recipient).extend({ sends_mail: z.boolean().describe("Whether emails are sent at all.") }),
      ),
      handle: async ({ accountId, query: { cursor, limit } }) => {
        const belowId = recipientPage.read(cursor, accountId);
        const all = await listRecipients(pool, accountId);
        const rest = belowId === null ? all : all.filter((one) => one.id < belowId);
        const page = { ...cutPage(rest, limit, (one) => one.id), total: all.length };
        const body = recipientPage.pageBody(page, accountId, (recipient) => recipient);
        return { body: { ...body, sends_mail: sendsMail } };
      },
    }),
    write({
      key: "webhooks.notices.recipients.add",
      summary: "Add a recipient",
      description:
        "Sends the address an email with a link that confirms it, valid for 7 days; from then on it gets at most one " +
        "mail an hour for each kind of notice. Adding an address again returns it and, unless it is confirmed or " +
        "was mailed within 10 minutes, sends the mail again. At most 20 such mails a day for an account, and 5 " +
        "to one address; then 429.",
      method: "POST",
      path: `${path}/recipients`,
      scope: "webhooks:write",
      isOfAccount: true,
      risk: "reversible",
      mode: "async",
      body: jsonBody(NewRecipient),
      // The address is a person's, and the log outlives its recipient: enough of it to be recognised.
      audit: (_, { body: { id: recipient_id, address } }) => ({
        recipient_id,
        address: maskMailAddress(address),
      }),
      response: jsonResponse(202, Recipient),
      errors: ["too_many_recipients", "mail_not_configured"],
      handle: async ({ accountId, body, problem }, tx) => {
        if (!sendsMail) throw problem("mail_not_configured");
        const judged = judgeMailAddress(body.address);
        if (!judged.isAllowed) throw invalidRequest("body.address", judged.message);
        const fault = findNameFault(judged.address.slice(judged.address.lastIndexOf("@") + 1));
        if (fault !== null) throw invalidRequest("body.address", `What follows the @ ${fault.what}.`);
        const added = await addRecipient(tx, accountId, judged.address);
        switch (added.kind) {
          case "added":
            return { body: added.recipient };
          case "too_many_recipients":
            throw problem("too_many_recipients");
          case "too_many_confirmations":
            throw new Problem("rate_limited", {
              headers: { "retry-after": String(ASK_AGAIN_AFTER_SECONDS) },
            });
        }
      },
    }),
    write({
      key: "webhooks.notices.recipients.remove",
      summary: "Remove a recipient",
      description: "The address gets no more emails, except one that is being sent now.",
      method: "DELETE",
      path: `${path}/recipients/{recipient_id}`,
      scope: "webhooks:write",
      isOfAccount: true,
      risk: "reversible",
      params: z.strictObject({ recipient_id: id }),
      audit: ({ params }) => ({ recipient_id: params.recipient_id }),
      response: emptyResponse(),
      errors: ["not_found"],
      handle: async ({ accountId, params, problem }, tx) => {
        if (!(await removeRecipient(tx, accountId, params.recipient_id))) throw problem("not_found");
      },
    }),
  ];
}
