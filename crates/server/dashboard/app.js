// The page's link to its node: what is asked when, what is done when nobody answers. Drawing is done by view.js.

import { clearEvents, draw, drawJobs, drawSchedules, drawEvents, drawLink, hints, noteEvent, setSpan, showAllJobs, tick } from "./view.js";
import { Stream } from "./stream.js";

const REFRESH_MS = 2000; // with nothing happening
const SETTLE_MS = 150; // events come in bunches
const HURRY_MS = 250; // never more often without an event
const LISTS_MS = 5000;
const STALE_MS = 6000; // a page this old says so
const PATIENCE_MS = 8000;
const BACK_OFF_MAX_MS = 10000;

const get = (id) => document.getElementById(id);
const link = { state: "loading", since: Date.now(), heard: 0, why: "", wait: 0 };
const shown = { overview: null, at: 0, schedules: null, jobs: null };
let token = takeToken() || sessionStorage.getItem("tenure-token") || "";
let asking = false;
let askedIn = null; // the epoch whose leader was asked to step down
let soon = { at: Infinity, timer: 0 };

/** The token of the link that `tenure run` prints. It is behind the hash, so no server sees it; nor does whoever looks at the address. */
function takeToken() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (!given) return "";
  sessionStorage.setItem("tenure-token", given);
  history.replaceState(null, "", location.pathname + location.search);
  return given;
}

function headers(more) {
  const all = { accept: "application/json", ...more };
  if (token) all.authorization = `Bearer ${token}`;
  return all;
}

/** A document of the node, or an error with words for people. */
async function ask(path, options = {}) {
  const answer = await fetch(path, {
    cache: "no-store", credentials: "omit", ...options,
    headers: headers(options.headers), signal: AbortSignal.timeout(PATIENCE_MS),
  });
  const body = await answer.json().catch(() => null);
  if (answer.status === 401 || (token && body && body.type === "urn:tenure:problem:read-only")) {
    if (!await askToken()) throw new Error("it wants a token");
    return ask(path, options);
  }
  if (!answer.ok) {
    throw new Error((body && (body.detail || body.title)) || `the node answers ${answer.status}`);
  }
  return body;
}

/** Whether there is another token now. */
let tokenAsked = null;
function askToken() {
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

function say(state, why = "") {
  if (link.state !== state) link.since = Date.now();
  link.state = state;
  link.why = why;
  document.documentElement.dataset.link = state;
  drawLink(link, shown.at);
}

async function refresh() {
  soon = { at: Infinity, timer: 0 };
  if (asking) return;
  asking = true;
  try {
    shown.overview = await ask("/v1/overview");
    shown.at = Date.now();
    link.wait = 0;
    if (link.state !== "live") say("live");
    draw(shown.overview, shown.at);
    showLinks();
    if (askedIn !== null && shown.overview.epoch !== askedIn) {
      get("step-down-note").textContent = "";
      askedIn = null;
    }
    if (!shown.schedules) lists();
  } catch (error) {
    link.wait = Math.min(BACK_OFF_MAX_MS, Math.max(1000, link.wait * 2));
    say(shown.overview ? "lost" : "loading", words(error));
  } finally {
    asking = false;
    later(link.wait || pause());
  }
}

/** A link carries no token: where reading takes one, it would lead to a refusal. */
let linksAsked = false;
async function showLinks() {
  if (linksAsked) return;
  linksAsked = true;
  const open = !token || await fetch("/metrics", { method: "HEAD", credentials: "omit" }).then((answer) => answer.ok, () => false);
  get("links").hidden = !open;
}

function words(error) {
  if (error.name === "TimeoutError") return "it does not answer in time";
  return error instanceof TypeError ? "it cannot be reached" : error.message;
}

/** Until the next look. Of the leader itself: until it should have renewed, for its gauge shows what is left. */
function pause() {
  const now = shown.overview;
  const leader = now && now.leader;
  if (!leader || leader.leaseRemainingMs === null || leader.leaseRemainingMs === undefined) return REFRESH_MS;
  const renewal = leader.leaseRemainingMs - (leader.leaseHoldMs - now.heartbeats.intervalMs);
  return Math.min(REFRESH_MS, Math.max(HURRY_MS, renewal + SETTLE_MS));
}

/** Never later than what was planned before: where something happens all the time, that counts too. */
function later(ms) {
  const at = Date.now() + ms;
  if (soon.at <= at) return;
  clearTimeout(soon.timer);
  soon = { at, timer: setTimeout(refresh, ms) };
}

let listing = 0;
async function lists() {
  clearTimeout(listing);
  try {
    if (!document.hidden) {
      [shown.schedules, shown.jobs] = await Promise.all([ask("/v1/schedules"), ask("/v1/jobs")]);
      drawSchedules(shown.schedules, shown.overview);
      drawJobs(shown.jobs, shown.overview);
    }
  } catch {
    // The overview says what is wrong with the node; lists that are old stay.
  } finally {
    listing = setTimeout(lists, LISTS_MS);
  }
}

/** The newest 500. What a healthy node repeats all the time would drive out the rest, and comes if it is asked for. */
function eventsUrl() {
  return `/v1/events?recent=500&level=${get("filter-level").value === "0" ? "debug" : "info"}`;
}

const stream = new Stream(eventsUrl(), headers, {
  open() {
    link.heard = Date.now();
  },
  event(id, name, data) {
    link.heard = Date.now();
    noteEvent(id, name, data, shown.overview);
    if (link.state === "live") later(SETTLE_MS);
  },
  unauthorized: askToken,
});

async function stepDown() {
  const dialog = get("ask");
  dialog.returnValue = ""; // Escape says nothing.
  dialog.showModal();
  const answer = await new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue), { once: true });
  });
  if (answer !== "yes") return;
  const note = get("step-down-note");
  const epoch = shown.overview.epoch;
  askedIn = epoch;
  get("step-down").disabled = true;
  note.textContent = "Asked. Waiting for somebody else to lead…";
  try {
    await ask("/v1/step-down", { method: "POST", headers: { "content-type": "application/json" }, body: "{}" });
    note.textContent = `The leader of epoch ${epoch} was asked to step down.`;
  } catch (error) {
    note.textContent = `It was not asked: ${words(error)}.`;
  }
  later(0);
}

