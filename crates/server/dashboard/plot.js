// The pictures, as SVG. Colours say how something is, never who it is.

const SVG = "http://www.w3.org/2000/svg";

function shape(tag, attributes, text) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

function titled(element, words) {
  element.append(shape("title", {}, words));
  return element;
}

/** Endings that a leader did not choose. */
const CALM = ["shutdown", "step down", "handed over", "replaced", "unknown"];

/** Who led when, by `label` of a time; hatched where nobody did. Terms are given oldest first. */
export function timeline(terms, now, spanSeconds, width, label) {
  const [height, bar] = [72, 36];
  const first = Date.parse(terms[0].from);
  const from = spanSeconds ? now - spanSeconds * 1000 : Math.min(first, now - 60000);
  const x = (ms) => Math.max(0, Math.min(width, ((ms - from) / Math.max(1, now - from)) * width));
  const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "Who led when; the table below says the same" });
  const hatch = shape("pattern", { id: "nobody", width: 8, height: 8, patternUnits: "userSpaceOnUse" });
  hatch.append(shape("rect", { class: "pale", width: 8, height: 8 }), shape("path", { class: "hatch", d: "M-2,2 l4,-4 M0,8 l8,-8 M6,10 l4,-4" }));
  svg.append(hatch);
  const nobody = (begin, end) => {
    if (end <= begin || end <= from) return;
    const gap = shape("rect", { class: "gap", fill: "url(#nobody)", x: x(begin), y: 10, width: Math.max(1.5, x(end) - x(begin)), height: bar });
    svg.append(titled(gap, `nobody led for ${((end - begin) / 1000).toFixed(1)} s`));
  };
  let before = null;
  terms.forEach((term, place) => {
    const begin = Date.parse(term.from);
    // Of a term without an end it is only known that the next one came after it.
    const next = terms[place + 1];
    const end = term.until ? Date.parse(term.until) : next ? Date.parse(next.from) : now;
    if (before !== null) nobody(before, begin);
    before = end;
    if (end < from) return;
    const [left, wide] = [x(begin), Math.max(2, x(end) - x(begin))];
    const block = shape("rect", { class: term.leads ? "term now" : "term", x: left, y: 10, width: wide, height: bar });
    const led = ((end - begin) / 1000).toFixed(1);
    svg.append(titled(block, `epoch ${term.epoch}: ${term.leader}, ${led} s${term.leads ? ", leads" : `, ended: ${term.why ?? "replaced"}`}`));
    if (term.until && !CALM.includes(term.ended ?? "replaced")) svg.append(shape("rect", { class: "broke", x: left + wide - 2.5, y: 10, width: 2.5, height: bar }));
    const words = `${term.epoch} ${term.leader}`;
    const room = wide - 8;
    if (room > words.length * 7) svg.append(shape("text", { class: term.leads ? "in now" : "in", x: left + 6, y: 10 + bar / 2 + 4 }, words));
    else if (room > String(term.epoch).length * 7) svg.append(shape("text", { class: term.leads ? "in now" : "in", x: left + 5, y: 10 + bar / 2 + 4 }, String(term.epoch)));
  });
  nobody(before, now);
  svg.append(shape("line", { class: "axis", x1: 0, x2: width, y1: 52, y2: 52 }));
  for (const share of width < 560 ? [0, 1] : width < 900 ? [0, 0.5, 1] : [0, 0.25, 0.5, 0.75, 1]) {
    const anchor = share === 0 ? "start" : share === 1 ? "end" : "middle";
    svg.append(shape("text", { x: share * width, y: 67, "text-anchor": anchor }, share === 1 ? "now" : label(from + share * (now - from))));
  }
  return svg;
}

/** The newest heartbeats, the oldest left, on a scale that is always the same: from 1 ms to twice the threshold, each step ten times the one before. */
export function beats(samples, figures, thresholdMs, marks, width) {
  const [height, left, top, base] = [156, 48, 12, 132];
  const most = Math.log10(thresholdMs * 2);
  const y = (ms) => base - (Math.log10(Math.min(Math.max(ms, 1), thresholdMs * 2)) / most) * (base - top);
  const step = (width - left) / 100;
  const x = (index) => width - (samples.length - index) * step;
  const svg = shape("svg", {
    viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": `The newest ${samples.length} heartbeats took ${Math.min(...samples)} to ${Math.max(...samples)} ms, half of them ${figures.p50Ms ?? "?"} ms or less; slow is ${thresholdMs} ms`,
  });
  for (let ms = 1; ms < thresholdMs * 0.8; ms *= 10) {
    svg.append(shape("line", { class: "axis", x1: left, x2: width, y1: y(ms), y2: y(ms) }));
    svg.append(shape("text", { x: left - 6, y: y(ms) + 4, "text-anchor": "end" }, ms < 1000 ? `${ms} ms` : `${ms / 1000} s`));
  }
  samples.forEach((ms, index) => {
    const high = Math.max(2, base - y(ms));
    const column = shape("rect", { class: ms > thresholdMs ? "beat slow" : "beat", x: (x(index) + step * 0.12).toFixed(1), y: (base - high).toFixed(1), width: (step * 0.76).toFixed(1), height: high.toFixed(1) });
    svg.append(titled(column, `${ms} ms`));
  });
  svg.append(shape("line", { class: "limit", x1: left, x2: width, y1: y(thresholdMs), y2: y(thresholdMs) }));
  svg.append(shape("text", { class: "limit-text", x: width, y: y(thresholdMs) - 4, "text-anchor": "end" }, `slow from ${thresholdMs / 1000} s on`));
  for (const index of marks) {
    const at = x(index) + step / 2;
    const mark = shape("path", { class: "mark", d: `M${at - 5},${base + 10} L${at + 5},${base + 10} L${at},${base + 1} Z` });
    svg.append(titled(mark, "contention was detected"));
  }
  svg.append(shape("text", { x: left, y: height - 4 }, `${samples.length} heartbeats, one every ${figures.intervalMs} ms`));
  return svg;
}

/** How high a run is drawn: what went wrong stands out. */
const HIGH = { succeeded: 6, cancelled: 3, partial: 10 };

/** How the last runs of a schedule ended, the oldest left. */
export function strip(states) {
  const runs = states.slice(-30);
  const counts = new Map();
  for (const state of runs) counts.set(state, (counts.get(state) || 0) + 1);
  const words = [...counts].map(([state, number]) => `${number} ${state.replaceAll("_", " ")}`).join(", ");
  const [step, height] = [4, 18];
  const width = 30 * step;
  const label = runs.length ? `The last ${runs.length} runs: ${words}; the newest ${runs.at(-1).replaceAll("_", " ")}` : "No run yet";
  const svg = shape("svg", { class: "strip", viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label });
  svg.append(shape("line", { class: "axis", x1: 0, x2: width, y1: height - 0.5, y2: height - 0.5 }));
  runs.forEach((state, index) => {
    const high = HIGH[state] ?? height;
    svg.append(shape("rect", { class: HIGH[state] ? state : "undone", x: width - (runs.length - index) * step + 0.5, y: height - high, width: step - 1, height: high }));
  });
  return titled(svg, label);
}
