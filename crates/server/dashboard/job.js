// The page of one job: its times, why it is as it is, and its output.

import { ask, words } from "./api.js";
import { action, dim, duration, fill, get, make, pill, put, row, text, when } from "./dom.js";
import { took } from "./work.js";

const LOOK_MS = 3000;
const shown = { id: null, job: null, attempt: null, output: null, timer: 0, asked: "" };

/** Shows a job until it is told to show none. */
export function showJob(id) {
  clearTimeout(shown.timer);
  if (id === shown.id) return;
  Object.assign(shown, { id, job: null, attempt: null, output: null, asked: "" });
  if (!id) return;
  text("job-id", id);
  for (const part of ["job-state", "job-acts", "job-facts", "output", "output-attempts"]) put(part);
  for (const part of ["job-trouble", "output-empty", "job-checks"]) get(part).hidden = true;
  text("output-note", "");
  look();
}

/** Something was asked of the leader: until the job's state changes, that is said. */
export function noteAsked(id, what) {
  if (id !== shown.id) return;
  shown.asked = `${what} ${shown.job ? shown.job.state : ""}`;
  look();
}

export function chooseAttempt(number) {
  shown.attempt = number;
  look();
}

async function look() {
  clearTimeout(shown.timer);
  const { id } = shown;
  if (!id) return;
  if (!document.hidden) {
    try {
      const job = await ask(`/v1/jobs/${encodeURIComponent(id)}`);
      if (id !== shown.id) return;
      shown.job = job;
      get("job-trouble").hidden = true;
      draw();
      await lookAtOutput(id);
    } catch (error) {
      if (id !== shown.id) return;
      get("job-trouble").hidden = false;
      text("job-trouble", error.status === 404 ? "There is no such job, or it is no longer kept." : `It cannot be shown now: ${words(error)}.`);
    }
  }
  if (id === shown.id && !(shown.job && !shown.job.open && shown.output && !shown.asked)) shown.timer = setTimeout(look, LOOK_MS);
}

async function lookAtOutput(id) {
  const attempt = shown.attempt ? `?attempt=${shown.attempt}` : "";
  try {
    const output = await ask(`/v1/jobs/${encodeURIComponent(id)}/output${attempt}`);
    if (id === shown.id) drawOutput(output);
  } catch (error) {
    if (id !== shown.id) return;
    shown.output = { attempt: shown.attempt };
    drawAttempts(shown.attempt);
    put("output");
    text("output-note", "");
    get("output").hidden = true;
    get("output-empty").hidden = false;
    text("output-empty", error.status === 404 ? (shown.job.attempt ? "None is kept." : "It has not begun.") : `It cannot be shown now: ${words(error)}.`);
  }
}

function fact(name, ...value) {
  return make("div", {}, make("dt", {}, name), make("dd", {}, ...value.filter((part) => part !== null)));
}

function draw() {
  const { job } = shown;
  const now = Date.now();
  const reason = job.reason ? ` ${job.reason}` : "";
  const progress = job.percent === null || job.percent === undefined ? "" : ` ${job.percent} % ${job.progress || ""}`;
  put("job-state", pill(job.state), make("span", {}, reason, progress));
  if (shown.asked && !shown.asked.endsWith(` ${job.state}`)) shown.asked = "";
  const undone = ["failed", "timed_out", "lost", "expired"].includes(job.state);
  const acts = [];
  if (shown.asked) acts.push(dim("The leader was asked."));
  else if (job.open) acts.push(action("cancel", job.id, "Cancel…"));
  else if (undone && !job.schedule) acts.push(action("retry", job.id, "Try it again…"));
  else if (undone) acts.push(action("run-now", job.schedule, `Run ${job.schedule} now…`));
  put("job-acts", ...acts);
  put("job-facts",
    job.schedule ? fact("Schedule", make("a", { href: `#jobs-all?schedule=${job.schedule}` }, job.schedule)) : null,
    fact("Queue", make("a", { href: `#jobs-all?queue=${job.queue}` }, job.queue)),
    fact("Kind", job.kind), fact("Priority", String(job.priority)),
    job.submitted ? fact("Submitted", when(job.submitted)) : null,
    fact("Due", when(job.due)),
    job.began ? fact("Began", when(job.began)) : null,
    job.ended ? fact("Ended", when(job.ended)) : null,
    job.began ? fact("Took", took(job, now)) : null,
    fact("Attempt", `${job.attempt} of ${job.attempts}`),
    job.worker ? fact("Worker", job.worker) : job.target ? fact("Only on", job.target) : null,
    job.epoch ? fact("Dispatched in", `epoch ${job.epoch}`) : null,
    job.result ? fact("Result", job.result) : null,
    ...job.late.map((late) => fact(`Attempt ${late.attempt}, too late`, `${late.outcome} by ${late.worker}`)));
  fill("job-checks", job.checks.map((check) => row(check.name, check.name, pill(check.ok ? "succeeded" : "failed", check.ok ? "well" : "failing"), duration(check.latencyMs), make("td", { class: "long" }, check.detail))), "");
  get("job-checks-empty").hidden = true;
}

/** Which stream a piece is from is said, not only coloured. */
function drawOutput(output) {
  shown.output = output;
  drawAttempts(output.attempt);
  const piece = ({ stream, text: said }) =>
    make("div", { class: stream === "stderr" ? "piece stderr" : "piece" }, stream === "stderr" ? make("span", { class: "stream" }, "stderr") : null, make("pre", {}, said));
  const gap = output.leftOut ? [make("p", { class: "piece gap" }, `${output.leftOut.toLocaleString("en")} bytes are left out here`)] : [];
  const pieces = [...output.first.map(piece), ...gap, ...output.last.map(piece)];
  const box = get("output");
  const below = box.scrollHeight - box.scrollTop - box.clientHeight < 40;
  put("output", ...pieces);
  if (below) box.scrollTop = box.scrollHeight;
  box.hidden = pieces.length === 0;
  get("output-empty").hidden = pieces.length > 0;
  text("output-empty", "It wrote nothing.");
  const running = shown.job.open && output.attempt === shown.job.attempt && !output.endedAt;
  text("output-note", `On ${output.worker}.${running ? " It is running: what it writes is kept every 30 s." : output.endedAt ? "" : " Its end was not told."}`);
}

/** One button for each attempt that was begun, if there are several. */
function drawAttempts(current) {
  const { attempt } = shown.job;
  const numbers = Array.from({ length: Math.min(attempt, 20) }, (_, index) => attempt - index).reverse();
  const buttons = numbers.map((number) => make("button", { type: "button", "data-attempt": number, "aria-pressed": String(number === current) }, `attempt ${number}`));
  put("output-attempts", ...(attempt > 1 ? buttons : []));
}
