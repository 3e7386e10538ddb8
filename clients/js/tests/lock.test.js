import assert from "node:assert/strict";
import { test } from "node:test";
import { Client, LockLost, Unavailable } from "../src/index.js";
import { TOKEN, until } from "./cluster.js";
import { DROP, SILENCE, deadUrl, problem, startFake } from "./fake-node.js";

/** A node that gives the lock to one holder at a time; `more` may answer first. */
function node(t, more = () => undefined, validMs = 1500) {
  let holder = null;
  let epoch = 0;
  return startFake(t, async (request) => {
    const said = await more(request);
    if (said) return said;
    if (request.method === "DELETE") {
      holder = null;
      return { status: 204 };
    }
    const { holding } = request.body;
    if (request.path.endsWith("/heartbeat") && holder !== holding) return problem(404, "unknown-lock");
    if (holder && holder !== holding) return problem(409, "locked", { detail: "held by another" });
    if (!holder) epoch += 1;
    holder = holding;
    return { status: 200, body: { holding, epoch, validMs } };
  });
}

const posts = (fake) => fake.heard.filter(({ method }) => method === "POST");
const beats = (fake) => posts(fake).filter(({ path }) => path.endsWith("/heartbeat"));

test("a lock is renewed while the function runs, and released after it", async (t) => {
  const fake = await node(t);
  const value = await fake.client().lock("nightly", async (lock) => {
    assert.ok(lock.valid && lock.epoch === 1 && lock.name === "nightly");
    await until("it was renewed twice", () => posts(fake).length >= 3);
    lock.check();
    return "done";
  });
  assert.equal(value, "done");
  const [first] = posts(fake);
  const [second] = beats(fake);
  assert.ok(first.path === "/v1/locks/nightly" && first.body.holding.length >= 16 && first.body.timeout === 10_000);
  assert.ok(first.body.waitMs > 0 && first.body.waitMs <= 30_000);
  assert.deepEqual([second.path, second.body], ["/v1/locks/nightly/heartbeat", { holding: first.body.holding }]);
  const last = fake.heard.at(-1);
  assert.deepEqual([last.method, last.path], ["DELETE", `/v1/locks/nightly?holding=${first.body.holding}`]);
});

test("one after the other", async (t) => {
  const fake = await node(t);
  let inside = 0;
  const go = async (lock) => {
    inside += 1;
    assert.equal(inside, 1);
    const before = posts(fake).length;
    await until("it was renewed", () => posts(fake).length > before);
    inside -= 1;
    return lock.epoch;
  };
  const epochs = await Promise.all([1, 2, 3].map(() => fake.client().lock("x", go)));
  assert.deepEqual(epochs.sort(), [1, 2, 3]);
});

test("waitMs ends the wait: the error says who holds it", async (t) => {
  const fake = await node(t, ({ method }) => (method === "POST" ? problem(409, "locked", { detail: "held by pod-b" }) : undefined));
  await assert.rejects(fake.client().lock("x", () => {}, { waitMs: 0 }), { name: "locked", status: 409, detail: "held by pod-b" });
  assert.equal(posts(fake).length, 1);
  await assert.rejects(fake.client().lock("x", () => {}, { waitMs: 300 }), { name: "locked" });
  await assert.rejects(fake.client().lock("x", () => {}, { signal: AbortSignal.timeout(150) }), { name: "TimeoutError" });
});

test("a lost answer: what it may have brought is given back, and asked for again", async (t) => {
  let takes = 0;
  const fake = await node(t, ({ method }) => (method === "POST" && takes++ === 0 ? DROP : undefined));
  await fake.client().lock("x", () => {});
  const [one, two] = posts(fake);
  assert.notEqual(one.body.holding, two.body.holding);
  await until("it is given back", () => fake.heard.some(({ path }) => path.endsWith(`=${one.body.holding}`)));
});

test("a node that is silent or busy while the lock is wanted: the next one is asked", async (t) => {
  for (const answer of [SILENCE, problem(503, "stopping")]) {
    const bad = await node(t, () => answer);
    const good = await node(t);
    const client = new Client(bad.url, await deadUrl(t), good.url, { token: TOKEN, timeoutMs: 300 });
    assert.equal(await client.lock("x", (lock) => lock.epoch, { waitMs: 0 }), 1);
  }
});

test("nobody answers: Unavailable, with what the last one said", async (t) => {
  const busy = await node(t, () => problem(503, "busy"));
  const taken = busy.client({ timeoutMs: 200 }).lock("x", () => {});
  await assert.rejects(taken, (error) => error instanceof Unavailable && error.status === 503 && /busy/.test(error.detail));
  await assert.rejects(new Client(await deadUrl(t), { timeoutMs: 200 }).lock("x", () => {}), { status: 0, name: "unavailable" });
});

for (const [what, answer] of [["is unknown", problem(404, "unknown-lock")], ["is refused", problem(401, "unauthorized")]]) {
  test(`a lock that ${what} at its renewal is lost`, async (t) => {
    const fake = await node(t, () => (beats(fake).length ? answer : undefined));
    const lost = fake.client().lock("x", async (lock) => {
      await until("it is lost", () => lock.signal.aborted);
      assert.ok(!lock.valid);
      assert.throws(() => lock.check(), LockLost);
    });
    await assert.rejects(lost, (error) => error instanceof LockLost && error.name === "lock-lost");
  });
}

test("a node that falls silent: the lock ends when its time is over, and not before", async (t) => {
  const fake = await node(t, () => (beats(fake).length ? SILENCE : undefined), 300);
  const start = performance.now();
  let endedMs = 0;
  await assert.rejects(fake.client().lock("x", async (lock) => {
    lock.signal.addEventListener("abort", () => (endedMs = performance.now() - start));
    await until("it is lost", () => endedMs);
  }), LockLost);
  assert.ok(endedMs >= 299 && posts(fake).length > 1, `ended after ${endedMs} ms`);
});

test("a failed renewal is tried again while there is time", async (t) => {
  const fake = await node(t, () => ([1, 2].includes(beats(fake).length) ? problem(503, "busy") : undefined));
  await fake.client().lock("x", () => until("it was renewed after all", () => beats(fake).length >= 4));
});

test("an answer that took longer than it is valid gives no lock", async (t) => {
  const slow = async () => {
    if (posts(fake).length === 1) await new Promise((resolve) => setTimeout(resolve, 400));
  };
  const fake = await node(t, slow, 300);
  await fake.client().lock("x", (lock) => lock.check());
  const [one, two] = posts(fake);
  assert.ok(posts(fake).length >= 2 && one.body.holding === two.body.holding);
});

test("the error of the function comes first", async (t) => {
  const fake = await node(t);
  const fail = () => {
    throw new RangeError("mine");
  };
  await assert.rejects(fake.client().lock("x", fail), RangeError);
  assert.equal(fake.heard.at(-1).method, "DELETE");
});
