// Asking the node, with the token if there is one, and asking people for it.

import { get } from "./dom.js";

const PATIENCE_MS = 8000;

let token = takeToken() || sessionStorage.getItem("tenure-token") || "";

/** The token of the link that `tenure run` prints. It is behind the hash, so no server sees it; nor does whoever looks at the address. */
function takeToken() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (!given) return "";
  sessionStorage.setItem("tenure-token", given);
  history.replaceState(null, "", location.pathname + location.search);
  return given;
}

export function tokenMayHaveChanged() {
  token = takeToken() || token;
}

export function hasToken() {
  return token !== "";
}

export function headers(more) {
  const all = { accept: "application/json", ...more };
  if (token) all.authorization = `Bearer ${token}`;
  return all;
}

/** A document of the node and its age in ms, or an error with words for people and the status. */
export async function askAged(path, options = {}) {
  const answer = await fetch(path, {
    cache: "no-store", credentials: "omit", ...options,
    headers: headers(options.headers), signal: AbortSignal.timeout(PATIENCE_MS),
  });
  const body = await answer.json().catch(() => null);
  if (answer.status === 401 || (token && body && body.type === "urn:tenure:problem:read-only")) {
    if (!await askToken()) throw new Error("it wants a token");
    return askAged(path, options);
  }
  if (!answer.ok) {
    const error = new Error((body && (body.detail || body.title)) || `the node answers ${answer.status}`);
    error.status = answer.status;
    throw error;
  }
  return { body, age: Number(answer.headers.get("age") || 0) * 1000 };
}

export async function ask(path, options) {
  return (await askAged(path, options)).body;
}

export function post(path, body = {}) {
  return ask(path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
}

/** Whether there is another token now. */
let tokenAsked = null;
export function askToken() {
  tokenAsked ||= new Promise((resolve) => {
    const dialog = get("token");
    const text = get("token-text");
    get("token-wrong").hidden = !token;
    text.value = dialog.returnValue = "";
    dialog.showModal();
    dialog.addEventListener("close", () => {
      const given = dialog.returnValue === "yes" ? text.value.trim() : "";
      text.value = "";
      if (given) sessionStorage.setItem("tenure-token", token = given);
      tokenAsked = null;
      resolve(given !== "");
    }, { once: true });
  });
  return tokenAsked;
}

export function words(error) {
  if (error.name === "TimeoutError") return "it does not answer in time";
  return error instanceof TypeError ? "it cannot be reached" : error.message;
}
