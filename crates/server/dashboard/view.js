// What the page shows. Everything that comes from outside goes into the page as text, never as markup.

import { beats, colour, timeline, hue } from "./plot.js";

const EVENTS_KEPT = 500;
const JOBS_SHOWN = 10;
const LEGEND_MAX = 12;
const get = (id) => document.getElementById(id);
const events = [];
const marks = []; // contention, by the number of the heartbeat
let span = 0;
let live = false;
let canStepDown = false;
let allJobs = false;

/** An element with text and attributes. */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

export function setSpan(seconds) {
  span = seconds;
}

export function duration(ms) {
  if (ms === null || ms === undefined || Number.isNaN(ms)) return "–";
  const s = Math.max(0, ms) / 1000;
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 120) return `${Math.round(s)} s`;
  if (s < 7200) return `${Math.round(s / 60)} min`;
  if (s < 172800) return `${(s / 3600).toFixed(1)} h`;
  return `${Math.round(s / 86400)} days`;
}

export function clock(time) {
  const date = new Date(time);
  return Number.isNaN(date.getTime()) ? "–" : date.toLocaleTimeString([], { hour12: false });
}

function text(id, value) {
  const element = get(id);
  if (element.textContent !== value) element.textContent = value;
}

/** How many pixels a picture has, so that its letters are as large as all others. */
function wide(id) {
  return Math.max(240, get(id).clientWidth);
}

function tone(id, value) {
  get(id).dataset.tone = value;
}

const STATES = {
  good: ["up", "active", "healthy", "leader", "succeeded", "enabled"],
  warn: ["suspect", "degraded", "draining", "partial", "queued", "paused", "candidate"],
  bad: ["down", "critical", "inactive", "failed", "timed_out", "expired", "lost", "silent", "refused"],
};
function toneOf(state) {
  return Object.keys(STATES).find((key) => STATES[key].includes(state)) || "quiet";
}

function pill(state) {
  return make("span", { class: "pill", "data-tone": toneOf(state) }, String(state));
}

/** Says of tables that are wider than their card that there is more. */
export function hints() {
  for (const box of document.querySelectorAll(".scroll")) {
    const over = box.scrollWidth > box.clientWidth + 1;
    box.toggleAttribute("data-over", over);
    if (over) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  }
}

/** Nobody can be asked by way of a node that does not answer. */
function allowStepDown() {
  get("step-down").disabled = !live || !canStepDown;
}

/** Fills a table; says what is missing where there is nothing. */
function fill(id, rows, whenEmpty) {
  const body = document.querySelector(`#${id} tbody`);
  body.replaceChildren(...rows);
  get(id).hidden = rows.length === 0;
  const empty = get(`${id}-empty`);
  empty.hidden = rows.length > 0;
  if (whenEmpty) empty.textContent = whenEmpty;
  hints();
}

function row(...cells) {
  return make("tr", {}, ...cells.map((cell) => (cell instanceof HTMLTableCellElement ? cell : make("td", {}, cell ?? "–"))));
}

/** How the link is; what is shown stays, with its age. */
export function drawLink(link, at) {
  const age = at ? duration(Date.now() - at) : null;
  const banner = get("banner");
  live = link.state === "live";
  allowStepDown();
  if (live) {
    text("link", "live");
    tone("link", "good");
    banner.hidden = true;
    return;
  }
  const lost = link.state === "lost";
  text("link", lost ? "not connected" : "connecting");
  tone("link", lost ? "bad" : "quiet");
  banner.hidden = !lost && !link.why;
  const sentence = lost
    ? `The node does not answer: ${link.why}. What you see is ${age} old; the page goes on trying.`
    : `Waiting for the node: ${link.why}.`;
  if (!banner.hidden && banner.textContent !== sentence) banner.textContent = sentence;
}

export function draw(now, at) {
  document.title = `${now.leader ? now.leader.node : "no leader"} · ${now.namespace} · Tenure`;
  text("namespace", now.namespace);
  text("self", now.node);
  text("role", now.role || (now.eligible ? "starting" : "observer"));
  tone("role", now.role === "leader" ? "good" : "quiet");
  text("software", now.software);
  text("notes", now.notes.join(" · "));
  drawLeader(now);
  drawHealth(now);
  drawRequests(now);
  drawTerms(now);
  drawBeats(now);
  drawNodes(now);
  drawWorkers(now);
  tick(now, at, live ? "live" : "lost");
}

