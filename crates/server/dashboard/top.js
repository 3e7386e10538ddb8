// What stands at the top: how the cluster is, in words and in numbers, its leader and its nodes.

import { action, ago, clock, dim, duration, fill, get, make, pill, put, row, text, toneOf, when } from "./dom.js";

const MARKS = { good: "✓", warn: "!", bad: "✕", quiet: "…" };

/** What is wrong, or that nothing is. A node that does not answer comes before all that it said. */
export function drawState(now, link, at) {
  const { tone, text: words } = sentence(now, link, at);
  const state = get("state");
  if (state.dataset.tone !== tone) {
    state.dataset.tone = tone;
    // Seconds that count up are not read out; that something has changed is.
    get("said").textContent = words;
  }
  put("headline", make("span", { class: "mark", "aria-hidden": "true" }, MARKS[tone] ?? "…"), words);
  put("reasons", ...reasons(now, link).map(([what, detail, target]) => {
    const name = target ? make("a", { href: target }, what) : make("strong", {}, what);
    return make("li", {}, name, detail ? make("span", {}, `: ${detail}`) : null);
  }));
}

function sentence(now, link, at) {
  if (link.state === "lost") {
    return { tone: "bad", text: `This node does not answer: ${link.why}. What you see is ${duration(Math.max(1, Math.round((Date.now() - at) / 1000)) * 1000).replace(".0 s", " s")} old; the page goes on trying.` };
  }
  if (!now) return { tone: link.why ? "bad" : "quiet", text: link.why ? `Waiting for the node: ${link.why}.` : "Asking the node…" };
  return now.headline || { tone: toneOf(now.health ? now.health.status : "unknown"), text: now.leader ? `${now.leader.node} leads.` : "No leader." };
}

/** Why, one line each, with a way to what it is about. */
function reasons(now, link) {
  // Without a leader nobody judges, and that is said already.
  if (!now || link.state === "lost" || !now.health || !now.leader) return [];
  return now.health.reasons.map(({ code, subject, detail }) => {
    const what = [code.replaceAll("_", " "), subject].filter(Boolean).join(" ");
    const target = code.startsWith("schedule") ? "#h-schedules" : code.startsWith("worker") ? "#h-workers" : code.includes("node") ? "#h-nodes" : code.includes("store") ? "#h-store" : null;
    return [what, detail, target];
  });
}

export function drawCounts(now) {
  const nodes = now.nodes || [];
  const down = nodes.filter((node) => isDown(node, now)).length;
  const { active, inactive } = now.workers;
  const { jobs, schedules } = now;
  put("counts",
    tile("#h-nodes", now.nodes ? nodes.length - down : "–", "node", "", down ? `${down} down` : "none down", down ? "warn" : null),
    tile("#h-workers", active, "worker", "", inactive ? `${inactive} silent` : "none silent", inactive ? "warn" : null),
    tile("#jobs-running", jobs ? jobs.running : "–", "job", " running", jobs ? `looked at ${ago(jobs.ageMs)}` : "", null),
    tile("#jobs-waiting", jobs ? jobs.waiting : "–", "job", " waiting", jobs && jobs.stranded ? `${jobs.stranded} that nobody may run` : "in all queues", jobs && jobs.stranded ? "warn" : null),
    tile("#jobs-dead", jobs ? jobs.dead : "–", "job", " dead", jobs && jobs.dead ? "attempts used up" : "none gave up", jobs && jobs.dead ? "bad" : null),
    tile("#h-schedules", schedules ? schedules.failing + schedules.refused : "–", "schedule", " failing", schedules ? `of ${schedules.total}` : "", schedules && schedules.failing + schedules.refused ? "bad" : null));
}

function tile(target, number, what, how, more, tone) {
  const shown = typeof number === "number" ? number.toLocaleString("en") : number;
  return make("a", { href: target, class: "tile", "data-tone": tone }, make("strong", {}, shown), make("span", {}, ` ${what}${number === 1 ? "" : "s"}${how}`), make("small", {}, more));
}

/** Whoever answers is not down, whatever the store says. */
function isDown(node, now) {
  return node.node !== now.node && (node.role === "gone" || node.state === "down");
}

