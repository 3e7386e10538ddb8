import assert from "node:assert/strict";
import { test } from "node:test";
import { Client } from "../src/index.js";
import { TOKEN, until } from "./cluster.js";
import { DROP, SILENCE, problem, startFake } from "./fake-node.js";

const JOB = { id: "j", attempt: 1, epoch: 3, queue: "q", kind: "send", payload: { to: "ada" }, payloadBase64: "", ackWithinMs: 10_000 };

/** A node that gives out these jobs, and answers what `more` does not. */
function node(t, jobs, more = () => undefined) {
  const left = [...jobs];
  return startFake(t, async (request) => {
    const { method, path, body } = request;
    const said = await more(request);
    if (said) return said;
    if (path === "/v1/workers") return { status: 201, body: { workerId: body.workerId, heartbeatWithinMs: 3000 } };
    if (path.endsWith("/heartbeat")) return { status: 200, body: {} };
    if (path.endsWith("/jobs/next")) return left.length ? { status: 200, body: left.shift() } : SILENCE;
    if (path.endsWith("/result")) return { status: 200, body: { accepted: true } };
    return { status: 204, body: undefined, method };
  });
}

const bodies = (fake, end) => fake.heard.filter(({ path }) => path.endsWith(end)).map(({ body }) => body);

/** Runs a worker until it has reported so many results. */
async function run(t, fake, handler, { results = 1, client = fake.client(), options = {} } = {}) {
  const worker = client.worker(options).handle("send", handler);
  const running = worker.run();
  t.after(() => worker.stop());
  await until(`${results} results`, () => bodies(fake, "/result").length >= results);
  await worker.stop();
  await running;
  return bodies(fake, "/result");
}

test("a job is acknowledged, run and reported; then the worker leaves", async (t) => {
  const fake = await node(t, [JOB]);
  const [result] = await run(t, fake, (job) => ({ to: job.payload.to, epoch: job.epoch, by: job.kind }));
  assert.deepEqual([result.outcome, result.result], ["succeeded", '{"to":"ada","epoch":3,"by":"send"}']);
  const registered = bodies(fake, "/v1/workers")[0];
  assert.deepEqual(registered.kinds, ["send"]);
  for (const body of [bodies(fake, "/ack")[0], result]) {
    const { workerId, registration, attempt } = body;
    assert.deepEqual({ workerId, registration, attempt }, { workerId: registered.workerId, registration: registered.registration, attempt: 1 });
  }
  const last = fake.heard.at(-1);
  assert.deepEqual([last.method, last.path], ["DELETE", `/v1/workers/${registered.workerId}?registration=${registered.registration}`]);
});

test("a job whose acknowledgement was lost, or that comes twice, runs once", async (t) => {
  let runs = 0;
  const fake = await node(t, [JOB, JOB], ({ path }) => (path.endsWith("/ack") && bodies(fake, "/ack").length === 1 ? DROP : undefined));
  const go = async () => {
    runs += 1;
    await until("the job was given out again", () => bodies(fake, "/ack").length >= 3);
  };
  await run(t, fake, go, { options: { concurrency: 2 } });
  assert.equal(runs, 1);
});

test("a job that cannot be acknowledged any more does not run", async (t) => {
  let runs = 0;
  const other = { ...JOB, id: "k" };
  const fake = await node(t, [JOB, other], ({ path }) => (path === "/v1/jobs/j/ack" ? problem(404, "unknown-job") : undefined));
  await run(t, fake, () => (runs += 1));
  assert.equal(runs, 1);
  assert.deepEqual(fake.heard.filter(({ path }) => path.endsWith("/result")).map(({ path }) => path), ["/v1/jobs/k/result"]);
});

test("a result whose answer was lost is repeated; the second answer is no news", async (t) => {
  const said = [];
  const fake = await node(t, [JOB], ({ path }) => {
    if (!path.endsWith("/result")) return undefined;
    return bodies(fake, "/result").length === 1 ? DROP : problem(404, "unknown-job");
  });
  await run(t, fake, () => "done", { results: 2, client: fake.client({ log: (text) => said.push(text) }) });
  assert.deepEqual(said, []);
});

