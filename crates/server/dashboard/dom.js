// Elements, tables, times. Everything that comes from outside goes into the page as text, never as markup.

export const get = (id) => document.getElementById(id);

/** An element with text and attributes. */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) element.setAttribute(name, "");
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

export function text(id, value) {
  const element = get(id);
  if (element.textContent !== value) element.textContent = value;
}

export function tone(id, value) {
  get(id).dataset.tone = value;
}

/** The children of an element, replaced only if they differ: what has the focus, or is selected, stays. */
export function put(id, ...children) {
  const element = get(id);
  const there = [...element.childNodes];
  const fresh = children.filter((child) => child !== null && child !== undefined).map((child) => (child instanceof Node ? child : document.createTextNode(child)));
  if (there.length === fresh.length && there.every((child, index) => child.isEqualNode(fresh[index]))) return;
  keepingFocus(element, () => element.replaceChildren(...fresh));
}

/** A button that was redrawn keeps the focus. */
function keepingFocus(element, change) {
  const held = document.activeElement;
  const act = element.contains(held) ? held.dataset.act || held.getAttribute("href") : null;
  change();
  if (!act) return;
  const again = [...element.querySelectorAll("button, a")].find((one) => (one.dataset.act || one.getAttribute("href")) === act);
  if (again) again.focus({ preventScroll: true });
}

const STATES = {
  good: ["up", "active", "healthy", "leader", "succeeded", "enabled", "running", "acked", "dispatched", "leads"],
  warn: ["suspect", "degraded", "draining", "partial", "paused", "candidate", "late"],
  bad: ["down", "critical", "inactive", "failed", "timed_out", "expired", "lost", "silent", "refused", "failing", "gone"],
};

export function toneOf(state) {
  return Object.keys(STATES).find((key) => STATES[key].includes(state)) || "quiet";
}

export function pill(state, words = String(state).replaceAll("_", " ")) {
  return make("span", { class: "pill", "data-tone": toneOf(state) }, words);
}

export function dim(words) {
  return make("span", { class: "dim" }, words);
}

export function duration(ms) {
  if (ms === null || ms === undefined || Number.isNaN(ms)) return "–";
  const s = Math.max(0, ms) / 1000;
  if (s < 1) return `${Math.round(s * 1000)} ms`;
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 120) return `${Math.round(s)} s`;
  if (s < 7200) return `${Math.round(s / 60)} min`;
  if (s < 172800) return `${(s / 3600).toFixed(1)} h`;
  return `${Math.round(s / 86400)} days`;
}

/** How long ago something was looked at. */
export function ago(ms) {
  return ms < 1500 ? "just now" : `${duration(Math.round(ms / 1000) * 1000).replace(".0 s", " s")} ago`;
}

export function count(number, one, many = `${one}s`) {
  return `${number.toLocaleString("en")} ${number === 1 ? one : many}`;
}

const formats = new Map();
function format(zone, options) {
  const key = `${zone} ${Object.keys(options)}`;
  if (!formats.has(key)) formats.set(key, new Intl.DateTimeFormat("en-GB", { ...options, timeZone: zone }));
  return formats.get(key);
}

const CLOCK = { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23", timeZoneName: "short" };
const DAY = { day: "numeric", month: "short" };
const YEAR = { year: "numeric", ...DAY };

/** A time of day with its zone, and with the day if that is not today. */
export function clock(time, zone) {
  const date = new Date(time);
  if (time === null || time === undefined || Number.isNaN(date.getTime())) return "–";
  try {
    const day = format(zone, YEAR).format(date);
    const now = new Date();
    if (day === format(zone, YEAR).format(now)) return format(zone, CLOCK).format(date);
    const near = Math.abs(now - date) < 300 * 86400000;
    return `${near ? format(zone, DAY).format(date) : day} ${format(zone, CLOCK).format(date)}`;
  } catch {
    return clock(time); // a zone that this browser does not know
  }
}

/** The same as an element, which also says it exactly. */
export function when(time, zone) {
  const date = new Date(time);
  if (time === null || time === undefined || Number.isNaN(date.getTime())) return make("span", {}, "–");
  return make("time", { datetime: date.toISOString(), title: date.toISOString() }, clock(date, zone));
}

/** A button that asks before it does something; who listens finds it by its attributes. */
export function action(act, id, words, label) {
  return make("button", { type: "button", class: "small", "data-act": `${act} ${id}`, "aria-label": label, disabled: document.documentElement.dataset.link !== "live" }, words);
}

/** A row: the cells in the order of the columns, under a key that tells it from the others. */
export function row(key, ...cells) {
  return { key: String(key), cells };
}

function cellOf(content, head) {
  const cell = content instanceof HTMLTableCellElement ? content : make("td", {}, ...(Array.isArray(content) ? content : [content ?? "–"]));
  if (cell.textContent === "–") cell.classList.add("none");
  if (head.className) cell.classList.add(...head.className.split(" "));
  if (!head.hasAttribute("data-bare")) cell.dataset.label = head.textContent;
  return cell;
}

/** Fills a table; says what is missing where there is nothing. Rows and cells that stay the same are left alone. */
export function fill(id, rows, whenEmpty) {
  const body = get(id).tBodies[0];
  const heads = [...get(id).tHead.rows[0].cells];
  const wanted = new Set(rows.map(({ key }) => key));
  const there = new Map();
  for (const old of [...body.rows]) {
    if (wanted.has(old.dataset.key)) there.set(old.dataset.key, old);
    else old.remove();
  }
  rows.forEach(({ key, cells }, index) => {
    const fresh = cells.map((content, column) => cellOf(content, heads[column]));
    let old = there.get(key);
    if (old) {
      fresh.forEach((cell, column) => {
        if (!old.cells[column].isEqualNode(cell)) keepingFocus(old, () => old.cells[column].replaceWith(cell));
      });
    } else {
      old = make("tr", { "data-key": key }, ...fresh);
    }
    if (body.rows[index] !== old) body.insertBefore(old, body.rows[index] ?? null);
  });
  get(id).hidden = rows.length === 0;
  const empty = get(`${id}-empty`);
  empty.hidden = rows.length > 0;
  if (whenEmpty) put(`${id}-empty`, ...[whenEmpty].flat());
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

/** How many pixels a picture has, so that its letters are as large as all others. */
export function wide(id) {
  return Math.max(240, get(id).clientWidth);
}
