// Queues, schedules, jobs and workers.

import { action, ago, count, dim, duration, fill, get, make, pill, put, row, text, when } from "./dom.js";
import { strip } from "./plot.js";

const SHOWN = 15;
const OUT = ["dispatched", "acked", "running"];
const WHICH = { all: "", running: OUT.join(","), waiting: "queued", dead: "failed,timed_out,lost,expired" };

/** Which jobs are shown. */
const wanted = { which: "all", queue: "", schedule: "", more: false };

/** Those that the ledger no longer has, the newest first, and where to go on: a place for each state that is looked for. */
let older = { jobs: [], next: null };

/** What people have just changed through this page: lists that were read before do not know it yet. */
const changed = new Map();

export function noteChange(what, value) {
  changed.set(what, { value, at: Date.now() });
}

function known(what, value, readAt) {
  const change = changed.get(what);
  if (!change) return value;
  if (change.at < readAt) changed.delete(what);
  return change.at < readAt ? value : change.value;
}

function looked(readAt) {
  return `looked at ${ago(Date.now() - readAt)}`;
}

function link(words, to, label) {
  return make("a", { href: `#jobs-${to}`, "aria-label": label }, words);
}

export function drawQueues({ queues, unreadable }, readAt) {
  const rows = queues.map((queue) => {
    const paused = known(`queue ${queue.queue}`, queue.paused, readAt);
    const name = queue.queue;
    const to = (number, which, what) => (number ? link(number.toLocaleString("en"), `${which}?queue=${name}`, `${number} ${what} in queue ${name}`) : "0");
    const dead = make("td", { "data-tone": queue.dead ? "bad" : null }, to(queue.dead, "dead", "dead"));
    const running = queue.concurrency === null ? to(queue.running, "running", "running") : [to(queue.running, "running", "running"), dim(` of ${queue.concurrency}`)];
    const act = paused ? action("resume-queue", name, "Resume", `Resume queue ${name}`) : action("pause-queue", name, "Pause", `Pause queue ${name}`);
    return row(name, name, paused ? pill("paused") : pill("active"), to(queue.waiting, "waiting", "waiting"), running, dead, queue.oldestMs === null ? "–" : when(readAt - queue.oldestMs), act);
  });
  text("queues-note", rows.length ? looked(readAt) : "");
  const missing = unreadable.length ? ` ${count(unreadable.length, "part")} of the ledger cannot be read.` : "";
  fill("queues", rows, `No queue has jobs. The first job that names a queue makes it.${missing}`);
}

export function drawSchedules(list, readAt) {
  const rows = list.schedules.map((schedule) => {
    const { id, zone, last } = schedule;
    const enabled = known(`schedule ${id}`, schedule.enabled !== false, readAt);
    const checks = (schedule.checks || []).length;
    const wrong = schedule.failing > 0 ? `${schedule.failing} of ${count(checks, "check")} failing` : null;
    const lost = last && ["failed", "timed_out", "lost", "expired"].includes(last.state);
    const state = !enabled ? [pill("paused")] : wrong || lost ? [pill("failing", wrong || "failing")] : [pill("enabled")];
    const ran = last ? [make("a", { href: `#job/${last.job}` }, pill(last.state)), " ", when(last.ended, zone)] : "–";
    const due = schedule.cron ? `${schedule.cron}${zone ? ` ${zone}` : ""}` : schedule.manual ? "when asked" : `every ${duration(schedule.every)}`;
    const acts = [action("run-now", id, "Run now", `Run now: ${id}`), " ", enabled ? action("pause-schedule", id, "Pause", `Pause schedule ${id}`) : action("resume-schedule", id, "Resume", `Resume schedule ${id}`)];
    const name = [make("a", { href: `#jobs-all?schedule=${id}`, "aria-label": `Jobs of ${id}` }, id), make("small", {}, due)];
    return row(id, name, state, ran, strip(schedule.runs || []), enabled ? when(schedule.next, zone) : "–", acts);
  });
  for (const refused of list.refused || []) {
    rows.push(row(`refused ${refused.id}`, refused.id, pill("refused"), make("td", { class: "long" }, (refused.problems || []).join("; ")), "–", "–", "–"));
  }
  text("schedules-note", rows.length ? looked(readAt) : "");
  fill("schedules", rows, ["Nothing is scheduled. ", make("code", {}, "tenure schedule add nightly --cron '30 2 * * *' -- CMD"), " schedules a command."]);
}

/** The query for the jobs that are shown. */
export function jobsQuery() {
  const query = new URLSearchParams({ limit: "100" });
  if (WHICH[wanted.which]) query.set("state", WHICH[wanted.which]);
  if (wanted.queue) query.set("queue", wanted.queue);
  if (wanted.schedule) query.set("schedule", wanted.schedule);
  return `/v1/jobs?${query}`;
}

