// The two pictures, as SVG.

const SVG = "http://www.w3.org/2000/svg";

function shape(tag, attributes, text) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

/** The same name has the same colour everywhere. None is red: that is for nobody. */
export function hue(name) {
  let hash = 7;
  for (const letter of name) hash = (hash * 31 + letter.codePointAt(0)) >>> 0;
  return 40 + ((hash * 173) % 280); // names that follow each other are far apart
}

export function colour(name) {
  return `hsl(${hue(name)} 50% 32%)`;
}

function time(ms) {
  return new Date(ms).toLocaleTimeString([], { hour12: false });
}

/** Who led when; hatched where nobody did. */
export function timeline(terms, now, spanSeconds, width) {
  const [height, bar] = [74, 38];
  const first = Date.parse(terms[0].from);
  const from = spanSeconds ? now - spanSeconds * 1000 : Math.min(first, now - 60000);
  const x = (ms) => Math.max(0, Math.min(width, ((ms - from) / Math.max(1, now - from)) * width));
  const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "Who led when; the table below says the same" });
  const hatch = shape("pattern", { id: "nobody", width: 8, height: 8, patternUnits: "userSpaceOnUse" });
  hatch.append(shape("rect", { class: "pale", width: 8, height: 8 }), shape("path", { class: "hatch", d: "M-2,2 l4,-4 M0,8 l8,-8 M6,10 l4,-4" }));
  svg.append(hatch);
  const nobody = (begin, end) => {
    if (end <= begin || end <= from) return;
    const gap = shape("rect", { class: "gap", fill: "url(#nobody)", x: x(begin), y: 12, width: Math.max(1, x(end) - x(begin)), height: bar });
    gap.append(shape("title", {}, `nobody led for ${((end - begin) / 1000).toFixed(1)} s`));
    svg.append(gap);
  };
  let before = null;
  for (const term of terms) {
    const begin = Date.parse(term.from);
    const end = term.until ? Date.parse(term.until) : now;
    if (before !== null) nobody(before, begin);
    before = end;
    if (end < from) continue;
    const [left, wide] = [x(begin), Math.max(2, x(end) - x(begin))];
    const block = shape("rect", { x: left, y: 12, width: wide, height: bar, rx: 3, fill: colour(term.node) });
    const led = ((end - begin) / 1000).toFixed(1);
    block.append(shape("title", {}, `epoch ${term.epoch}: ${term.node}, ${led} s${term.until ? `, ended: ${term.reason ?? "replaced"}` : ", leads"}`));
    svg.append(block);
    const label = `${term.epoch} ${term.node}`;
    if (wide > label.length * 7 + 10) svg.append(shape("text", { class: "in", x: left + 6, y: 12 + bar / 2 + 4 }, label));
    else if (wide > 22) svg.append(shape("text", { class: "in", x: left + 5, y: 12 + bar / 2 + 4 }, String(term.epoch)));
  }
  nobody(before, now);
  svg.append(shape("line", { class: "axis", x1: 0, x2: width, y1: 54, y2: 54 }));
  for (const share of width < 500 ? [0, 0.5, 1] : [0, 0.25, 0.5, 0.75, 1]) {
    const anchor = share === 0 ? "start" : share === 1 ? "end" : "middle";
    svg.append(shape("text", { x: share * width, y: 69, "text-anchor": anchor }, share === 1 ? "now" : time(from + share * (now - from))));
  }
  return svg;
}

/** The newest heartbeats, the oldest left. */
export function beats(samples, figures, marks, width) {
  const [height, left, base] = [130, 44, 108];
  const top = Math.max(10, ...samples, figures.p99Ms ?? 0) * 1.15;
  const x = (index) => left + (samples.length === 1 ? 0.5 : index / (samples.length - 1)) * (width - left);
  const y = (ms) => base - (ms / top) * (base - 8);
  const svg = shape("svg", {
    viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": `The newest ${samples.length} heartbeats took ${Math.min(...samples)} to ${Math.max(...samples)} ms, half of them ${figures.p50Ms ?? "?"} ms or less`,
  });
  for (const share of [0, 0.5, 1]) {
    const ms = (top / 1.15) * share;
    svg.append(shape("line", { class: "axis", x1: left, x2: width, y1: y(ms), y2: y(ms) }));
    svg.append(shape("text", { x: left - 6, y: y(ms) + 4, "text-anchor": "end" }, `${Math.round(ms)} ms`));
  }
  const points = samples.map((ms, index) => `${x(index).toFixed(1)},${y(ms).toFixed(1)}`);
  svg.append(shape("polygon", { class: "area", points: `${x(0)},${base} ${points.join(" ")} ${x(samples.length - 1)},${base}` }));
  svg.append(shape("polyline", { class: "beat", points: points.join(" ") }));
  // Where the two lines are too close for two labels, one stands beside the other.
  const close = Math.abs(y(figures.p50Ms ?? 0) - y(figures.p99Ms ?? 0)) < 13;
  for (const [name, ms] of [["p50", figures.p50Ms], ["p99", figures.p99Ms]]) {
    if (ms === null || ms === undefined) continue;
    svg.append(shape("line", { class: name, x1: left, x2: width, y1: y(ms), y2: y(ms) }));
    const beside = close && name === "p50" ? 28 : 0;
    svg.append(shape("text", { class: "label", x: width - beside, y: y(ms) - 4, "text-anchor": "end" }, name));
  }
  for (const index of marks) {
    const at = x(index);
    const mark = shape("path", { class: "mark", d: `M${at - 5},${base + 10} L${at + 5},${base + 10} L${at},${base + 1} Z` });
    mark.append(shape("title", {}, "contention was detected"));
    svg.append(mark);
  }
  svg.append(shape("text", { x: left, y: height - 4 }, `${samples.length} heartbeats, every ${figures.intervalMs} ms`));
  return svg;
}
