import { execFile } from "node:child_process";
import { mkdtemp, open, rm } from "node:fs/promises";
import { promisify } from "node:util";

const run = promisify(execFile);

export type SmallDisk = { readonly folder: string; unmount(): Promise<void> };

/** A disk of its own that can be filled. Null: this machine lets us mount none. */
export async function mountDisk(megabytes: number): Promise<SmallDisk | null> {
  const folder = await mkdtemp("/tmp/sealpost-disk-");
  try {
    await run("mount", ["-t", "tmpfs", "-o", `size=${megabytes}m`, "tmpfs", folder]);
  } catch {
    await rm(folder, { recursive: true });
    return null;
  }
  return {
    folder,
    unmount: async () => {
      await run("umount", ["-l", folder]);
      await rm(folder, { recursive: true });
    },
  };
}

/** Writes until nothing fits any more. */
export async function fill(path: string): Promise<void> {
  const file = await open(path, "a");
  try {
    for (let bytes = 1_048_576; bytes >= 1; ) {
      const { bytesWritten } = await file.write(Buffer.alloc(bytes)).catch(() => ({ bytesWritten: 0 }));
      if (bytesWritten < bytes) bytes = Math.floor(bytes / 16);
    }
  } finally {
    await file.close();
  }
}