function drawLeader(now) {
  const leader = now.leader;
  const dead = isSilent(leader);
  text("leader-name", leader ? leader.node : "nobody leads");
  get("leader-name").style.color = leader && !dead ? `light-dark(hsl(${hue(leader.node)} 60% 30%), hsl(${hue(leader.node)} 60% 72%))` : "var(--bad)";
  text("leader-epoch", now.epoch ? `epoch ${now.epoch}` : "no epoch yet");
  canStepDown = Boolean(leader) && !dead && leader.askedToStepDown !== true;
  allowStepDown();
  text("ask-name", leader ? leader.node : "");
}

function toneOfShare(share) {
  return share > 0.4 ? "good" : share > 0.2 ? "warn" : "bad";
}

/** Whether it may not act any more unless it has renewed since: not seen to for a whole hold. */
function isSilent(leader) {
  return Boolean(leader) && !leader.isThisNode && leader.silentMs !== null && leader.silentMs > leader.leaseHoldMs;
}

/** What moves between two answers: gauge and ages. */
export function tick(now, at, state) {
  const leader = now.leader;
  const since = leader && (leader.since || leader.seenSince);
  const led = since ? Date.parse(now.time) - Date.parse(since) + (state === "live" ? Date.now() - at : 0) : null;
  text("leader-since", since ? `since ${clock(since)}, for ${duration(led)}` : leader ? "since before this node started" : "the seat is vacant, or its holder is silent");
  const gauge = get("gauge");
  const fillBar = get("gauge-fill");
  const known = leader && leader.leaseRemainingMs !== null && leader.leaseRemainingMs !== undefined;
  if (!known) {
    // Of another leader: how long ago it was seen to renew. What of its hold is left can be no more than that.
    const silent = leader && leader.silentMs !== null ? leader.silentMs + (state === "live" ? Date.now() - at : 0) : null;
    const share = silent === null ? 0 : Math.max(0, 1 - silent / leader.leaseHoldMs);
    fillBar.style.width = `${(share * 100).toFixed(1)}%`;
    fillBar.dataset.tone = toneOfShare(share);
    gauge.removeAttribute("aria-valuenow");
    const seen = !leader ? "nobody holds one" : silent === null ? "not seen to renew yet" : `seen to renew ${duration(silent)} ago`;
    gauge.setAttribute("aria-valuetext", seen);
    text("gauge-text", seen);
    return;
  }
  const left = Math.max(0, leader.leaseRemainingMs - (Date.now() - at));
  const share = Math.min(1, left / leader.leaseHoldMs);
  fillBar.style.width = `${(share * 100).toFixed(1)}%`;
  fillBar.dataset.tone = toneOfShare(share);
  gauge.setAttribute("aria-valuenow", String(Math.round(share * 100)));
  const words = state === "live" ? `${duration(left)} of ${duration(leader.leaseHoldMs)} left` : "not known without the node";
  gauge.setAttribute("aria-valuetext", words);
  text("gauge-text", words);
}

function drawHealth(now) {
  const health = now.health;
  const status = health ? health.status : "unknown";
  text("health-status", status);
  get("health-status").parentElement.dataset.tone = toneOf(status);
  text("health-age", health && health.ageMs !== null && health.ageMs !== undefined ? `judged ${duration(health.ageMs)} ago` : "");
  const reasons = health ? health.reasons : [];
  const items = reasons.map((reason) => {
    const what = [reason.code.replaceAll("_", " "), reason.subject].filter(Boolean).join(": ");
    const item = make("li", {}, make("strong", {}, what));
    if (reason.detail) item.append(" ", make("span", {}, reason.detail));
    return item;
  });
  if (!items.length) {
    items.push(make("li", {}, make("span", {}, status === "healthy" ? "Every node and worker is where it should be." : "No leader has judged it yet.")));
  }
  get("health-reasons").replaceChildren(...items);
  get("health-reasons").dataset.tone = toneOf(status);
}

function drawRequests(now) {
  const requests = now.requests;
  const measured = requests.measuredMs > 0;
  const rate = (value) => (measured ? `${value.toFixed(value < 10 ? 2 : 0)} /s` : "…");
  text("rate", measured ? requests.perSecond.toFixed(requests.perSecond < 10 ? 2 : 0) : "…");
  const free = requests.costPerMonth === 0;
  text("cost", !measured ? "…" : free ? "nothing" : `$${requests.costPerMonth.toFixed(2)}`);
  text("writes", rate(requests.writesPerSecond));
  text("reads", rate(requests.readsPerSecond));
  text("cost-note", !measured ? "Being measured." : free ? "This store bills no requests." : `At S3's list prices, as measured over ${duration(requests.measuredMs)}.`);
}

