// A child for the supervisor's tests. It connects to the test and says who it is; the test sees it end by the
// connection's end. What the test writes on the connection is what it does.
import { connect } from "node:net";
import { createShutdownSignal, endWithParent, sendToParent } from "../../../../src/app/process-context.ts";

endWithParent();
const [name, port] = process.argv.slice(2);
const shutdown = createShutdownSignal();
const socket = connect(Number(port), "127.0.0.1", () => {
  socket.write(JSON.stringify({ name, pid: process.pid }));
  sendToParent({ ready: name });
});
let isStubborn = false;
shutdown.addEventListener("abort", () => {
  if (!isStubborn) process.exit(0);
  socket.write("asked");
});
socket.on("data", (data) => {
  const order = String(data);
  if (order === "be stubborn") {
    isStubborn = true;
    socket.write("stubborn");
  }
  if (order.startsWith("exit ")) process.exit(Number(order.slice(5)));
});