function stateOf(node, now) {
  if (isDown(node, now)) return [pill("down")];
  if (node.role === "leader" && now.leader && now.leader.node === node.node && isSilent(now.leader)) return [pill("silent")];
  const role = node.role === "leader" ? pill("leader") : node.role === "gone" ? pill("suspect", "its presence is old") : pill("up", "standby");
  return node.state && node.state !== "up" && node.role !== "gone" ? [pill(node.state), role] : [role];
}

export function drawLeader(now) {
  const { leader } = now;
  text("leader-name", leader ? leader.node : "nobody leads");
  get("leader-name").dataset.tone = !leader || isSilent(leader) ? "bad" : "";
  text("leader-epoch", now.epoch ? `epoch ${now.epoch}` : "no epoch yet");
  const can = leader && !isSilent(leader) && leader.askedToStepDown !== true;
  put("leader-act", can ? action("step-down", leader.node, "Ask it to step down…") : leader && leader.askedToStepDown ? dim("It was asked to step down.") : null);
}

/** Whether it may not act any more unless it has renewed since: not seen to for a whole hold. */
export function isSilent(leader) {
  return !leader.isThisNode && leader.silentMs !== null && leader.silentMs > leader.leaseHoldMs;
}

function toneOfShare(share) {
  return share > 0.4 ? "good" : share > 0.2 ? "warn" : "bad";
}

/** What moves between two answers: gauge and ages. */
export function tick(now, at, live) {
  const leader = now.leader;
  const gone = live ? Date.now() - at : 0;
  const since = leader && (leader.since || leader.seenSince);
  const led = since ? Date.parse(now.time) - Date.parse(since) + gone : null;
  text("leader-since", since ? `since ${clock(since)}, for ${duration(led)}` : leader ? "since before this node started" : "the seat is vacant, or its holder is silent");
  const gauge = get("gauge");
  const own = leader && leader.leaseRemainingMs !== null && leader.leaseRemainingMs !== undefined;
  // Of another leader: how long ago it was seen to renew. What of its hold is left can be no more than that.
  const silent = leader && leader.silentMs !== null ? leader.silentMs + gone : null;
  const left = own ? Math.max(0, leader.leaseRemainingMs - gone) : silent === null ? 0 : Math.max(0, leader.leaseHoldMs - silent);
  const share = leader ? Math.min(1, left / leader.leaseHoldMs) : 0;
  get("gauge-fill").style.width = `${(share * 100).toFixed(1)}%`;
  get("gauge-fill").dataset.tone = toneOfShare(share);
  const words = !leader ? "nobody holds one"
    : !live ? "not known without the node"
      : own ? `${duration(left)} of ${duration(leader.leaseHoldMs)} left`
        : silent === null ? "not seen to renew yet" : `seen to renew ${duration(silent)} ago`;
  gauge.setAttribute("aria-valuenow", String(Math.round(share * 100)));
  gauge.setAttribute("aria-valuetext", words);
  text("gauge-text", words);
}

export function drawNodes(now) {
  const looked = Date.parse(now.time) - now.nodesAgeMs;
  text("nodes-note", now.nodes ? `looked at ${ago(now.nodesAgeMs)}` : "");
  const free = now.bill && now.bill.costPerMonth === 0;
  const rows = (now.nodes || []).map((node) => {
    const name = [node.node, node.node === now.node ? dim(" this one") : null].filter(Boolean);
    const ms = (value) => (value === null || value === undefined ? "–" : `${value} ms`);
    const cost = node.costPerMonth === null || node.costPerMonth === undefined || isDown(node, now) ? "–" : free ? "free" : `$${node.costPerMonth.toFixed(2)}`;
    return row(node.node, name, stateOf(node, now), when(looked - node.lastSeenMsAgo), ms(node.heartbeatP50Ms), ms(node.heartbeatP99Ms), cost, node.version, node.incarnation);
  });
  fill("nodes", rows, now.nodes ? "No node has made itself known." : "The store has not said yet.");
}

export function drawFoot(now) {
  text("namespace", now.namespace);
  text("self", now.node);
  text("role", now.role || (now.eligible ? "starting" : "observer"));
  text("software", now.software);
  text("notes", now.notes.join(" · "));
  const { tone } = get("state").dataset;
  const mark = tone === "bad" || tone === "warn" ? `${MARKS[tone]} ` : "";
  document.title = `${mark}${now.leader ? now.leader.node : "no leader"} · ${now.namespace} · Tenure`;
}
