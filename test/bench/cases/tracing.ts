import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import type { Bench } from "../bench.ts";
import { type BenchCase, type Figure, median } from "../figures.ts";
import { inTurn } from "./observing.ts";
import { deliver } from "./throughput.ts";

export const tracing: BenchCase<Bench> = {
  name: "tracing",
  says:
    "What traces cost: the whole path as in throughput, in turn without a collector, and with one that takes " +
    "everything, to which the spans of every delivery are sent.",
  run: async (bench, tell) => {
    let bytes = 0;
    const collector = createServer((request, response) => {
      request.on("data", (chunk: Buffer) => {
        bytes += chunk.length;
      });
      request.on("end", () => response.end());
    });
    await once(collector.listen(0, "127.0.0.1"), "listening");
    const { port } = collector.address() as AddressInfo;
    const env = { OTEL_EXPORTER_OTLP_ENDPOINT: `http://127.0.0.1:${port}` };
    const { off, on } = await inTurn(async (isOn) => {
      const before = bytes;
      const wish = { inFlight: bench.inFlightMax ?? 256, tell, dispatcher: isOn ? { env } : {} };
      const { measured, published, rssMib } = await deliver(bench, wish);
      const { perSecond } = measured;
      const all = [...measured.cpu.values()].reduce((sum, spent) => sum + spent, 0);
      const dispatcher = measured.cpu.get("dispatcher") ?? Number.NaN;
      tell(`${isOn ? "traced" : "not traced"}: ${Math.round(perSecond)}/s, ${Math.round(dispatcher)} µs`);
      return { perSecond, dispatcher, all, rssMib, bytes: (bytes - before) / published };
    });
    collector.close();
    collector.closeAllConnections();
    const medians = (figure: keyof (typeof on)[number]) =>
      [on, off].map((found) => median(found.map((one) => one[figure]))) as [number, number];
    const share = (figure: keyof (typeof on)[number]) => medians(figure)[0] / medians(figure)[1];
    const [traced, untraced] = medians("dispatcher");
    return [
      { name: "deliveries, traced ÷ not", value: share("perSecond"), unit: "", goal: { atLeast: 0.95 } },
      { name: "CPU of all, traced ÷ not", value: share("all"), unit: "", goal: { atMost: 1.05 } },
      { name: "CPU of the dispatcher, traced", value: traced, unit: "µs per delivery" },
      { name: "CPU of the dispatcher, not traced", value: untraced, unit: "µs per delivery" },
      { name: "RSS of the dispatcher, traced ÷ not", value: share("rssMib"), unit: "" },
      { name: "spans", value: medians("bytes")[0], unit: "bytes per delivery" },
    ] satisfies Figure[];
  },
};
