// In a frame: the page around it, of the one origin that may show it, learns how high it is, and when it has ended.
const { embed = "" } = document.documentElement.dataset;

/** @param {Record<string, unknown>} message */
function tell(message) {
  parent.postMessage(message, embed);
}
function tellEnd() {
  tell({ type: "sealpost:session-ended" });
}

if (parent !== window) {
  const page = document.documentElement;
  new ResizeObserver(() => tell({ type: "sealpost:height", height: page.offsetHeight })).observe(page);
  document.addEventListener("sealpost:session-ended", tellEnd);
  if (document.querySelector("[data-session-ended]") !== null) tellEnd();
}
