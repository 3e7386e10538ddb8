// Terms, the store, and what it costs.

import { clock, duration, fill, get, make, pill, put, row, text, when, wide } from "./dom.js";
import { beats, timeline } from "./plot.js";
import { isSilent } from "./top.js";

const marks = []; // contention, by the number of the heartbeat
let span = 0;

export function setSpan(seconds) {
  span = seconds;
}

export function noteContention(overview) {
  marks.push(overview.heartbeats.count + 1);
  if (marks.length > 100) marks.shift();
}

/** The cluster's terms, the oldest first: those on the store, and what this node has seen since, or instead if they cannot be read. */
export function termsOf(now, stored) {
  const terms = new Map(now.history.map(({ epoch, node, from, until, reason }) => [epoch, { epoch, leader: node, from, until, ended: reason, why: reason }]));
  for (const { epoch, leader, from, until, ended, why } of stored ? stored.terms : []) {
    const seen = terms.get(epoch) ?? {};
    const end = ended ? { until, ended, why } : { until: seen.until, ended: seen.ended, why: seen.why };
    terms.set(epoch, { epoch, leader, from: from ?? seen.from, ...end });
  }
  const all = [...terms.values()].sort((a, b) => a.epoch - b.epoch);
  return all.map((term) => ({ ...term, leads: !term.ended && !term.until && Boolean(now.leader) && now.leader.epoch === term.epoch }));
}

export function drawTerms(terms, now) {
  const end = Date.parse(now.time);
  const dated = terms.filter((term) => term.from);
  put("timeline", dated.length ? timeline(dated, end, span, wide("timeline"), clock) : null);
  const rows = terms.slice(-8).reverse().map((term) => {
    const until = term.until ? Date.parse(term.until) : term.leads ? end : NaN;
    const ended = make("span", { title: term.why }, term.ended ?? "replaced");
    const state = term.leads ? pill(isSilent(now.leader) ? "silent" : "leads") : term.ended || term.until ? ended : pill("silent");
    return row(term.epoch, term.leader, state, String(term.epoch), when(term.from), term.until ? when(term.until) : "–", duration(until - Date.parse(term.from)));
  });
  fill("terms", rows, "Nobody has led yet.");
}

function fact(name, ...value) {
  return make("div", {}, make("dt", {}, name), make("dd", {}, ...value));
}

export function drawStore(now) {
  const { store, bill, heartbeats, contention } = now;
  put("store-state", pill(store.answers ? "up" : "down", store.answers ? "answers" : "does not answer"));
  text("store-name", store.name);
  const since = store.since ? [" since ", when(store.since)] : [];
  put("store-detail", ...(store.answers ? [] : [since.length ? "It has not answered" : "It does not answer", ...since, store.detail ? `: ${store.detail}` : "."]));
  get("store-detail").hidden = store.answers;
  const ms = (value) => (value === null || value === undefined ? "…" : `${value} ms`);
  put("latency", fact("Latency, half of all", ms(heartbeats.p50Ms)), fact("99 of 100", ms(heartbeats.p99Ms)),
    fact("Slow heartbeats", contention.enabled ? `${contention.events} of ${heartbeats.count.toLocaleString("en")}` : "not looked for"));
  drawBill(bill, now);
  const samples = heartbeats.samplesMs;
  const first = heartbeats.count - samples.length;
  const at = marks.map((beat) => beat - first - 1).filter((index) => index >= 0 && index < samples.length);
  put("beats", samples.length ? beats(samples, heartbeats, contention.thresholdMs, at, wide("beats")) : null);
  get("beats-empty").hidden = samples.length > 0;
  text("beats-empty", now.eligible ? "No heartbeat has been answered yet." : "This node only watches: it has none.");
}

function drawBill(bill, now) {
  const measured = bill && bill.perSecond > 0;
  const rate = (value) => (measured ? `${value.toFixed(value < 10 ? 2 : 0)} a second` : "…");
  const free = measured && bill.costPerMonth === 0;
  put("bill", fact("The cluster costs", !measured ? "…" : free ? "nothing" : make("strong", {}, `$${bill.costPerMonth.toFixed(2)} a month`)),
    fact("Writes and lists", rate(measured && bill.writesPerSecond)), fact("Reads", rate(measured && bill.readsPerSecond)));
  const own = now.requests.measuredMs > 0 && !free ? ` This one: $${now.requests.costPerMonth.toFixed(2)}.` : "";
  text("bill-note", !measured ? "Being measured: nodes publish their figures now and then."
    : free ? `This store bills no requests. ${bill.nodes} of the nodes are counted.`
      : `All ${bill.nodes} nodes at these rates for 30 days.${own} Worker processes without a node are not in it.`);
}

