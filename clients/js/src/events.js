import { isPassing, pauseMs, pieces, refusal, sleep, words } from "./http.js";
import { Unavailable } from "./errors.js";

/** A node sends a comment every 15 s: after this much silence it is gone, or frozen. */
const SILENCE_MS = 20_000;
const BLOCK_MAX_CHARS = 1024 * 1024;

/** The blocks of a stream of server-sent events, as fields. Ends when the stream ends, breaks or falls silent. */
async function* blocks({ response, stop }) {
  const decoder = new TextDecoder();
  let text = "";
  let timer;
  const listen = () => {
    clearTimeout(timer);
    timer = setTimeout(() => stop.abort(new Error("silence")), SILENCE_MS);
  };
  try {
    listen();
    for await (const piece of pieces(response, stop.signal)) {
      listen();
      text += decoder.decode(piece, { stream: true });
      const found = text.split(/\r?\n\r?\n/);
      text = found.pop();
      if (text.length > BLOCK_MAX_CHARS) return;
      for (const block of found) yield fieldsOf(block);
    }
  } catch {
    // The connection broke: the caller connects again.
  } finally {
    clearTimeout(timer);
    stop.abort();
  }
}

function fieldsOf(block) {
  const fields = {};
  for (const line of block.split(/\r?\n/)) {
    const [, name, value] = /^(\w+): ?(.*)$/.exec(line) ?? [];
    if (name) fields[name] = value;
  }
  return fields;
}

/** The events of a node, and of the next one when it is gone. */
export async function* events(http, { level = "info", recent, signal } = {}) {
  const giveUpMs = performance.now() + http.timeoutMs;
  let url = null;
  let lastId = null;
  let gap = null;
  for (let round = 0; ; round++) {
    const others = http.inOrder().filter((other) => other !== url);
    let trouble = "";
    for (const next of url ? [url, ...others] : others) {
      const same = next === url;
      const query = new URLSearchParams({ level });
      if (!url && recent !== undefined) query.set("recent", String(recent));
      const headers = same && lastId ? { "last-event-id": lastId } : {};
      let stream;
      try {
        stream = await http.attempt(next, "GET", `/v1/events?${query}`, { headers, signal, attemptMs: http.shareMs, open: true });
      } catch (error) {
        signal?.throwIfAborted();
        trouble = `${next}: ${words(error)}`;
        continue;
      }
      if (!stream.response) {
        if (!isPassing(stream)) throw refusal(stream);
        trouble = `${next}: ${stream.name}`;
        continue;
      }
      if (url && !same) gap = "these are the events of another node";
      else if (url && !lastId) gap = "the connection was lost";
      if (!same) lastId = null;
      url = next;
      round = 0;
      if (gap) yield { event: "missed", missed: null, why: gap };
      gap = null;
      for await (const { id, event, data } of blocks(stream)) {
        if (id) lastId = id;
        if (data) yield event === "missed" ? { event, ...JSON.parse(data) } : JSON.parse(data);
      }
      signal?.throwIfAborted();
      break;
    }
    if (!url && performance.now() > giveUpMs) throw new Unavailable(0, `no events within ${http.timeoutMs} ms; ${trouble}`);
    await sleep(pauseMs(round), signal);
  }
}
