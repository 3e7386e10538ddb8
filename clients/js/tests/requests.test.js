import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { inspect } from "node:util";
import { Client, TenureError, Unavailable } from "../src/index.js";
import { TOKEN } from "./cluster.js";
import { DROP, SILENCE, deadUrl, problem, startFake } from "./fake-node.js";

const LEADER = { status: 200, body: { leader: "a", epoch: 7, node: "a", isLeader: true } };
const accepted = ({ body }) => ({ status: 202, body: { jobs: body.jobs.map(({ id }) => ({ id, existed: false })) } });

test("a submission whose answer was lost is repeated under the same id", async (t) => {
  const node = await startFake(t, (request) => (node.heard.length < 3 ? DROP : { ...accepted(request), status: 202 }));
  const submitted = await node.client().submit("send", { to: "ada" });
  const ids = node.heard.map(({ body }) => body.jobs[0].id);
  assert.equal(ids.length, 3);
  assert.deepEqual(new Set(ids), new Set([submitted.id]));
});

test("a job with an id of the client's own cannot have existed", async (t) => {
  const node = await startFake(t, ({ body }) => ({ status: 202, body: { jobs: [{ id: body.jobs[0].id, existed: true }] } }));
  assert.equal((await node.client().submit("send")).existed, false);
  assert.deepEqual(await node.client().submit("send", null, { id: "mail-7" }), { id: "mail-7", existed: true });
});

for (const name of ["store", "stopping", "busy", "not-leader"]) {
  test(`503 ${name}: the next node is asked, and then stays the first`, async (t) => {
    const bad = await startFake(t, () => problem(503, name, { headers: { "retry-after": "1" } }));
    const good = await startFake(t, () => LEADER);
    const client = new Client(bad.url, good.url);
    assert.equal((await client.leader()).epoch, 7);
    assert.equal((await client.leader()).epoch, 7);
    assert.deepEqual([bad.heard.length, good.heard.length], [1, 2]);
  });
}

test("a node that does not answer has only its share of the time", async (t) => {
  const frozen = await startFake(t, () => SILENCE);
  const good = await startFake(t, () => LEADER);
  const client = new Client(frozen.url, good.url, { timeoutMs: 1000 });
  assert.equal((await client.leader()).epoch, 7);
});

test("429: tried again after the time it says", async (t) => {
  const times = [];
  const node = await startFake(t, () => {
    times.push(performance.now());
    return times.length === 1 ? problem(429, "too-many", { headers: { "retry-after": "1" } }) : LEADER;
  });
  await node.client().leader();
  assert.ok(times[1] - times[0] >= 990, `after ${times[1] - times[0]} ms`);
});

test("429 with more time than there is: given up at once", async (t) => {
  const node = await startFake(t, () => problem(429, "too-many", { headers: { "retry-after": "60" } }));
  await assert.rejects(node.client().leader(), (error) => {
    assert.ok(error instanceof Unavailable && error instanceof TenureError);
    assert.equal(error.status, 429);
    assert.match(error.message, /too-many/);
    return true;
  });
  assert.equal(node.heard.length, 1);
});

for (const [status, name] of [[408, "slow"], [409, "raced"], [409, "no-leader"]]) {
  test(`${status} ${name} is tried again`, async (t) => {
    const node = await startFake(t, () => (node.heard.length === 1 ? problem(status, name) : LEADER));
    assert.equal((await node.client().leader()).epoch, 7);
  });
}

test("a refusal is thrown with its name and all faults", async (t) => {
  const node = await startFake(t, () => problem(422, "invalid", { problems: ["a = 1: must be 2", "b is missing"] }));
  await assert.rejects(node.client().schedule("x", {}), (error) => {
    assert.ok(error instanceof TenureError && !(error instanceof Unavailable));
    assert.deepEqual([error.status, error.name], [422, "invalid"]);
    assert.equal(error.detail, "it is invalid: a = 1: must be 2; b is missing");
    return true;
  });
  assert.equal(node.heard.length, 1);
});

test("nobody answers: Unavailable in time, with every address and without the token", async (t) => {
  const urls = [await deadUrl(t), await deadUrl(t)];
  const start = performance.now();
  await assert.rejects(new Client(...urls, { token: TOKEN, timeoutMs: 400 }).leader(), (error) => {
    assert.ok(error instanceof Unavailable);
    assert.equal(error.status, 0);
    for (const url of urls) assert.ok(error.message.includes(url), error.message);
    assert.match(error.message, /ECONNREFUSED/);
    assert.ok(!inspect(error, { depth: 9 }).includes(TOKEN));
    return true;
  });
  assert.ok(performance.now() - start < 5000);
});

test("the token is sent, but never shown", async (t) => {
  const node = await startFake(t, () => LEADER);
  const client = node.client();
  await client.leader();
  assert.equal(node.heard[0].headers.authorization, `Bearer ${TOKEN}`);
  assert.ok(!inspect(client, { depth: 9, showHidden: true }).includes(TOKEN));
  const secret = "a token with spaces";
  assert.throws(() => new Client(node.url, { token: secret }), (error) => !inspect(error).includes(secret));
});

test("a redirect is not followed", async (t) => {
  const thief = await startFake(t, () => LEADER);
  const node = await startFake(t, () => ({ status: 307, headers: { location: `${thief.url}/v1/leader` } }));
  await assert.rejects(node.client({ timeoutMs: 200 }).leader(), Unavailable);
  assert.equal(thief.heard.length, 0);
});

