import { LockLost, Unavailable } from "./errors.js";
import { isPassing, isRefusedConnection, pauseMs, refusal, sleep, words } from "./http.js";
import { newId } from "./ids.js";

/** Whoever waits for the lock of a crashed holder begins anew with each request, so this must not be short. */
const WAIT_MS = 15_000;
/** A node takes this long to find out that it does not get a lock which is free. */
const FREE_MS = 3_000;
const RELEASE_MS = 5_000;

/**
 * A lock that is held through one node, until `validMs` after the last request that was answered was sent. Both clocks count: the
 * monotonic one may stand still while the machine sleeps, the other one may be set back.
 */
class Lock {
  #end;
  #lost = new AbortController();
  #timer;
  #isOver = false;

  constructor(name, url, holding) {
    this.name = name;
    this.url = url;
    this.holding = holding;
  }

  extend(sent, { epoch, validMs }) {
    this.epoch = epoch;
    this.validMs = validMs;
    this.#end = { monotonicMs: sent.monotonicMs + validMs, wallMs: sent.wallMs + validMs };
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.valid, this.leftMs + 1);
  }

  get leftMs() {
    return Math.min(this.#end.monotonicMs - performance.now(), this.#end.wallMs - Date.now());
  }

  get valid() {
    if (this.leftMs <= 0 && !this.#isOver) this.lose();
    return !this.#isOver;
  }

  get signal() {
    return this.#lost.signal;
  }

  check() {
    if (!this.valid) throw new LockLost(this.name);
  }

  lose() {
    this.end();
    this.#lost.abort(new LockLost(this.name));
  }

  /** From here on it is not held, and that is no loss. */
  end() {
    clearTimeout(this.#timer);
    this.#isOver = true;
  }
}

function now() {
  return { monotonicMs: performance.now(), wallMs: Date.now() };
}

function pathOf(name, what = "") {
  return `/v1/locks/${encodeURIComponent(name)}${what}`;
}

/** Asks one node for the lock. One that does not answer may have taken it all the same: it is told to give it back. */
async function ask(http, url, name, body, signal) {
  const attemptMs = Math.max(body.waitMs, FREE_MS) + http.shareMs;
  try {
    return await http.attempt(url, "POST", pathOf(name), { body, signal, attemptMs });
  } catch (error) {
    void release(http, url, name, body.holding);
    signal?.throwIfAborted();
    return { status: 0, name: words(error) };
  }
}

async function take(http, name, { waitMs, timeoutMs, signal }) {
  const endMs = performance.now() + waitMs;
  const nodes = http.inOrder();
  let node = 0;
  let heardMs = performance.now();
  let holding = newId();
  for (let failures = 0; ; ) {
    const url = nodes[node];
    const sent = now();
    const patienceMs = Math.max(0, Math.min(WAIT_MS, Math.floor(endMs - sent.monotonicMs)));
    const answer = await ask(http, url, name, { holding, waitMs: patienceMs, timeout: timeoutMs }, signal);
    if (isPassing(answer)) {
      failures += 1;
      if (failures >= nodes.length && performance.now() - heardMs > http.timeoutMs) {
        const detail = `the lock ${name} was not taken within ${http.timeoutMs} ms; ${url}: ${answer.name}`;
        throw new Unavailable(answer.status, detail);
      }
      node = (node + 1) % nodes.length;
      holding = newId();
      if (failures % nodes.length === 0) await sleep(pauseMs(failures / nodes.length), signal);
      continue;
    }
    heardMs = performance.now();
    failures = 0;
    if (answer.status === 200) {
      const lock = new Lock(name, url, holding);
      lock.extend(sent, answer.body);
      if (lock.leftMs > lock.validMs / 2) return lock;
      // It was waited for, and most of its time is over: the node says again for how long it holds it.
      lock.end();
    } else if (answer.name === "locked" && performance.now() < endMs) {
      await sleep(pauseMs(1), signal);
    } else {
      throw refusal(answer);
    }
  }
}

/** Renews it after a third of its time, and tries again until that is over. */
async function keep(http, lock, over) {
  let pause = lock.leftMs - (lock.validMs * 2) / 3;
  for (;;) {
    await sleep(pause, over).catch(() => {});
    if (over.aborted || !lock.valid) return;
    const sent = now();
    const options = { body: { holding: lock.holding }, signal: over, attemptMs: lock.validMs / 3 };
    const answer = await http.attempt(lock.url, "POST", pathOf(lock.name, "/heartbeat"), options).catch(() => null);
    if (over.aborted || !lock.valid) return;
    if (answer?.status === 200) lock.extend(sent, answer.body);
    else if (answer && !isPassing(answer)) lock.lose();
    pause = answer?.status === 200 ? lock.validMs / 3 : Math.min(100, lock.validMs / 10);
  }
}

async function release(http, url, name, holding) {
  const endMs = performance.now() + RELEASE_MS;
  for (let round = 0; performance.now() < endMs; round++) {
    const path = pathOf(name, `?holding=${holding}`);
    const answer = await http.attempt(url, "DELETE", path, { attemptMs: RELEASE_MS }).catch((error) => ({ status: 0, error }));
    if (!isPassing(answer) || isRefusedConnection(answer.error)) return;
    await sleep(pauseMs(round));
  }
}

/** Runs `fn` while nobody else holds the lock of this name. */
export async function withLock(http, name, fn, { waitMs = Number.MAX_SAFE_INTEGER, timeoutMs = 10_000, signal } = {}) {
  const lock = await take(http, name, { waitMs, timeoutMs, signal });
  const over = new AbortController();
  const keeping = keep(http, lock, over.signal);
  try {
    const value = await fn(lock);
    lock.check();
    return value;
  } finally {
    over.abort();
    await keeping;
    const released = release(http, lock.url, name, lock.holding);
    // A lock that is lost was perhaps lost with its node: that is not waited for.
    if (lock.valid) await released;
    lock.end();
  }
}