function theme() {
  const order = ["", "light", "dark"];
  const names = ["as the system has them", "light", "dark"];
  const root = document.documentElement;
  const set = (value) => {
    if (value) root.dataset.theme = value;
    else delete root.dataset.theme;
    const button = get("theme");
    button.textContent = value === "light" ? "☀" : value === "dark" ? "☾" : "◐";
    button.setAttribute("aria-label", `Colours: ${names[order.indexOf(value)]}`);
  };
  set(order.includes(localStorage.getItem("tenure-theme")) ? localStorage.getItem("tenure-theme") : "");
  get("theme").addEventListener("click", () => {
    const next = order[(order.indexOf(root.dataset.theme || "") + 1) % order.length];
    localStorage.setItem("tenure-theme", next);
    set(next);
  });
}

theme();
get("step-down").addEventListener("click", stepDown);
get("filter").addEventListener("input", () => {
  const url = eventsUrl();
  if (url !== stream.url) clearEvents();
  stream.turnTo(url);
  drawEvents();
});
get("jobs-more").addEventListener("click", () => {
  showAllJobs();
  if (shown.jobs) drawJobs(shown.jobs, shown.overview);
});
addEventListener("resize", () => {
  if (shown.overview) draw(shown.overview, shown.at);
  hints();
});
get("filter").addEventListener("submit", (event) => event.preventDefault());
get("hold").addEventListener("click", () => {
  const button = get("hold");
  const held = button.getAttribute("aria-pressed") === "true";
  button.setAttribute("aria-pressed", String(!held));
  drawEvents();
});
for (const button of document.querySelectorAll("[data-span]")) {
  button.addEventListener("click", () => {
    for (const other of document.querySelectorAll("[data-span]")) {
      other.setAttribute("aria-pressed", String(other === button));
    }
    setSpan(Number(button.dataset.span));
    if (shown.overview) draw(shown.overview, shown.at);
  });
}
addEventListener("hashchange", () => {
  token = takeToken() || token;
});
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) later(0);
});
setInterval(() => {
  const old = shown.at && Date.now() - shown.at > STALE_MS;
  if (old && link.state === "live") say("lost", "it does not answer in time");
  else drawLink(link, shown.at);
  if (shown.overview) tick(shown.overview, shown.at, link.state);
}, 250);
refresh();
stream.run();
