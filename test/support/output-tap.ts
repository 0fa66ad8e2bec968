// Loaded by every process that the tests start: what it writes is also kept in a file, for output-watch.ts.
import { keepOutput } from "./output-watch.ts";

for (const name of ["stdout", "stderr"] as const) {
  const stream = process[name];
  const write = stream.write.bind(stream) as (...args: unknown[]) => boolean;
  stream.write = (chunk: unknown, ...rest: unknown[]) => {
    keepOutput(name, String(chunk));
    return write(chunk, ...rest);
  };
}
