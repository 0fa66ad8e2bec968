// The console as a viewer with a browser meets it.
import { startBrowser, type TestBrowser, type Viewer } from "./browser.ts";
import { type LinkWish, newLink } from "./console.ts";
import { createTestDatabase, type TestDatabase } from "./database.ts";
import { startTestApi, type TestAccount, type TestApi } from "./sealpost-api.ts";

export type BrowsedConsole = {
  readonly database: TestDatabase;
  readonly api: TestApi;
  /** A viewer who has opened a link, by default of the API's first account, and sees its page. */
  open(wish?: LinkWish, options?: Parameters<TestBrowser["newViewer"]>[0]): Promise<Viewer>;
  /** Somebody who has opened nothing yet. */
  readonly newViewer: TestBrowser["newViewer"];
  /** One whose browser runs no scripts, once the link is open. */
  openWithoutScript(wish?: LinkWish): Promise<Viewer>;
  /** An address of an account's console, by default of the API's first account. */
  address(path: string, account?: TestAccount): string;
  close(): Promise<void>;
};

/**
 * @param env of the API
 * @param reach the database's address for the API, such as a proxy's; default: the database's own
 */
export async function browseConsole(
  env: Record<string, string> = {},
  reach: (database: TestDatabase) => Promise<string> = async ({ url }) => url,
): Promise<BrowsedConsole> {
  const database = await createTestDatabase();
  const api = await startTestApi({ ...database, url: await reach(database) }, env);
  // With the first viewer: a file's other tests need no browser.
  let browser: Promise<TestBrowser> | null = null;
  const newViewer: TestBrowser["newViewer"] = async (options) => {
    browser ??= startBrowser();
    return await (await browser).newViewer(options);
  };
  const address = (path: string, { accountId } = api.account) => `${api.url}/console/a/${accountId}${path}`;
  async function open(wish: LinkWish = {}, options = {}): Promise<Viewer> {
    const viewer = await newViewer(options);
    // Opening the link takes JavaScript; what follows need not have it.
    await viewer.page.goto((await newLink(api, wish)).href);
    await viewer.page.waitForURL(/\/console\/a\//);
    return viewer;
  }
  return {
    database,
    api,
    open,
    newViewer,
    openWithoutScript: async (wish) => {
      const { context, page } = await open(wish);
      const storageState = await context.storageState();
      const url = page.url();
      await context.close();
      const viewer = await newViewer({ javaScriptEnabled: false, storageState });
      await viewer.page.goto(url);
      return viewer;
    },
    address,
    close: async () => {
      await (await browser)?.close();
      await api.close();
      await database.drop();
    },
  };
}
