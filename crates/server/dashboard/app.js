// The page's link to its node: what is asked when, what is done when nobody answers. Drawing is done by the other files.

import { ask, askAged, askToken, hasToken, headers, post, tokenMayHaveChanged, words } from "./api.js";
import { drawStore, drawTerms, noteContention, setSpan, termsOf } from "./cluster.js";
import { get, hints, text, tone } from "./dom.js";
import { clearEvents, drawEvents, noteEvent, noteStored } from "./events.js";
import { chooseAttempt, noteAsked, showJob } from "./job.js";
import { Stream } from "./stream.js";
import { drawCounts, drawFoot, drawLeader, drawNodes, drawState, tick } from "./top.js";
import { addOlder, chooseJobs, chosen, drawJobs, drawQueues, drawSchedules, drawWorkers, jobsQuery, noteChange, olderQueries, toggleMore } from "./work.js";

const REFRESH_MS = 2000; // with nothing happening
const SETTLE_MS = 150; // events come in bunches
const HURRY_MS = 250; // never more often without an event
const LISTS_MS = 5000;
const TERMS_MS = 60000;
const STALE_MS = 6000; // a page this old says so
const BACK_OFF_MAX_MS = 10000;
const NOTE_MS = 10000;
// A page that nobody touches is content with lists this old: it costs the store a twelfth.
const UNTOUCHED_MS = 10 * 60000;
const UNTOUCHED_AGE_S = 60;
const UNSEEN_AGE_S = 300; // only what happens is worth a look, for the title
const UNSEEN_MS = 5000;

const link = { state: "loading", since: Date.now(), why: "", wait: 0 };
const shown = { overview: null, at: 0 };
let touched = Date.now();
let visible = Date.now(); // since then
let asking = false;
let soon = { at: Infinity, timer: 0 };

function isUntouched() {
  return Date.now() - touched > UNTOUCHED_MS;
}

function say(state, why = "") {
  if (link.state !== state) link.since = Date.now();
  Object.assign(link, { state, why });
  document.documentElement.dataset.link = state;
  const live = state === "live";
  text("link", live ? "live" : state === "lost" ? "not connected" : "connecting");
  tone("link", live ? "good" : state === "lost" ? "bad" : "quiet");
  // Nobody can be asked by way of a node that does not answer.
  for (const button of document.querySelectorAll("[data-act]")) button.disabled = !live;
  drawState(shown.overview, link, shown.at);
}

async function refresh() {
  soon = { at: Infinity, timer: 0 };
  if (asking) return;
  asking = true;
  try {
    const first = shown.overview === null;
    const age = document.hidden ? UNSEEN_AGE_S : isUntouched() ? UNTOUCHED_AGE_S : 0;
    shown.overview = await ask(age ? `/v1/overview?maxAge=${age}` : "/v1/overview");
    shown.at = Date.now();
    link.wait = 0;
    say("live");
    draw();
    showLinks();
    if (first) lists();
  } catch (error) {
    link.wait = Math.min(BACK_OFF_MAX_MS, Math.max(1000, link.wait * 2));
    say(shown.overview ? "lost" : "loading", words(error));
  } finally {
    asking = false;
    if (!document.hidden) later(link.wait || pause());
  }
}

function draw() {
  const now = shown.overview;
  drawCounts(now);
  drawLeader(now);
  drawNodes(now);
  drawStore(now);
  drawTerms(termsOf(now, read.terms.body), now);
  drawFoot(now);
  tick(now, shown.at, link.state === "live");
  hints();
}

