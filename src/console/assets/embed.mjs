// For pages that show the console in a frame. The frame becomes as high as its page; when its session has ended, it
// gets the event `sealpost:session-ended`, which bubbles.
(() => {
  const { src } = document.currentScript;
  const console = new URL(src).origin;
  addEventListener("message", ({ origin, source, data }) => {
    if (origin !== console || typeof data?.type !== "string") return;
    const frame = [...document.querySelectorAll("iframe")].find(
      ({ contentWindow }) => contentWindow === source,
    );
    if (frame === undefined) return;
    if (data.type === "sealpost:height") frame.style.height = `${Number(data.height)}px`;
    if (data.type === "sealpost:session-ended") {
      frame.dispatchEvent(new CustomEvent(data.type, { bubbles: true }));
    }
  });
})();
