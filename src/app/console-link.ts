import { randomBytes } from "node:crypto";
import type { Pool } from "pg";
import { digestApiKey } from "../api/api-keys.ts";
import { accountScopes } from "../model/api-keys.ts";
import { SESSION_SECONDS } from "../model/console.ts";
import { consoleUrl } from "../operations/console.ts";
import { insertLink } from "../store/console-sessions.ts";
import { changeAudited } from "./command-line-changes.ts";

/**
 * A link that opens the console for whoever runs the command line, with every permission: that person could make any
 * key. It is in the audit log, and so is what is done with it.
 */
export async function openConsole(
  pool: Pool,
  accountId: string,
  { publicUrl, linkSeconds }: { readonly publicUrl: string; readonly linkSeconds: number },
): Promise<{ readonly url: string; readonly expiresAt: Date }> {
  const token = randomBytes(32).toString("base64url");
  const link = await changeAudited(
    pool,
    "console.links.create",
    (tx) =>
      insertLink(tx, {
        accountId,
        keyId: null,
        permissions: accountScopes,
        viewerId: "command line",
        viewerLabel: "command line",
        embedOrigin: null,
        timeZone: Intl.DateTimeFormat().resolvedOptions().timeZone,
        theme: null,
        path: null,
        linkDigest: digestApiKey(token),
        linkSeconds,
        sessionSeconds: SESSION_SECONDS.max,
      }),
    () => ({ accountId, details: { permissions: accountScopes } }),
  );
  return { url: consoleUrl(publicUrl, token, null), expiresAt: link.linkExpiresAt };
}
