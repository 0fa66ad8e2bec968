// The console as a viewer with a browser meets it.
import { startBrowser, type Viewer } from "./browser.ts";
import { type LinkWish, newLink } from "./console.ts";
import { createTestDatabase, type TestDatabase } from "./database.ts";
import { startTestApi, type TestAccount, type TestApi } from "./sealpost-api.ts";

export type BrowsedConsole = {
  readonly database: TestDatabase;
  readonly api: TestApi;
  /** A viewer who has opened a link, by default of the API's first account, and sees its page. */
  open(wish?: LinkWish, options?: Parameters<TestBrowserOf["newViewer"]>[0]): Promise<Viewer>;
  /** Somebody who has opened nothing yet. */
  readonly newViewer: TestBrowserOf["newViewer"];
  /** One whose browser runs no scripts, once the link is open. */
  openWithoutScript(wish?: LinkWish): Promise<Viewer>;
  /** An address of an account's console, by default of the API's first account. */
  address(path: string, account?: TestAccount): string;
  close(): Promise<void>;
};

type TestBrowserOf = Awaited<ReturnType<typeof startBrowser>>;

/**
 * @param env of the API
 * @param reach the database's address for the API, such as a proxy's; default: the database's own
 */
export async function browseConsole(
  env: Record<string, string> = {},
  reach: (database: TestDatabase) => Promise<string> = async ({ url }) => url,
): Promise<BrowsedConsole> {
  const database = await createTestDatabase();
  const [api, browser] = await Promise.all([
    reach(database).then((url) => startTestApi({ ...database, url }, env)),
    startBrowser(),
  ]);
  const address = (path: string, { accountId } = api.account) => `${api.url}/console/a/${accountId}${path}`;
  async function open(wish: LinkWish = {}, options = {}): Promise<Viewer> {
    const viewer = await browser.newViewer(options);
    // Opening the link takes JavaScript; what follows need not have it.
    await viewer.page.goto((await newLink(api, wish)).href);
    await viewer.page.waitForURL(/\/console\/a\//);
    return viewer;
  }
  return {
    database,
    api,
    open,
    newViewer: browser.newViewer,
    openWithoutScript: async (wish) => {
      const { context, page } = await open(wish);
      const storageState = await context.storageState();
      const url = page.url();
      await context.close();
      const viewer = await browser.newViewer({ javaScriptEnabled: false, storageState });
      await viewer.page.goto(url);
      return viewer;
    },
    address,
    close: async () => {
      await browser.close();
      await api.close();
      await database.drop();
    },
  };
}
