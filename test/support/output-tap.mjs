// Loaded by every process that the tests start: what it writes is also kept in a file, for output-watch.ts.
import { appendFileSync } from "node:fs";
import { join } from "node:path";

const file = join(process.env.SEALPOST_TEST_OUTPUT ?? "", `${process.pid}.txt`);

for (const name of ["stdout", "stderr"]) {
  const stream = process[name];
  const write = stream.write.bind(stream);
  stream.write = (chunk, ...rest) => {
    const lines = String(chunk).trimEnd().split("\n");
    appendFileSync(file, lines.map((line) => `${name} ${line}\n`).join(""));
    return write(chunk, ...rest);
  };
}
