import { join } from "node:path";
import type { Config } from "../../base/config/config.ts";
import { openFileStore } from "./file-store.ts";
import type { ObjectStore } from "./object-store.ts";

type StoreConfig = Pick<Config, "stateDir" | "objectStoreUrl" | "awsAccessKeyId" | "awsSecretAccessKey">;

/** The store that the configuration names: S3, or files below the state folder. */
export async function openObjectStore(config: StoreConfig): Promise<ObjectStore> {
  const { stateDir, objectStoreUrl, awsAccessKeyId, awsSecretAccessKey } = config;
  if (objectStoreUrl === null) return await openFileStore(join(stateDir, "objects"));
  // The client takes half a second and 40 MB to load: only who has S3 pays for it.
  const { openS3Store } = await import("./s3-store.ts");
  return openS3Store({
    ...objectStoreUrl,
    accessKeyId: awsAccessKeyId ?? "",
    secretAccessKey: awsSecretAccessKey ?? "",
  });
}