test("a result that comes too late is dropped, and said so", async (t) => {
  const said = [];
  const fake = await node(t, [JOB], ({ path }) => (path.endsWith("/result") ? problem(404, "unknown-job") : undefined));
  await run(t, fake, () => "done", { client: fake.client({ log: (text) => said.push(text) }) });
  assert.deepEqual(said, ["job j, attempt 1: its result came too late and is dropped"]);
});

for (const [what, value, text] of [
  ["text", "sent", "sent"],
  ["nothing", undefined, ""],
  ["JSON", [1, null], "[1,null]"],
  ["a long text", "ä".repeat(1000), "ä".repeat(512)],
]) {
  test(`a result: ${what}`, async (t) => {
    const fake = await node(t, [JOB]);
    const [result] = await run(t, fake, () => value, { client: fake.client({ log: () => {} }) });
    assert.deepEqual([result.outcome, result.result], ["succeeded", text]);
  });
}

for (const [what, error, text] of [
  ["an error", new Error("no such address"), "no such address"],
  ["a long error", new Error("€".repeat(1000)), "€".repeat(341)],
  ["half a character", new Error("a\ud800b"), "a\ufffdb"],
  ["anything", 7, "7"],
]) {
  test(`a handler that throws: ${what}`, async (t) => {
    const fake = await node(t, [JOB]);
    const [result] = await run(t, fake, () => {
      throw error;
    }, { client: fake.client({ log: () => {} }) });
    assert.deepEqual([result.outcome, result.result], ["failed", text]);
  });
}

test("what a job says is sent in pieces that fit, in order, and survives a lost answer", async (t) => {
  const fake = await node(t, [JOB], ({ path, body }) => (path.endsWith("/progress") && body.percent === 40 ? problem(503, "busy") : undefined));
  const lines = Array.from({ length: 2000 }, (_, index) => `line ${index} ${"ü".repeat(20)}\n`);
  await run(t, fake, async (job) => {
    for (const line of lines) job.log(line);
    await job.progress(40.4, "ü".repeat(150));
    await job.progress(80);
  });
  const said = bodies(fake, "/progress");
  const kept = said.filter(({ percent }) => percent !== 40);
  assert.equal(kept.map(({ output }) => output).join(""), lines.join(""));
  assert.ok(said.every(({ output }) => Buffer.byteLength(output) <= 32 * 1024));
  const [refused] = said.filter(({ percent }) => percent === 40);
  assert.equal(refused.text, "ü".repeat(100));
  assert.ok(kept.some(({ percent }) => percent === 80));
});

test("a job that says too much too fast loses some of it, and says so", async (t) => {
  const fake = await node(t, [JOB]);
  await run(t, fake, (job) => {
    for (let index = 0; index < 100; index++) job.log("x".repeat(9999));
  });
  const output = bodies(fake, "/progress").map((body) => body.output).join("");
  const [, leftOut] = /\[(\d+) bytes left out\]/.exec(output);
  assert.equal(output.replace(/\[.*\]\n/, "").length + Number(leftOut), 100 * 10_000);
});

test("a cancelled job learns of it, and its result is dropped", async (t) => {
  let acks = 0;
  const fake = await node(t, [JOB, { ...JOB, id: "k" }], ({ path }) => {
    if (path !== "/v1/jobs/j/ack") return undefined;
    acks += 1;
    return acks === 1 ? undefined : problem(404, "unknown-job");
  });
  const seen = [];
  await run(t, fake, async (job) => {
    if (job.id === "k") return "done";
    await new Promise((resolve) => job.signal.addEventListener("abort", resolve, { once: true }));
    seen.push(job.cancelled);
    throw job.signal.reason;
  }, { client: fake.client({ log: () => {} }) });
  assert.deepEqual(seen, [true]);
  assert.ok(!fake.heard.some(({ path }) => path === "/v1/jobs/j/result"));
});