function drawTerms(now) {
  const terms = now.history;
  get("timeline").replaceChildren(...(terms.length ? [timeline(terms, Date.parse(now.time), span, wide("timeline"))] : []));
  drawLegend(terms);
  const end = Date.parse(now.time);
  const rows = terms.slice(-8).reverse().map((term) => {
    const until = term.until ? Date.parse(term.until) : end;
    const why = term.until ? (term.reason ?? "replaced") : term.reason ? pill(term.reason) : pill("leader");
    return row(String(term.epoch), term.node, clock(term.from), duration(until - Date.parse(term.from)), why);
  });
  fill("terms", rows);
}

/** Which colour is who. */
function drawLegend(terms) {
  const names = [...new Set(terms.map((term) => term.node))];
  const entry = (name, swatch) => make("li", {}, swatch, name);
  const items = names.slice(-LEGEND_MAX).map((name) => {
    const swatch = make("i", { class: "swatch", "aria-hidden": "true" });
    swatch.style.background = colour(name);
    return entry(name, swatch);
  });
  if (names.length > LEGEND_MAX) items.push(make("li", {}, `and ${names.length - LEGEND_MAX} more`));
  if (names.length) items.push(entry("nobody", make("i", { class: "swatch nobody", "aria-hidden": "true" })));
  get("legend").replaceChildren(...items);
}

function drawBeats(now) {
  const beatsNow = now.heartbeats;
  text("p50", `p50 ${beatsNow.p50Ms ?? "–"} ms`);
  text("p99", `p99 ${beatsNow.p99Ms ?? "–"} ms`);
  const contention = now.contention;
  text("contention", contention.enabled ? `${contention.events} slow of ${beatsNow.count}` : "slow ones are not looked for");
  const samples = beatsNow.samplesMs;
  const first = beatsNow.count - samples.length;
  const at = marks.map((mark) => mark.beat - first - 1).filter((index) => index >= 0 && index < samples.length);
  get("beats").replaceChildren(...(samples.length ? [beats(samples, beatsNow, at, wide("beats"))] : []));
  get("beats-empty").hidden = samples.length > 0;
}

function drawNodes(now) {
  const age = now.nodesAgeMs;
  text("nodes-age", now.nodes ? `${now.nodes.length} · looked at ${duration(age)} ago` : "");
  const rows = (now.nodes || []).map((node) => {
    const name = make("td", {}, node.node, node.node === now.node ? make("span", { class: "dim" }, " (this one)") : null);
    // The judgement is older than the presence: who has gone is not up.
    const state = node.role === "gone" && (node.state === "up" || node.state === "suspect") ? "gone" : node.state;
    return row(name, pill(node.role), state ? pill(state) : "–", node.version, make("td", { class: "mono" }, node.incarnation ?? "–"), `${duration(node.lastSeenMsAgo)} ago`);
  });
  fill("nodes", rows, now.nodes ? "No node has made itself known." : "The store has not said yet.");
}

function drawWorkers(now) {
  const workers = now.workers;
  const total = workers.active + workers.inactive;
  const more = total > workers.list.length ? ` · the first ${workers.list.length} are shown` : "";
  text("workers-count", total ? `${workers.active} active, ${workers.inactive} inactive${more}` : "");
  fill("workers", workers.list.map((worker) => row(worker.workerId, pill(worker.state), worker.pluginType || "–", worker.pod, duration(worker.timeout))));
}

export function drawSchedules(list, now) {
  const when = (schedule) => (schedule.cron ? `${schedule.cron}${schedule.zone ? ` ${schedule.zone}` : ""}` : schedule.manual ? "when asked" : `every ${duration(schedule.every)}`);
  const checks = (schedule) => {
    const count = (schedule.checks || []).length;
    return schedule.failing > 0 ? make("span", { class: "pill", "data-tone": "bad" }, `${schedule.failing} of ${count} failing`) : String(count);
  };
  const rows = list.schedules.slice(0, 200).map((schedule) =>
    row(schedule.id, when(schedule), pill(schedule.enabled === false ? "paused" : "enabled"), checks(schedule), schedule.next ? clock(schedule.next) : "–"));
  for (const refused of list.refused || []) {
    rows.push(row(refused.id, make("td", { class: "long" }, (refused.problems || []).join("; ")), pill("refused"), "–", "–"));
  }
  text("schedules-count", now.schedules && now.schedules.total ? `${now.schedules.enabled} of ${now.schedules.total} enabled` : "");
  fill("schedules", rows);
}

