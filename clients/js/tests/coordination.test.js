// Locks, `once` and the coordinator, on three real nodes.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once as onceOf } from "node:events";
import { describe, test } from "node:test";
import { LockLost } from "../src/index.js";
import { PACKAGE, TOKEN, startCluster, until } from "./cluster.js";

const never = () => assert.fail("it ran already");

/** Runs a program that prints `begun`, and ends it without a chance to clean up as soon as it has. */
async function killOnceBegun(t, cluster, program) {
  const env = { PATH: process.env.PATH, TENURE_URL: cluster.urls.join(","), TENURE_HTTP_TOKEN: TOKEN };
  const begun = 'const begun = () => new Promise(() => setInterval(() => console.log("begun"), 100));';
  const text = `import { Client } from "tenure-client"; const client = new Client(); ${begun} await ${program};`;
  const child = spawn(process.execPath, ["--input-type=module", "--eval", text], { cwd: PACKAGE, env, stdio: ["ignore", "pipe", "inherit"] });
  t.after(() => child.kill("SIGKILL"));
  await onceOf(child.stdout, "data");
  const ended = onceOf(child, "exit");
  child.kill("SIGKILL");
  await ended;
}

describe("on real nodes", { concurrency: 3, timeout: 300_000 }, () => {
  test("on three nodes", { concurrency: 4 }, async (t) => {
    const cluster = await startCluster(t, 3);
    const clients = cluster.nodes.map((node) => cluster.clientOf(node));
    const tests = [];

    tests.push(t.test("a lock has one holder at a time, whichever node is asked", async () => {
      let inside = 0;
      const epochs = [];
      const work = async (lock) => {
        inside += 1;
        assert.equal(inside, 1, "another holds it too");
        epochs.push(lock.epoch);
        await cluster.client().leader();
        lock.check();
        inside -= 1;
      };
      const twice = async (client) => {
        await client.lock("shared", work);
        await client.lock("shared", work);
      };
      await Promise.all(clients.map(twice));
      assert.equal(epochs.length, 6);
      assert.deepEqual(epochs, [...new Set(epochs)].sort((one, two) => one - two), "each holder has a higher epoch");
    }));

    tests.push(t.test("a lock is kept for as long as the function runs, and refused to others", async () => {
      await clients[0].lock("kept", async (lock) => {
        const first = lock.leftMs;
        const start = performance.now();
        await assert.rejects(clients[1].lock("kept", never, { waitMs: 0 }), { status: 409, name: "locked" });
        await until("it is held for longer than it was valid at first", () => performance.now() - start > first + 500);
        lock.check();
      });
    }));

    tests.push(t.test("a process that dies leaves its lock to others", async (t) => {
      await killOnceBegun(t, cluster, 'client.lock("dies", begun, { timeoutMs: 1000 })');
      assert.equal(await clients[1].lock("dies", () => "mine"), "mine");
    }));

    tests.push(t.test("once: one of many runs it, and all get its result", async () => {
      const runs = [];
      const results = await Promise.all([0, 1, 2, 0, 1, 2].map((node, number) => clients[node].once("Größe 5/a", (job) => {
        runs.push(number);
        return { number, attempt: job.attempt };
      })));
      assert.equal(runs.length, 1);
      assert.deepEqual(results, Array(6).fill({ number: runs[0], attempt: 1 }));
      assert.deepEqual(await clients[1].once("Größe 5/a", never), results[0], "later callers get it too");
    }));

    tests.push(t.test("once: an error reaches whoever ran it as it is, and all others with its text", async () => {
      const broken = new Error("the table is gone");
      const fail = () => Promise.reject(broken);
      await assert.rejects(clients[0].once("fails", fail), (error) => error === broken);
      await assert.rejects(clients[1].once("fails", never), { status: 0, name: "failed", message: /the table is gone/ });
      const turns = [];
      const second = () => (turns.push(0) === 1 ? fail() : "repaired");
      assert.equal(await clients[0].once("fails once", second, { retry: 1 }), "repaired");
      assert.equal(turns.length, 2);
    }));

    tests.push(t.test("once: a process that dies while it runs it", async (t) => {
      await Promise.all([
        killOnceBegun(t, cluster, 'client.once("dies", begun)'),
        killOnceBegun(t, cluster, 'client.once("dies, try again", begun, { retry: 1 })'),
      ]);
      const [lost, again] = await Promise.allSettled([
        clients[1].once("dies", never),
        clients[1].once("dies, try again", () => "by another", { retry: 1 }),
      ]);
      // Its node may say that it has left before the leader finds that it is silent.
      assert.match(lost.reason?.name, /^(lost|failed)$/);
      assert.equal(again.value, "by another");
    }));

    tests.push(t.test("a coordinator lets one process run each fire", async () => {
      const coordinators = clients.map((client) => client.runCoordinator());
      for (const key of ["nightly:2026-11-19T02:30:00.000Z", "nightly:2026-11-20T02:30:00.000Z"]) {
        const allowed = await Promise.all(coordinators.map((one) => one.shouldRun(key)));
        assert.equal(allowed.filter(Boolean).length, 1, "the others know before it ends");
        await Promise.all(coordinators.map((one, index) => allowed[index] && one.onComplete(key)));
        assert.equal(await coordinators[0].shouldRun(key), false, "late, it is over");
      }
    }));

    await Promise.all(tests);
  });

  test("the leader is killed while a lock is wanted and `once` runs", async (t) => {
    const cluster = await startCluster(t, 3);
    const leader = await cluster.leader();
    const standby = cluster.nodes.find((node) => node !== leader);
    const through = (node) => cluster.clientOf(node);

    let runs = 0;
    let finish;
    const slow = () => {
      runs += 1;
      return new Promise((resolve) => (finish = resolve));
    };
    const results = [through(standby).once("migrate", slow)];
    await until("it runs", () => runs);
    results.push(through(leader).once("migrate", never));

    // This one runs on the leader's own node.
    const attempts = [];
    const again = through(leader).once("twice", async (job) => {
      attempts.push(job.attempt);
      if (job.attempt > 1) return "the second time";
      await onceOf(job.signal, "abort");
      throw job.signal.reason;
    }, { retry: 1 });
    await until("that runs, too", () => attempts.length);

    let lost = 0;
    let isHeld = false;
    const holding = through(leader).lock("one", async (lock) => {
      isHeld = true;
      lock.signal.addEventListener("abort", () => (lost = performance.now()));
      await until("it is lost", () => lost);
    });
    await until("the lock is held", () => isHeld);
    const next = through(leader).lock("one", () => performance.now());
    await leader.kill();
    await assert.rejects(holding, LockLost);
    assert.ok((await next) > lost, "nobody else has it before it is lost");
    finish("done");
    assert.deepEqual(await Promise.all(results), ["done", "done"]);
    assert.equal(runs, 1);
    assert.equal(await again, "the second time");
    assert.deepEqual(attempts, [1, 2]);
  });

  test("a node freezes while it holds connections: a worker, a lock, `once` and events go on elsewhere", async (t) => {
    const cluster = await startCluster(t, 3);
    const leader = await cluster.leader();
    const standby = cluster.nodes.find((node) => node !== leader);
    const through = () => cluster.clientOf(leader, { timeoutMs: 12_000 });
    const client = through();
    const over = new AbortController();
    const seen = [];
    const listening = (async () => {
      for await (const event of through().events({ recent: 1, signal: over.signal })) seen.push(event);
    })().catch((error) => over.signal.aborted || Promise.reject(error));
    const worker = through().worker().handle("send", () => "sent");
    const working = worker.run();
    t.after(async () => {
      over.abort();
      await worker.stop();
      await Promise.all([listening, working]);
    });
    const sent = async () => client.wait((await client.submit("send")).id);
    assert.equal((await sent()).result, "sent");
    await until("there are events", () => seen.length);

    let lost = 0;
    let isHeld = false;
    const holding = through().lock("one", async (lock) => {
      isHeld = true;
      lock.signal.addEventListener("abort", () => (lost = performance.now()));
      await until("it is lost", () => lost);
    });
    await until("the lock is held", () => isHeld);
    const next = through().lock("one", () => performance.now());
    const migrating = through().once("migrate", () => "done");
    await leader.freeze(standby);
    const all = Promise.all([next, sent(), migrating]);
    await assert.rejects(holding, LockLost);
    const [taken, job, migrated] = await all;
    assert.ok(taken > lost, "nobody else has it before it is lost");
    assert.deepEqual([job.result, migrated], ["sent", "done"]);
    const gap = await until("the gap is reported", () => seen.findIndex(({ event }) => event === "missed") + 1);
    await client.request("POST", "/v1/step-down");
    await until("events of another node follow", () => seen.slice(gap).some(({ node }) => node && node !== leader.name));
  });
});
