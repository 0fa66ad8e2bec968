// Takes the two pictures of the console in docs/support.md from the demo, with Debian's Chromium.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { type Browser, chromium } from "playwright-core";

const FOLDER = fileURLToPath(new URL("../docs/pictures/", import.meta.url));
const COUNTED_WITHIN_MS = 120_000;
const WINDOW = { width: 1_280, height: 800 };

type Staying = {
  readonly url: string;
  readonly api_key: string;
  readonly endpoint: string;
  readonly console: string;
};

const demo = spawn(process.execPath, ["src/sealpost.mjs", "demo", "--stay", "--json"], {
  stdio: ["ignore", "pipe", "inherit"],
});
try {
  const staying = await untilStaying();
  const browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: ["--no-sandbox"] });
  // In the demo everything arrives in the end.
  const nowhere = new URL(staying.endpoint);
  nowhere.hostname = "elsewhere.localhost";
  await write(staying, "/v1/analyses", {
    analysis: { id: "contract-1007", status: "succeeded" },
    webhook_url: nowhere.href,
  });
  await takePicture(browser, staying.console, "light", "console-log-light.png", async (page) => {
    await page.waitForSelector(".status.abandoned");
    // Attempts are counted a little later.
    await page.waitForSelector("text=/\\d arrived/", { timeout: COUNTED_WITHIN_MS });
  });
  const viewer = { id: "sam", label: "Sam" };
  const permissions = ["webhooks:read", "webhooks:replay"];
  const { url } = (await write(staying, "/v1/console/links", { viewer, permissions })) as { url: string };
  await takePicture(browser, url, "dark", "console-delivery-dark.png", async (page) => {
    await page.click("table.log a:text-is('contract-1007')");
    await page.waitForSelector(".attempts");
  });
  await browser.close();
} finally {
  demo.kill("SIGINT");
  await once(demo, "exit");
}

async function untilStaying(): Promise<Staying> {
  for await (const line of createInterface({ input: demo.stdout })) {
    const said = JSON.parse(line) as { event: string } & Staying;
    if (said.event === "staying") return said;
  }
  throw new Error("The demo ended before it could be seen.");
}

async function write({ url, api_key }: Staying, path: string, body: unknown): Promise<unknown> {
  const response = await fetch(new URL(path, url), {
    method: "POST",
    headers: {
      authorization: `Bearer ${api_key}`,
      "content-type": "application/json",
      "idempotency-key": path,
    },
    body: JSON.stringify(body),
  });
  return await response.json();
}

async function takePicture(
  browser: Browser,
  link: string,
  colorScheme: "light" | "dark",
  file: string,
  go: (page: Awaited<ReturnType<Browser["newPage"]>>) => Promise<void>,
): Promise<void> {
  const page = await browser.newPage({ viewport: WINDOW, colorScheme });
  await page.goto(link);
  await page.waitForSelector("table.log");
  await go(page);
  await page.screenshot({ path: FOLDER + file });
  await page.close();
}