test("URLs and the token come from the environment, or from a file", async (t) => {
  const node = await startFake(t, () => LEADER);
  const directory = mkdtempSync(join(tmpdir(), "tenure-js-"));
  const { TENURE_URL, TENURE_HTTP_TOKEN } = process.env;
  t.after(() => {
    rmSync(directory, { recursive: true });
    for (const [name, value] of Object.entries({ TENURE_URL, TENURE_HTTP_TOKEN })) {
      if (value === undefined) delete process.env[name];
      else process.env[name] = value;
    }
  });
  process.env.TENURE_URL = `${await deadUrl(t)}, ${node.url}/`;
  process.env.TENURE_HTTP_TOKEN = "token-of-the-environment";
  writeFileSync(join(directory, "token"), "token-of-a-file-here\n");
  await new Client().leader();
  await new Client({ tokenFile: join(directory, "token") }).leader();
  assert.deepEqual(node.heard.map(({ headers }) => headers.authorization.slice(7)), ["token-of-the-environment", "token-of-a-file-here"]);
  assert.throws(() => new Client("http://user:secret-word@127.0.0.1:7420"), (error) => !inspect(error).includes("secret-word"));
  assert.throws(() => new Client("file:///etc/passwd"), TypeError);
});

test("what a lost first answer has done already is no error", async (t) => {
  const job = { status: 200, body: { id: "j", namespace: "n", open: true, state: "queued" } };
  const first = () => node.heard.filter(({ method }) => method !== "GET").length === 1;
  let second;
  const node = await startFake(t, ({ method }) => (method === "GET" ? job : first() ? DROP : second));
  second = problem(422, "invalid");
  assert.equal((await node.client().retry("j")).outcome, "asked");
  node.heard.length = 0;
  second = problem(404, "unknown-schedule");
  await node.client().remove("s");
  node.heard.length = 0;
  second = { status: 202, body: { job: "s.run.x", outcome: "existed" } };
  assert.deepEqual(await node.client().runNow("s"), { id: "s.run.x", existed: false });
  const [one, two] = node.heard.map(({ body }) => body.name);
  assert.ok(one && one === two, "the same name");
});

test("the same answers at the first try are errors", async (t) => {
  const node = await startFake(t, ({ method }) => (method === "DELETE" ? problem(404, "unknown-schedule") : problem(422, "invalid")));
  await assert.rejects(node.client().remove("s"), { name: "unknown-schedule" });
  await assert.rejects(node.client().retry("j"), { name: "invalid" });
});

test("many jobs go in requests of at most 1,000 jobs and 64 KiB", async (t) => {
  const sizes = [];
  const node = await startFake(t, (request) => {
    sizes.push([request.body.jobs.length, Number(request.headers["content-length"])]);
    return accepted(request);
  });
  const jobs = Array.from({ length: 2500 }, (_, index) => ({ kind: "send", id: `m-${index}`, payload: index }));
  const submitted = await node.client().submitMany(jobs);
  assert.deepEqual(submitted.map(({ id }) => id), jobs.map(({ id }) => id));
  const large = Array.from({ length: 20 }, () => ({ kind: "send", payload: "x".repeat(10_000) }));
  assert.equal((await node.client().submitMany(large)).length, 20);
  assert.ok(sizes.every(([count, bytes]) => count <= 1000 && bytes <= 64 * 1024), String(sizes));
});

test("an answer without end is cut off", async (t) => {
  const node = await startFake(t, (_, response) => {
    response.writeHead(200, { "content-type": "application/json" });
    const more = () => response.destroyed || response.write(" ".repeat(1024 * 1024), more);
    more();
  });
  await assert.rejects(node.client().leader(), { name: "too-large" });
  assert.equal(node.heard.length, 1);
});

test("what is no Tenure is an error with its status", async (t) => {
  const node = await startFake(t, () => ({ status: 404, headers: { "content-type": "text/html" }, body: "<h1>no</h1>" }));
  await assert.rejects(node.client().leader(), { name: "http-404", status: 404 });
  const garbled = await startFake(t, () => ({ status: 200, body: "{" }));
  await assert.rejects(garbled.client({ timeoutMs: 200 }).leader(), Unavailable);
});

test("a signal ends a wait with its reason", async (t) => {
  const node = await startFake(t, () => ({ status: 200, body: { id: "j", open: true } }));
  await assert.rejects(node.client().wait("j", { signal: AbortSignal.timeout(100) }), { name: "TimeoutError" });
  assert.ok(node.heard.length >= 1);
});

test("leaderOnly asks the first node, and no other", async (t) => {
  const standby = await startFake(t, () => ({ status: 200, body: { ...LEADER.body, isLeader: false } }));
  const leader = await startFake(t, () => LEADER);
  const add = (epoch, one, two) => [epoch, one + two];
  assert.deepEqual(await new Client(leader.url, standby.url).leaderOnly(add)(1, 2), [7, 3]);
  assert.equal(await new Client(standby.url, leader.url).leaderOnly(add)(1, 2), undefined);
  const dead = await deadUrl(t);
  assert.equal(await new Client(dead, leader.url, { timeoutMs: 200 }).leaderOnly(add)(1, 2), undefined, "it is gone, so it does not lead");
  await assert.rejects(new Client(dead, { timeoutMs: 200 }).leaderOnly(add)(1, 2), Unavailable);
});