export function drawJobs(list, now) {
  const checks = (job) => (job.checks || []).filter((check) => !check.ok).map((check) => `${check.name}: ${check.detail}`).join("; ");
  const rows = list.jobs.slice(0, allJobs ? 100 : JOBS_SHOWN).map((job) =>
    row(make("td", { class: "mono" }, job.id), pill(job.state), job.worker ?? job.target ?? "–", `${job.attempt} of ${job.attempts}`, make("td", { class: "long" }, checks(job) || job.result || job.reason || "–")));
  text("jobs-count", now.jobs && now.jobs.total ? `${now.jobs.open} open of ${now.jobs.total}` : "");
  fill("jobs", rows);
  const more = get("jobs-more");
  more.hidden = list.jobs.length <= JOBS_SHOWN;
  const many = list.total > list.jobs.length ? `the newest ${list.jobs.length}` : `all ${list.jobs.length}`;
  text("jobs-more", allJobs ? `Show the newest ${JOBS_SHOWN}` : `Show ${many}`);
}

/** All of them, or the newest again. */
export function showAllJobs() {
  allJobs = !allJobs;
}

const QUIET = ["election_check", "lease_renewed", "leader_changed"];
const WARN = ["contention:detected", "worker:timeout", "epoch_regressed", "fallback_started", "leader_down", "lease_at_risk", "lost_leadership", "node_conflict", "node_down", "store_unavailable", "check_failing"];
const BAD = ["worker:conflict", "candidate_restarted", "plugin_failed", "process_stuck", "processes_stuck", "processes_gave_up", "seat_unreadable", "store_denied", "store_unsafe"];
const USUAL = ["event", "namespace", "node", "time", "bootMs", "plugins", "epoch"];

function short(name) {
  return name.includes(":") ? name : name.slice(name.lastIndexOf(".") + 1);
}

export function clearEvents() {
  events.length = 0;
}

export function noteEvent(id, name, data, overview) {
  if (name === "missed") {
    events.unshift({ missed: `${data.missed ?? "Some"} events are missing here: ${data.why}` });
  } else {
    const kind = short(String(data.event ?? name));
    if (kind === "contention:detected" && overview) marks.push({ beat: overview.heartbeats.count + 1 });
    const level = BAD.includes(kind) ? 3 : WARN.includes(kind) ? 2 : QUIET.includes(kind) ? 0 : 1;
    events.unshift({ kind, level, data });
  }
  events.length = Math.min(events.length, EVENTS_KEPT);
  if (marks.length > 100) marks.shift();
  scheduleEvents();
}

let pending = false;
function scheduleEvents() {
  if (pending || get("hold").getAttribute("aria-pressed") === "true") return;
  pending = true;
  setTimeout(() => {
    pending = false;
    drawEvents();
  }, 100);
}

function fields(data) {
  const own = Object.entries(data).filter(([key]) => !USUAL.includes(key));
  return own.map(([key, value]) => `${key} ${typeof value === "string" ? value : JSON.stringify(value)}`).join(", ");
}

export function drawEvents() {
  const wanted = get("filter-text").value.trim().toLowerCase();
  const least = Number(get("filter-level").value);
  const items = [];
  for (const event of events) {
    if (event.missed) {
      items.push(make("li", { class: "gap" }, event.missed));
      continue;
    }
    if (event.level < least) continue;
    const own = fields(event.data);
    if (wanted && !`${event.kind} ${event.data.node} ${own}`.toLowerCase().includes(wanted)) continue;
    const tone = ["quiet", "", "warn", "bad"][event.level];
    items.push(make("li", {}, make("time", { datetime: event.data.time }, clock(event.data.time)), make("strong", { "data-tone": tone || null }, event.kind),
      make("span", { class: "fields" }, `epoch ${event.data.epoch}${own ? ` · ${own}` : ""}`)));
  }
  get("events").replaceChildren(...items);
  get("events").hidden = items.length === 0;
  const empty = get("events-empty");
  empty.hidden = items.length > 0;
  empty.textContent = events.length ? "Nothing passes the filter." : "Nothing has happened yet.";
}
