// The log of events: what this node saw, and what only the store knows.

import { get, make, when } from "./dom.js";

const KEPT = 500;
const QUIET = ["election_check", "lease_renewed", "leader_changed"];
const WARN = ["contention:detected", "worker:timeout", "epoch_regressed", "fallback_started", "leader_down", "lease_at_risk", "lost_leadership", "node_conflict", "node_down", "store_unavailable", "check_failing", "job_late", "job_missed"];
const BAD = ["worker:conflict", "candidate_restarted", "plugin_failed", "process_stuck", "processes_stuck", "processes_gave_up", "seat_unreadable", "store_denied", "store_unsafe", "job_failed", "job_expired"];
const USUAL = ["event", "namespace", "node", "time", "bootMs", "plugins", "epoch"];

const seen = []; // of this node, the newest first
let stored = []; // from the store

function short(name) {
  return name.includes(":") ? name : name.slice(name.lastIndexOf(".") + 1);
}

function levelOf(kind) {
  return BAD.includes(kind) ? 3 : WARN.includes(kind) ? 2 : QUIET.includes(kind) ? 0 : 1;
}

function fields(data) {
  const own = Object.entries(data).filter(([key]) => !USUAL.includes(key));
  return own.map(([key, value]) => `${key} ${plain(value)}`).join(", ");
}

function plain(value) {
  if (Array.isArray(value)) return value.map(plain).join("; ") || "none";
  if (value && typeof value === "object") return Object.values(value).map(plain).join(" ");
  return typeof value === "number" ? String(Math.round(value * 100) / 100) : String(value ?? "none");
}

export function clearEvents() {
  seen.length = 0;
}

/** What the stream brought. Says what kind of event it is. */
export function noteEvent(name, data) {
  const kind = name === "missed" ? "missed" : short(String(data.event ?? name));
  if (kind === "missed") {
    seen.unshift({ missed: `${data.missed ?? "Some"} events are missing here: ${data.why}`, at: Date.now() });
  } else {
    const own = fields(data);
    seen.unshift({ kind, level: levelOf(kind), at: Date.parse(data.time), time: data.time, epoch: data.epoch, words: `epoch ${data.epoch}${own ? ` · ${own}` : ""}`, link: data.job });
  }
  seen.length = Math.min(seen.length, KEPT);
  soon();
  return kind;
}

/** Terms and jobs from the store, as far as this node's own events do not have them. */
export function noteStored(terms, jobs) {
  const epochs = new Set(seen.filter((event) => event.kind === "leader:changed" || event.kind === "became_leader").map((event) => event.epoch));
  const told = new Set(seen.filter((event) => event.kind === "job_failed" || event.kind === "job_expired").map((event) => event.link));
  const changes = terms.filter((term) => term.from && !epochs.has(term.epoch)).map((term) =>
    ({ kind: "leader:changed", level: 1, at: Date.parse(term.from), time: term.from, words: `epoch ${term.epoch} · newLeader ${term.leader}` }));
  const wrong = jobs.filter((job) => job.ended && !told.has(job.id) && ["failed", "timed_out", "lost", "expired"].includes(job.state)).map((job) => {
    const kind = job.state === "expired" ? "job_expired" : "job_failed";
    return { kind, level: 3, at: job.ended, time: new Date(job.ended).toISOString(), words: `job ${job.id} · ${job.state}${job.reason ? `: ${job.reason}` : ""}`, link: job.id };
  });
  stored = [...changes, ...wrong];
  soon();
}

let pending = false;
function soon() {
  if (pending || get("hold").getAttribute("aria-pressed") === "true") return;
  pending = true;
  setTimeout(() => {
    pending = false;
    drawEvents();
  }, 100);
}

export function drawEvents() {
  const text = get("filter-text").value.trim().toLowerCase();
  const least = Number(get("filter-level").value);
  const all = [...seen, ...stored].sort((a, b) => b.at - a.at).slice(0, KEPT);
  const items = [];
  for (const event of all) {
    if (event.missed) {
      items.push(make("li", { class: "gap" }, event.missed));
      continue;
    }
    if (event.level < least || (text && !`${event.kind} ${event.words}`.toLowerCase().includes(text))) continue;
    const tone = [null, null, "warn", "bad"][event.level];
    const words = event.link ? [make("a", { href: `#job/${event.link}` }, event.words)] : [event.words];
    items.push(make("li", {}, when(event.time), make("strong", { "data-tone": tone }, event.kind), make("span", { class: "fields" }, ...words)));
  }
  get("events").replaceChildren(...items);
  get("events").hidden = items.length === 0;
  const empty = get("events-empty");
  empty.hidden = items.length > 0;
  empty.textContent = all.length ? "Nothing passes the filter." : "Nothing has happened yet.";
}