test("a worker with an id of its own waits until the id is free", async (t) => {
  const said = [];
  const busy = ({ path }) => (path === "/v1/workers" && bodies(fake, "/v1/workers").length < 4 ? problem(409, "worker-held") : undefined);
  const fake = await node(t, [JOB], busy);
  await run(t, fake, () => "", { client: fake.client({ log: (text) => said.push(text) }), options: { id: "mailer", queues: ["mail"] } });
  const asked = bodies(fake, "/v1/workers");
  assert.ok(asked.every(({ workerId, queues }) => workerId === "mailer" && queues[0] === "mail"));
  assert.equal(said.length, 1);
});

test("a registration that a node has lost is made again, and its jobs are told", async (t) => {
  let isLost = false;
  const fake = await node(t, [JOB, { ...JOB, attempt: 2 }], ({ path }) => {
    if (path.endsWith("/heartbeat") && isLost) {
      isLost = false;
      return problem(404, "unknown-worker");
    }
    return undefined;
  });
  const attempts = [];
  await run(t, fake, async (job) => {
    attempts.push(job.attempt);
    if (job.attempt === 2) return;
    isLost = true;
    await new Promise((resolve) => job.signal.addEventListener("abort", resolve, { once: true }));
  }, { client: fake.client({ log: () => {} }) });
  assert.deepEqual(attempts, [1, 2]);
  assert.equal(new Set(bodies(fake, "/v1/workers").map(({ registration }) => registration)).size, 2);
});

test("a node that dies: the worker goes on with the next one, under a new id", async (t) => {
  const one = await node(t, []);
  const two = await node(t, [JOB]);
  const client = new Client(one.url, two.url, { token: TOKEN, log: () => {} });
  const worker = client.worker().handle("send", () => "done");
  const running = worker.run();
  t.after(() => worker.stop());
  await until("the first node gives jobs", () => bodies(one, "/jobs/next").length);
  const former = worker.id;
  await one.end();
  await until("the second node has the result", () => bodies(two, "/result").length);
  assert.notEqual(worker.id, former);
  await worker.stop();
  await running;
});

test("a glitch costs no registration and no job", async (t) => {
  let glitches = 0;
  const fake = await node(t, [JOB], ({ path }) => {
    if (!path.endsWith("/jobs/next") || bodies(fake, "/ack").length === 0 || glitches >= 3) return undefined;
    glitches += 1;
    return DROP;
  });
  const wait = async (job) => {
    await until("three connections were lost", () => glitches === 3);
    return `cancelled: ${job.cancelled}`;
  };
  const [result] = await run(t, fake, wait, { options: { concurrency: 2 } });
  assert.equal(result.result, "cancelled: false");
  assert.equal(bodies(fake, "/v1/workers").length, 1);
});

test("a refusal ends the worker with an error", async (t) => {
  const fake = await node(t, [], ({ path }) => (path === "/v1/workers" ? problem(401, "unauthorized") : undefined));
  const worker = fake.client().worker().handle("send", () => {});
  await assert.rejects(worker.run(), { name: "unauthorized" });
  await worker.stop();
  await assert.rejects(fake.client().worker().run(), /needs a handler/);
});

test("a worker that stops finishes its job and keeps its registration until then", async (t) => {
  const fake = await node(t, [JOB]);
  const worker = fake.client().worker().handle("send", async () => {
    void worker.stop();
    await until("two heartbeats while it drains", () => bodies(fake, "/heartbeat").length >= 2);
    return "done";
  });
  await worker.run();
  const ends = fake.heard.map(({ method, path }) => (method === "DELETE" ? "left" : path.split("/").at(-1)));
  assert.ok(ends.indexOf("result") < ends.indexOf("left"), ends.join(" "));
});
