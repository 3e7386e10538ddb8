import { readFileSync } from "node:fs";
import { TenureError, Unavailable } from "./errors.js";

/** A node that has not answered after this, or its share of the time there is, may be frozen; the next one is asked. */
const ATTEMPT_MS = 10_000;
const ANSWER_MAX_BYTES = 16 * 1024 * 1024;
const PAUSE_MAX_MS = 2_000;
const PROBLEM = "urn:tenure:problem:";

/** Waits, or throws the signal's reason as soon as it is aborted. */
export function sleep(ms, signal) {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason);
    const stop = () => {
      clearTimeout(timer);
      reject(signal.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, ms);
    signal?.addEventListener("abort", stop, { once: true });
  });
}

/** The pause before another round: 50 ms, doubled each time up to 2 s, not the same for all clients. */
export function pauseMs(round) {
  return Math.min(50 * 2 ** Math.min(round, 10), PAUSE_MAX_MS) * (0.5 + Math.random() / 2);
}

/** Whether the same request may succeed soon, here or on another node. Status 0 stands for no answer. */
export function isPassing({ status, name }) {
  return status === 0 || status === 408 || status === 429 || status >= 500 || name === "raced" || name === "no-leader";
}

/** An answer that is not 2xx, as an error. */
export function refusal({ status, name, body }) {
  const faults = Array.isArray(body?.problems) ? `: ${body.problems.join("; ")}` : "";
  return new TenureError(status, name, `${body?.detail ?? `HTTP status ${status}`}${faults}`);
}

/** What went wrong on the network, in a few words. `fetch` hides it in causes. */
export function words(error) {
  let inner = error;
  while (inner.cause instanceof Error) inner = inner.cause;
  return inner.code ?? inner.message;
}

export function isRefusedConnection(error) {
  return error !== undefined && words(error) === "ECONNREFUSED";
}

function checkedUrl(text) {
  const url = new URL(text);
  if (url.protocol !== "http:" && url.protocol !== "https:") throw new TypeError(`${text}: must begin with http:// or https://`);
  if (url.username || url.password) throw new TypeError("a URL must not contain a user name or a password");
  return url.href.replace(/\/+$/, "");
}

/** The token, never shown: an invalid one must not get into the error of `fetch`. */
function checkedToken({ token, tokenFile }) {
  const { TENURE_HTTP_TOKEN, TENURE_HTTP_TOKEN_FILE } = process.env;
  const file = tokenFile ?? (TENURE_HTTP_TOKEN ? null : TENURE_HTTP_TOKEN_FILE);
  const found = token ?? (file ? readFileSync(file, "utf8").trim() : TENURE_HTTP_TOKEN);
  if (!found) return null;
  if (!/^[\x21-\x7e]{16,1024}$/.test(found)) throw new TypeError("a token must have 16 to 1,024 visible characters");
  return found;
}

/**
 * What a promise brings, unless the signal is aborted before: then its reason is thrown. `fetch` itself may not notice an abort: it
 * holds on to the signal so weakly that the garbage collector can come first.
 */
function unlessAborted(promise, signal) {
  return new Promise((resolve, reject) => {
    const stop = () => reject(signal.reason);
    signal.addEventListener("abort", stop, { once: true });
    promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", stop));
  });
}

/** The pieces of a body as they come, until the signal is aborted. */
export async function* pieces(response, signal) {
  const reader = response.body?.getReader();
  try {
    for (;;) {
      const { done, value } = reader ? await unlessAborted(reader.read(), signal) : { done: true };
      if (done) return;
      yield value;
    }
  } finally {
    reader?.cancel().catch(() => {});
  }
}

async function boundedText(response, signal) {
  const decoder = new TextDecoder();
  let text = "";
  let bytes = 0;
  for await (const piece of pieces(response, signal)) {
    bytes += piece.length;
    if (bytes > ANSWER_MAX_BYTES) throw new TenureError(response.status, "too-large", `the answer has more than ${ANSWER_MAX_BYTES} bytes`);
    text += decoder.decode(piece, { stream: true });
  }
  return text + decoder.decode();
}

/** Requests to one or more nodes. */
export class Http {
  #token;
  #preferred = 0;

  constructor(urls, options) {
    const named = urls.length ? urls : (process.env.TENURE_URL ?? "").split(",").map((url) => url.trim()).filter(Boolean);
    this.urls = (named.length ? named : ["http://127.0.0.1:7420"]).map(checkedUrl);
    this.#token = checkedToken(options);
    this.timeoutMs = options.timeoutMs ?? 30_000;
    if (!(this.timeoutMs > 0)) throw new RangeError("timeoutMs must be more than 0");
    this.log = options.log ?? ((text) => console.warn(`tenure: ${text}`));
  }

