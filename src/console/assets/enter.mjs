// Takes the token out of the address, so that it is in no history, and posts it.
const form = document.querySelector("#enter");
const token = new URLSearchParams(location.hash.slice(1)).get("t");
if (form !== null) {
  const link = location.href;
  history.replaceState(null, "", location.pathname);
  const field = form.elements.namedItem("t");
  if (token === null) show("#missing");
  else if (parent !== window && !keepsCookies()) {
    const way = show("#blocked").querySelector("a");
    way.href = link;
  } else {
    field.value = token;
    form.submit();
  }
}

/** In a frame, some browsers keep no cookie, not even one for this frame alone; then the link is left for a tab. */
function keepsCookies() {
  const cookie = "__Host-sp-try=1; Path=/; Secure; SameSite=None; Partitioned";
  // biome-ignore lint/suspicious/noDocumentCookie: browsers of a year ago have no other way.
  document.cookie = cookie;
  const isKept = document.cookie.includes("__Host-sp-try=1");
  // biome-ignore lint/suspicious/noDocumentCookie: as above.
  document.cookie = `${cookie}; Max-Age=0`;
  return isKept;
}

/** @param {string} name */
function show(name) {
  const text = document.querySelector(name);
  text.hidden = false;
  return text;
}
