// Begins to put an object whose body never ends, and says so once as many bytes of it as its argument says are taken.
import { openAt } from "../../support/object-stores.ts";

const [, , address = "", key = "", bytes = ""] = process.argv;
const store = await openAt(JSON.parse(address));

async function* body() {
  for (let left = Number(bytes); left > 0; left -= 1_024) yield Buffer.alloc(Math.min(left, 1_024), "x");
  console.log("stuck");
  // Keeps the process, too.
  await new Promise((resolve) => setTimeout(resolve, 600_000));
}

await store.put(key, body(), 2 * Number(bytes));