  /** How long one node may take for its answer, so that there is time left for the others. */
  get shareMs() {
    return Math.min(ATTEMPT_MS, this.timeoutMs / this.urls.length);
  }

  /** All nodes, beginning with the one that answered last. */
  inOrder() {
    return [...this.urls.slice(this.#preferred), ...this.urls.slice(0, this.#preferred)];
  }

  /** One request to one node; throws only if there is no answer. `open` gets the response itself, before its body. */
  async attempt(url, method, path, { body, headers, signal, attemptMs = ATTEMPT_MS, open } = {}) {
    signal?.throwIfAborted();
    const stop = new AbortController();
    const forward = () => stop.abort(signal.reason);
    signal?.addEventListener("abort", forward, { once: true, signal: stop.signal });
    let isOpen = false;
    const timer = setTimeout(() => stop.abort(new Error(`no answer within ${Math.round(attemptMs)} ms`)), attemptMs);
    try {
      const all = { ...headers };
      if (this.#token) all.authorization = `Bearer ${this.#token}`;
      if (body !== undefined) all["content-type"] = "application/json";
      const text = body === undefined ? undefined : JSON.stringify(body);
      const fetching = fetch(url + path, { method, headers: all, body: text, redirect: "error", signal: stop.signal });
      const response = await unlessAborted(fetching, stop.signal);
      isOpen = open && response.ok;
      if (isOpen) return { status: response.status, response, stop };
      return answerOf(response, await boundedText(response, stop.signal));
    } finally {
      clearTimeout(timer);
      if (!isOpen) signal?.removeEventListener("abort", forward);
    }
  }

  /**
   * A request that is safe to repeat: repeated, on the next node each time, until there is an answer that stays. `repeated` of the
   * answer says that an earlier try may have been carried out.
   */
  async send(method, path, { body, signal, only } = {}) {
    const timeoutMs = this.timeoutMs / (only ? this.urls.length : 1);
    const endMs = performance.now() + timeoutMs;
    const troubles = new Map();
    let last = { status: 0, error: undefined };
    let repeated = false;
    for (let round = 0; ; round++) {
      const waits = [];
      for (const url of only ? [only] : this.inOrder()) {
        const leftMs = endMs - performance.now();
        if (leftMs <= 0) break;
        try {
          const options = { body, signal, attemptMs: Math.min(leftMs, this.shareMs) };
          const answer = await this.attempt(url, method, path, options);
          if (!isPassing(answer)) {
            if (!only) this.#preferred = this.urls.indexOf(url);
            return { ...answer, url, repeated };
          }
          last = { status: answer.status, error: refusal(answer) };
          waits.push(answer.retryAfterMs);
          repeated ||= answer.status !== 429;
          troubles.set(url, `${url}: ${answer.name}, ${last.error.detail}`);
        } catch (error) {
          signal?.throwIfAborted();
          if (error instanceof TenureError) throw error;
          last = { status: last.status, error };
          waits.push(0);
          repeated ||= !isRefusedConnection(error);
          troubles.set(url, `${url}: ${words(error)}`);
        }
      }
      const leftMs = endMs - performance.now();
      const retryAfterMs = waits.length ? Math.min(...waits) : 0;
      if (leftMs < 10 || retryAfterMs > leftMs) {
        const detail = `not done within ${timeoutMs} ms; ${[...troubles.values()].join("; ")}`;
        throw new Unavailable(last.status, detail, { cause: last.error });
      }
      await sleep(Math.max(retryAfterMs, Math.min(pauseMs(round), leftMs / 2)), signal);
    }
  }

  /** The body of the answer; a refusal is thrown. */
  async call(method, path, options) {
    const answer = await this.send(method, path, options);
    if (answer.status >= 400) throw refusal(answer);
    return answer.body;
  }
}

function answerOf(response, text) {
  const { status } = response;
  const retryAfterMs = 1000 * (Number.parseInt(response.headers.get("retry-after") ?? "", 10) || 0);
  let body = text;
  if (text && /\bjson\b/.test(response.headers.get("content-type") ?? "")) {
    try {
      body = JSON.parse(text);
    } catch {
      return { status: 502, name: "no-json", body: { detail: "the answer is not JSON" }, retryAfterMs };
    }
  }
  const type = String(body?.type ?? "");
  const name = type.startsWith(PROBLEM) ? type.slice(PROBLEM.length) : `http-${status}`;
  return { status, name, body, retryAfterMs };
}
