import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { Client, TenureError } from "../src/index.js";
import { TOKEN, startCluster, until } from "./cluster.js";

const quiet = { log: () => {} };

/** Starts a worker that is stopped with the test. */
function work(t, worker) {
  const running = worker.run();
  t.after(async () => {
    await worker.stop();
    await running;
  });
}

describe("on real nodes", { concurrency: 4, timeout: 300_000 }, () => {
  test("leader, fence and health", async (t) => {
    const cluster = await startCluster(t, 2);
    const first = await cluster.leader();
    const standby = cluster.nodes.find((node) => node !== first);
    const client = cluster.client();
    const { leader, epoch, leaseRemainingMs } = await new Client(first.url).leader();
    assert.equal(leader, first.name);
    assert.ok(leaseRemainingMs > 0);
    const say = (now, ...words) => [now, ...words];
    assert.deepEqual(await new Client(first.url, standby.url).leaderOnly(say)("a", 1), [epoch, "a", 1]);
    assert.equal(await new Client(standby.url, first.url).leaderOnly(say)("a", 1), undefined);
    assert.equal(await new Client(standby.url).isLeader(), false);
    assert.equal(await client.fence(epoch), true);
    await until("health is known", async () => (await client.health()).status !== "unknown");
    await first.kill();
    assert.equal(await cluster.leader(), standby);
    assert.equal(await client.fence(epoch), false, "its successor has a higher epoch");
    assert.equal(await client.fence(epoch + 1, { deadline: Date.now() - 1000 }), false, "too late");
  });

  test("jobs: submitted and run, with what they say", async (t) => {
    const cluster = await startCluster(t, 1);
    const client = cluster.client();
    const worker = client.worker({ id: "mailer", concurrency: 4 });
    worker.handle("send", async (job) => {
      await job.progress(40, "copying");
      job.log("3 of 7");
      job.log("all of them\n");
      return { to: job.payload.to };
    });
    work(t, worker);

    const sent = await client.submit("send", { to: "ada" }, { id: "mail-7", queue: "mail", priority: 7 });
    assert.deepEqual(sent, { id: "mail-7", existed: false });
    const job = await client.wait("mail-7");
    assert.deepEqual([job.state, job.result, job.worker, job.queue, job.priority], ["succeeded", '{"to":"ada"}', "mailer", "mail", 7]);
    assert.deepEqual(await client.submit("send", { to: "ada" }, { id: "mail-7" }), { id: "mail-7", existed: true });
    const output = await until("the output is kept", () => client.request("GET", "/v1/jobs/mail-7/output?format=text").catch(() => null));
    assert.equal(output, "3 of 7\nall of them\n");

    const many = await client.submitMany(Array.from({ length: 30 }, (_, index) => ({ kind: "send", payload: { to: index } })));
    const ended = await Promise.all(many.map(({ id }) => client.wait(id)));
    assert.deepEqual(ended.map(({ result }) => JSON.parse(result).to), many.map((_, index) => index));

    await assert.rejects(client.job("no-such-job"), { name: "unknown-job", status: 404 });
    await assert.rejects(client.submit("not a kind"), (error) => error instanceof TenureError && error.name === "invalid");
    await assert.rejects(new Client(...cluster.urls, { token: "the-wrong-token-altogether" }).submit("send"), { name: "unauthorized" });
  });

  test("jobs: failed and tried again", async (t) => {
    const cluster = await startCluster(t, 1);
    const client = cluster.client();
    const worker = client.worker();
    let isBad = true;
    worker.handle("flaky", () => {
      if (isBad) throw new Error("not today");
      return "today";
    });
    work(t, worker);
    const { id: flaky } = await client.submit("flaky", null, { attempts: 1 });
    const failed = await client.wait(flaky);
    assert.deepEqual([failed.state, failed.result], ["failed", "not today"]);
    isBad = false;
    assert.equal((await client.retry(flaky)).outcome, "asked");
    const again = await client.wait(flaky, { attempt: 2 });
    assert.deepEqual([again.state, again.attempt, again.result], ["succeeded", 2, "today"]);
  });

  test("jobs: cancelled, while they run and before", async (t) => {
    const cluster = await startCluster(t, 1);
    const client = cluster.client(quiet);
    const stopped = [];
    const worker = client.worker();
    worker.handle("long", (job) => new Promise((resolve) => job.signal.addEventListener("abort", () => resolve(stopped.push(job.id)))));
    work(t, worker);
    const { id: long } = await client.submit("long");
    await until("it runs", async () => (await client.job(long)).state === "running");
    assert.equal((await client.cancel(long)).outcome, "asked");
    assert.equal((await client.wait(long)).state, "cancelled");
    await until("it has learnt that", () => stopped.includes(long));

    const { id: later } = await client.submit("long", null, { notBefore: new Date(Date.now() + 3_600_000) });
    await until("it waits for its time", async () => /not before/.test((await client.job(later)).reason));
    await client.cancel(later);
    assert.equal((await client.wait(later)).state, "cancelled");
  });

  test("schedules: created, paused, resumed, run now, removed", async (t) => {
    const cluster = await startCluster(t, 1);
    const client = cluster.client();
    work(t, client.worker().handle("digest", (job) => `to ${job.payload.to}`));
    const digest = { cron: "0 7 * * 1", zone: "Europe/Berlin", kind: "digest", payload: { to: "everybody" } };
    assert.equal((await client.schedule("digest", digest)).outcome, "created");
    assert.equal((await client.schedule("digest", digest)).outcome, "unchanged");
    assert.equal((await client.pause("digest")).enabled, false);
    assert.equal((await client.resume("digest")).enabled, true);
    const [listed] = await client.schedules();
    assert.equal(listed.id, "digest");
    assert.ok(listed.next > Date.now());
    const run = await client.runNow("digest", "first");
    assert.deepEqual(run, { id: "digest.run.first", existed: false });
    assert.deepEqual(await client.runNow("digest", "first"), { ...run, existed: true });
    const job = await until("its job has ended", () => client.wait(run.id).catch((error) => error.status !== 404 && Promise.reject(error)));
    assert.deepEqual([job.state, job.result], ["succeeded", "to everybody"]);
    const wrong = { cron: "0 0 30 2 *", kind: "x", every: "0s" };
    await assert.rejects(client.schedule("wrong", wrong), (error) => error.name === "invalid" && /every/.test(error.detail));
    await client.remove("digest");
    await assert.rejects(client.remove("digest"), { name: "unknown-schedule" });
  });

  test("the leader is killed: no error, no job lost, each with one result, events go on", async (t) => {
    const cluster = await startCluster(t, 3);
    const client = cluster.client(quiet);
    const first = await cluster.leader();
    const runs = new Map();
    const note = (job) => {
      const key = `${job.id} ${job.attempt}`;
      runs.set(key, (runs.get(key) ?? 0) + 1);
      return key;
    };
    // One worker on each node, the one that dies included.
    for (const node of cluster.nodes) {
      const urls = [node.url, ...cluster.urls.filter((url) => url !== node.url)];
      work(t, new Client(...urls, { token: TOKEN, ...quiet }).worker({ concurrency: 4 }).handle("count", note));
    }
    const over = new AbortController();
    t.after(() => over.abort());
    const seen = [];
    const listening = (async () => {
      const urls = [first.url, ...cluster.urls.filter((url) => url !== first.url)];
      for await (const event of new Client(...urls).events({ recent: 100, signal: over.signal })) seen.push(event);
    })().catch((error) => over.signal.aborted || Promise.reject(error));
    await until("it hears the first leader", () => seen.some(({ event }) => event === "leader:changed"));

    const submitted = [];
    let isEnough = false;
    const submitting = (async () => {
      while (!isEnough) submitted.push((await client.submit("count", { number: submitted.length })).id);
    })();
    const scheduling = (async () => {
      for (let number = 0; !isEnough; number++) await client.schedule("nightly", { cron: `${number % 60} 3 * * *`, kind: "count" });
    })();
    await until("some jobs are there", () => submitted.length > 20);
    await first.kill();
    const killedAt = submitted.length;
    const next = await cluster.leader();
    assert.notEqual(next, first);
    await until("as many again are there", () => submitted.length > killedAt + 20);
    isEnough = true;
    await Promise.all([submitting, scheduling]);

    const ended = await Promise.all(submitted.map((id) => client.wait(id)));
    for (const job of ended) {
      assert.equal(job.state, "succeeded", `${job.id}: ${job.state}, ${job.reason}`);
      assert.equal(job.result, `${job.id} ${job.attempt}`, "the result of the attempt that counts");
    }
    assert.equal(new Set(submitted).size, submitted.length);
    assert.ok([...runs.values()].every((count) => count === 1), "no attempt ran twice");
    const gap = await until("the gap is reported", () => seen.findIndex(({ event }) => event === "missed") + 1);
    await until("events of another node follow", () => seen.slice(gap).some(({ node }) => node && node !== first.name));
    assert.equal((await client.schedules())[0].id, "nightly");
    assert.equal(await client.fence((await client.leader()).epoch), true);
    over.abort();
    await listening;
  });

  test("the worker's node is killed: its job is told, and runs again elsewhere", async (t) => {
    const cluster = await startCluster(t, 3);
    const leader = await cluster.leader();
    const [home, ...others] = cluster.nodes.filter((node) => node !== leader).concat(leader);
    const client = new Client(home.url, ...others.map(({ url }) => url), { token: TOKEN, ...quiet });
    const attempts = [];
    const worker = client.worker().handle("long", async (job) => {
      attempts.push(job.attempt);
      if (job.attempt > 1) return "done";
      await home.kill();
      await new Promise((resolve) => job.signal.addEventListener("abort", resolve, { once: true }));
      throw job.signal.reason;
    });
    work(t, worker);
    const { id } = await client.submit("long");
    const job = await client.wait(id);
    assert.deepEqual([job.state, job.attempt, job.result], ["succeeded", 2, "done"]);
    assert.deepEqual(attempts, [1, 2]);
  });

  test("the only node is restarted: the worker and the calls go on", async (t) => {
    const cluster = await startCluster(t, 1);
    const client = cluster.client(quiet);
    work(t, client.worker().handle("send", () => "sent"));
    assert.equal((await client.wait((await client.submit("send")).id)).result, "sent");
    await cluster.nodes[0].kill();
    const submitting = client.submit("send");
    await cluster.nodes[0].restart();
    const job = await client.wait((await submitting).id);
    assert.equal(job.result, "sent");
  });

  test("a frozen node: the next one is asked", async (t) => {
    const cluster = await startCluster(t, 3);
    const leader = await cluster.leader();
    const client = new Client(leader.url, ...cluster.urls.filter((url) => url !== leader.url), { token: TOKEN, timeoutMs: 12_000 });
    await leader.freeze(cluster.nodes.find((node) => node !== leader));
    const { id } = await client.submit("send");
    await until("another leads", async () => {
      const answer = await client.leader();
      return answer.leader && answer.leader !== leader.name;
    });
    assert.equal((await client.job(id)).state, "queued");
    leader.thaw();
  });

  test("a worker that is told to stop finishes what runs and leaves the list", async (t) => {
    const cluster = await startCluster(t, 1);
    const client = cluster.client();
    let release;
    const worker = client.worker({ id: "drains" }).handle("slow", () => new Promise((resolve) => (release = resolve)));
    const running = worker.run();
    const { id } = await client.submit("slow");
    await until("it runs", () => release);
    const stopping = worker.stop();
    await until("it is still kept alive", async () => (await client.job(id)).state === "running");
    release("done");
    await Promise.all([stopping, running]);
    assert.equal((await client.wait(id)).result, "done");
    await until("it has left", async () => {
      const { workers } = await client.request("GET", "/v1/workers");
      return !workers.some(({ workerId, state }) => workerId === "drains" && state === "active");
    });
  });

  test("the types are those of this node", async (t) => {
    const cluster = await startCluster(t, 1);
    const directory = mkdtempSync(join(tmpdir(), "tenure-js-"));
    t.after(() => rmSync(directory, { recursive: true }));
    const document = join(directory, "openapi.json");
    writeFileSync(document, JSON.stringify(await cluster.client().request("GET", "/openapi.json")));
    execFileSync(process.execPath, [fileURLToPath(new URL("../generate-types.js", import.meta.url)), "--check", document]);
  });
});