/** A link carries no token: where reading takes one, it would lead to a refusal. */
let linksAsked = false;
async function showLinks() {
  if (linksAsked) return;
  linksAsked = true;
  const open = !hasToken() || await fetch("/metrics", { method: "HEAD", credentials: "omit" }).then((answer) => answer.ok, () => false);
  get("links").hidden = !open;
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

/** What is read beside the overview: each is drawn when it is there, and what cannot be read stays as it was. */
const read = {
  queues: { path: () => "/v1/queues", draw: (body, at) => drawQueues(body, at) },
  schedules: { path: () => "/v1/schedules", draw: (body, at) => drawSchedules(body, at) },
  jobs: { path: jobsQuery, draw: (body, at) => drawJobs(body, at) },
  out: { path: () => "/v1/jobs?limit=300&state=dispatched,acked,running" },
  undone: { path: () => "/v1/jobs?limit=50&state=failed,timed_out,lost,expired" },
  terms: { path: () => "/v1/terms?limit=200", draw: (body) => shown.overview && drawTerms(termsOf(shown.overview, body), shown.overview) },
  workers: { path: () => "/v1/workers", draw: (body, at) => drawWorkers(body, at, read.out.body) },
};

async function readOne(part) {
  try {
    const { body, age } = await askAged(part.path());
    Object.assign(part, { body, at: Date.now() - age });
  } catch {
    // The overview says what is wrong with the node.
  }
  if (part.body && part.draw) part.draw(part.body, part.at);
}

let listing = 0;
async function lists() {
  clearTimeout(listing);
  if (document.hidden) return;
  // Terms change with the epoch; and now and then somebody learns why one ended.
  const { body: terms, at } = read.terms;
  const told = terms && shown.overview && terms.epoch >= shown.overview.epoch && Date.now() - at < TERMS_MS;
  await Promise.all([readOne(read.out), readOne(read.undone), told ? null : readOne(read.terms)]);
  await Promise.all([readOne(read.queues), readOne(read.schedules), readOne(read.jobs), readOne(read.workers)]);
  noteStored(termsOf(shown.overview, read.terms.body), read.undone.body ? read.undone.body.jobs : []);
  hints();
  clearTimeout(listing);
  listing = setTimeout(lists, isUntouched() ? UNTOUCHED_AGE_S * 1000 : LISTS_MS);
}

/** The newest 500. What a healthy node repeats all the time would drive out the rest, and comes if it is asked for. */
function eventsUrl() {
  return `/v1/events?recent=500&level=${get("filter-level").value === "0" ? "debug" : "info"}`;
}

const stream = new Stream(eventsUrl(), headers, {
  event(id, name, data) {
    const kind = noteEvent(name, data);
    if (kind === "contention:detected" && shown.overview) noteContention(shown.overview);
    if (link.state === "live") later(document.hidden ? UNSEEN_MS : SETTLE_MS);
  },
  unauthorized: askToken,
});

/** What can be done: what is asked before, how the node is told, and what is said afterwards. */
const ACTIONS = {
  "step-down": {
    title: (id) => `Ask ${id} to step down?`,
    text: "It stops its work, vacates the seat, and another node takes over with the next epoch. If nobody else is there, it leads again after a while.",
    yes: "Step down", harsh: true, path: () => "/v1/step-down", done: (id) => `${id} was asked to step down.`,
  },
  "run-now": {
    title: (id) => `Run ${id} now?`, text: "The leader makes a job of it at once, beside those of its times.",
    yes: "Run it now", path: (id) => `/v1/schedules/${id}/run-now`, done: (id, answer) => `The leader was asked for job ${answer.job}.`,
  },
  "pause-schedule": {
    title: (id) => `Pause schedule ${id}?`, text: "It makes no jobs until somebody resumes it. The jobs that it has made go on.",
    yes: "Pause it", path: (id) => `/v1/schedules/${id}/pause`, done: (id) => `Schedule ${id} is paused.`, then: (id) => noteChange(`schedule ${id}`, false),
  },
  "resume-schedule": {
    title: (id) => `Resume schedule ${id}?`, text: "It makes jobs again from now on.",
    yes: "Resume it", path: (id) => `/v1/schedules/${id}/resume`, done: (id) => `Schedule ${id} makes jobs again.`, then: (id) => noteChange(`schedule ${id}`, true),
  },
  "pause-queue": {
    title: (id) => `Pause queue ${id}?`, text: "None of its jobs is given to a worker until somebody resumes it. Those that run go on.",
    yes: "Pause it", path: (id) => `/v1/queues/${id}/pause`, done: (id) => `Queue ${id} is paused.`, then: (id) => noteChange(`queue ${id}`, true),
  },
  "resume-queue": {
    title: (id) => `Resume queue ${id}?`, text: "Its jobs are given to workers again.",
    yes: "Resume it", path: (id) => `/v1/queues/${id}/resume`, done: (id) => `Queue ${id} is active.`, then: (id) => noteChange(`queue ${id}`, false),
  },
  cancel: {
    title: () => "Cancel this job?", text: "If it waits, it never runs. If it runs, its worker is told to stop it.",
    yes: "Cancel it", no: "No, let it be", harsh: true, path: (id) => `/v1/jobs/${id}/cancel`, done: (id) => `The leader was asked to cancel job ${id}.`, then: (id) => noteAsked(id, "cancel"),
  },
  retry: {
    title: () => "Try this job again?", text: "The leader gives it one attempt more.",
    yes: "Try it again", path: (id) => `/v1/jobs/${id}/retry`, done: (id) => `The leader was asked to try job ${id} again.`, then: (id) => noteAsked(id, "retry"),
  },
};

async function act(name, id) {
  const { title, text: question, yes, no, harsh, path, done, then } = ACTIONS[name];
  text("ask-title", title(id));
  text("ask-text", question);
  text("ask-yes", yes);
  text("ask-no", no || "No, leave it");
  get("ask-yes").className = harsh ? "danger" : "main";
  const dialog = get("ask");
  dialog.returnValue = ""; // Escape says nothing.
  dialog.showModal();
  // The event of an earlier question may come only now, when this one is open.
  const answer = await new Promise((resolve) => {
    const closed = () => {
      if (dialog.open) return;
      dialog.removeEventListener("close", closed);
      resolve(dialog.returnValue);
    };
    dialog.addEventListener("close", closed);
  });
  if (answer !== "yes") return;
  try {
    const told = await post(path(encodeURIComponent(id)));
    note(done(id, told), "good");
    if (then) then(id);
  } catch (error) {
    note(`Nothing was done: ${words(error)}.`, "bad");
  }
  later(0);
  lists();
}

let noted = 0;
function note(words, how) {
  clearTimeout(noted);
  tone("note", how);
  text("note", words);
  get("note").hidden = false;
  noted = setTimeout(() => { get("note").hidden = true; }, NOTE_MS);
}

/** `#job/ID` is the page of a job, `#jobs-dead?queue=mail` a choice of jobs; everything else is the cluster, or a place on it. */
function route() {
  tokenMayHaveChanged();
  const hash = location.hash.slice(1);
  const job = hash.startsWith("job/") ? hash.slice(4) : null;
  const before = get("job").hidden ? "main" : "job";
  get("job").hidden = !job;
  get("main").hidden = Boolean(job);
  document.querySelector(".skip").href = job ? "#job-id" : "#main";
  showJob(job);
  if (job) {
    get("job-id").focus({ preventScroll: true });
    if (before !== "job") scrollTo(0, 0);
    return;
  }
  if (hash.startsWith("jobs-")) {
    chooseJobs(hash.slice(5));
    readOne(read.jobs);
  }
  const place = hash.startsWith("jobs-") ? get("h-jobs") : hash ? get(hash) : null;
  if (place) {
    place.scrollIntoView();
    place.focus({ preventScroll: true });
  }
  if (shown.overview && before === "job") draw();
}

function theme() {
  const order = ["", "light", "dark"];
  const names = ["as the system has them", "light", "dark"];
  const root = document.documentElement;
  const set = (value) => {
    if (value) root.dataset.theme = value;
    else delete root.dataset.theme;
    const button = get("theme");
    button.firstElementChild.textContent = value === "light" ? "☀" : value === "dark" ? "☾" : "◐";
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
document.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  const { act: what, which, attempt, span } = button.dataset;
  if (what === "all-jobs -") location.hash = `jobs-${chosen().which}`;
  else if (what) act(what.slice(0, what.indexOf(" ")), what.slice(what.indexOf(" ") + 1));
  else if (which) location.hash = chooseWhich(which);
  else if (attempt) chooseAttempt(Number(attempt));
  else if (span !== undefined) {
    for (const other of document.querySelectorAll("[data-span]")) other.setAttribute("aria-pressed", String(other === button));
    setSpan(Number(span));
    if (shown.overview) draw();
  }
});
function chooseWhich(which) {
  const { queue, schedule } = chosen();
  const query = queue ? `?queue=${queue}` : schedule ? `?schedule=${schedule}` : "";
  return `jobs-${which}${query}`;
}
get("filter").addEventListener("input", () => {
  const url = eventsUrl();
  if (url !== stream.url) clearEvents();
  stream.turnTo(url);
  drawEvents();
});
get("filter").addEventListener("submit", (event) => event.preventDefault());
get("hold").addEventListener("click", () => {
  const button = get("hold");
  button.setAttribute("aria-pressed", String(button.getAttribute("aria-pressed") !== "true"));
  drawEvents();
});
get("jobs-more").addEventListener("click", () => {
  toggleMore();
  if (read.jobs.body) drawJobs(read.jobs.body, read.jobs.at);
});
get("jobs-older").addEventListener("click", async () => {
  get("jobs-older").disabled = true;
  try {
    addOlder(await Promise.all(olderQueries().map(async ([state, path]) => [state, await ask(path)])));
    if (read.jobs.body) drawJobs(read.jobs.body, read.jobs.at);
  } catch (error) {
    note(`Older jobs cannot be shown now: ${words(error)}.`, "bad");
  } finally {
    get("jobs-older").disabled = false;
  }
});
addEventListener("resize", () => {
  if (shown.overview) draw();
});
addEventListener("hashchange", route);
for (const kind of ["pointerdown", "pointermove", "keydown", "wheel"]) {
  addEventListener(kind, () => {
    const back = isUntouched();
    touched = Date.now();
    if (back) lists();
  }, { passive: true });
}
document.addEventListener("visibilitychange", () => {
  if (document.hidden) return;
  touched = visible = Date.now();
  later(0);
  lists();
});
setInterval(() => {
  if (document.hidden) return;
  const old = shown.at && Date.now() - Math.max(shown.at, visible) > STALE_MS;
  if (old && link.state === "live") say("lost", "it does not answer in time");
  else if (link.state !== "live") drawState(shown.overview, link, shown.at);
  if (shown.overview) tick(shown.overview, shown.at, link.state === "live");
}, 250);
route();
refresh();
stream.run();
