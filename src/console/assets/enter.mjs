// Takes the token out of the address, so that it is in no history, and posts it.
const form = /** @type {HTMLFormElement | null} */ (document.querySelector("#enter"));
const token = new URLSearchParams(location.hash.slice(1)).get("t");
if (form !== null) {
  history.replaceState(null, "", location.pathname);
  const field = /** @type {HTMLInputElement} */ (form.elements.namedItem("t"));
  if (token === null) {
    const missing = /** @type {HTMLElement} */ (form.querySelector("#missing"));
    missing.hidden = false;
  } else {
    field.value = token;
    form.submit();
  }
}