/** Shows other jobs: `dead?queue=mail`. */
export function chooseJobs(choice) {
  const [which, query] = choice.split("?");
  const params = new URLSearchParams(query || "");
  Object.assign(wanted, { which: which in WHICH ? which : "all", queue: params.get("queue") || "", schedule: params.get("schedule") || "", more: false });
  older = { jobs: [], next: null };
}

/** The queries for the next page of what is over. */
export function olderQueries() {
  const states = wanted.which === "dead" ? WHICH.dead.split(",") : [""];
  return states.filter((state) => older.next === null || older.next[state] !== null).map((state) => {
    const query = new URLSearchParams({ limit: "100" });
    for (const [name, value] of [["state", state], ["queue", wanted.queue], ["schedule", wanted.schedule], ["before", older.next && older.next[state]]]) {
      if (value) query.set(name, value);
    }
    return [state, `/v1/history?${query}`];
  });
}

export function addOlder(pages) {
  older.next = { ...older.next, ...Object.fromEntries(pages.map(([state, page]) => [state, page.next])) };
  older.jobs.push(...pages.flatMap(([, page]) => page.jobs));
  older.jobs.sort((a, b) => b.ended - a.ended);
  wanted.more = true;
}

export function toggleMore() {
  wanted.more = !wanted.more;
}

export function chosen() {
  return { ...wanted };
}

export function isOver(job) {
  return !job.open;
}

/** How long an attempt took, or takes so far. */
export function took(job, now) {
  if (!job.began) return "–";
  return duration((job.ended || now) - job.began);
}

/** The time that says most about a job, and which one it is. */
function moment(job) {
  if (job.ended) return [when(job.ended), dim(" ended")];
  if (OUT.includes(job.state) && job.began) return [when(job.began), dim(" began")];
  return [when(job.due), dim(" due")];
}

function why(job) {
  const failed = (job.checks || []).filter((check) => !check.ok).map((check) => `${check.name}: ${check.detail}`).join("; ");
  const progress = job.percent === null || job.percent === undefined ? "" : `${job.percent} % ${job.progress || ""}`;
  return failed || (job.open ? progress : "") || job.reason || job.result || "–";
}

export function drawJobs(list, readAt) {
  for (const button of document.querySelectorAll("[data-which]")) button.setAttribute("aria-pressed", String(button.dataset.which === wanted.which));
  const of = wanted.queue ? `queue ${wanted.queue}` : wanted.schedule;
  put("jobs-of", of ? make("button", { type: "button", "data-act": "all-jobs -", "aria-label": `No longer only ${of}`, class: "small" }, `${of} ✕`) : null);
  const now = Date.now();
  const listed = new Set(list.jobs.map((job) => job.id));
  const all = [...list.jobs, ...older.jobs.filter((job) => !listed.has(job.id))];
  const rows = all.slice(0, wanted.more ? all.length : SHOWN).map((job) =>
    row(job.id, make("a", { href: `#job/${job.id}` }, job.id), pill(job.state), moment(job), took(job, now), `${job.attempt} of ${job.attempts}`, job.worker ?? job.target ?? "–", job.queue, make("td", { class: "long" }, why(job))));
  text("jobs-note", list.total ? `${list.total.toLocaleString("en")} · ${looked(readAt)}` : "");
  fill("jobs", rows, wanted.which === "all" && !of ? ["There are no jobs. ", make("code", {}, "tenure job submit -- /bin/date"), " submits one."] : "No such job.");
  get("jobs-more").hidden = all.length <= SHOWN;
  text("jobs-more", wanted.more ? `Show ${SHOWN}` : `Show ${all.length}`);
  // What runs or waits is in the list; only what is over can be older.
  const over = wanted.which === "all" || wanted.which === "dead";
  const end = older.next !== null && Object.values(older.next).every((next) => next === null);
  get("jobs-older").hidden = !over || end;
}

/** Those that are silent first: of many, they are the ones to look at. */
export function drawWorkers(list, readAt, jobs) {
  const out = new Map();
  const counted = jobs && jobs.jobs.length === jobs.total;
  for (const job of jobs ? jobs.jobs : []) {
    if (OUT.includes(job.state) && job.worker) out.set(job.worker, (out.get(job.worker) || 0) + 1);
  }
  const order = { inactive: 0, new: 1, active: 2 };
  const workers = [...list.workers].sort((a, b) => order[a.state] - order[b.state]);
  const rows = workers.slice(0, 200).map((worker) =>
    row(worker.workerId, worker.workerId, pill(worker.state, worker.state === "inactive" ? "silent" : worker.state), when(readAt - worker.lastSeenMsAgo), counted ? String(out.get(worker.workerId) || 0) : "–", worker.pluginType || "–", worker.pod, worker.timeout === null ? "–" : duration(worker.timeout)));
  const more = workers.length > 200 ? ` · 200 of ${workers.length} are shown` : "";
  text("workers-note", rows.length ? `${looked(readAt)}${more}` : "");
  fill("workers", rows, ["No worker has registered. ", make("code", {}, "tenure agent --id a1 --allow-command /bin/date"), " starts one that runs commands."]);
}

