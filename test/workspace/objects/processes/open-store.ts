// Opens the object store that its environment names.
import { readConfig } from "../../../../src/base/config/config.ts";
import { openObjectStore } from "../../../../src/workspace/objects/known-store.ts";

const store = await openObjectStore(readConfig(process.env));
await store.close();
