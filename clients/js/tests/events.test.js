import assert from "node:assert/strict";
import { test } from "node:test";
import { Client, TenureError, Unavailable } from "../src/index.js";
import { deadUrl, problem, startFake } from "./fake-node.js";

/** A handler that streams these texts, one list per connection, and then breaks the connection; the last one stays open. */
function streams(...connections) {
  let count = 0;
  return async ({ path }, response) => {
    if (!path.startsWith("/v1/events")) return problem(404, "no-route");
    const texts = connections[count++] ?? [];
    response.writeHead(200, { "content-type": "text/event-stream" });
    for (const text of ["retry: 2000\n: tenure\n\n", ...texts]) await new Promise((resolve) => response.write(text, resolve));
    if (count < connections.length) response.destroy();
  };
}

const frame = (id, event) => `id: r-${id}\ndata: ${JSON.stringify({ event })}\n\n`;

async function take(events, count) {
  const found = [];
  for await (const event of events) {
    found.push(event);
    if (found.length === count) break;
  }
  return found;
}

test("a broken stream goes on after the last event", async (t) => {
  const node = await startFake(t, streams([frame(1, "one"), frame(2, "two")], [frame(3, "three")]));
  const found = await take(node.client().events({ recent: 5 }), 3);
  assert.deepEqual(found.map(({ event }) => event), ["one", "two", "three"]);
  assert.deepEqual(node.heard.map(({ path }) => path), ["/v1/events?level=info&recent=5", "/v1/events?level=info"]);
  assert.deepEqual(node.heard.map(({ headers }) => headers["last-event-id"]), [undefined, "r-2"]);
});

test("a gap that the node reports is passed on", async (t) => {
  const missed = 'event: missed\ndata: {"missed":3,"why":"they are no longer kept"}\n\n';
  const node = await startFake(t, streams([missed, frame(9, "nine")]));
  const found = await take(node.client().events({ level: "debug" }), 2);
  assert.deepEqual(found, [{ event: "missed", missed: 3, why: "they are no longer kept" }, { event: "nine" }]);
});

test("a connection that breaks before the first event leaves a gap", async (t) => {
  const node = await startFake(t, streams([], [frame(1, "one")]));
  const found = await take(node.client().events(), 2);
  assert.deepEqual(found.map(({ event }) => event), ["missed", "one"]);
});

test("when a node is gone, the events of the next one follow a gap", async (t) => {
  const one = await startFake(t, streams([frame(1, "one")]));
  const two = await startFake(t, streams([frame(7, "seven")]));
  const events = new Client(one.url, two.url).events({ signal: AbortSignal.timeout(10_000) });
  assert.deepEqual(await take({ [Symbol.asyncIterator]: () => ({ next: () => events.next() }) }, 1), [{ event: "one" }]);
  await one.end();
  const found = await take(events, 2);
  assert.deepEqual(found, [{ event: "missed", missed: null, why: "these are the events of another node" }, { event: "seven" }]);
  assert.equal(two.heard[0].headers["last-event-id"], undefined, "an id of another node means nothing here");
});

test("pieces may end anywhere", async (t) => {
  const bytes = Buffer.from('id: r-1\ndata: {"event":"grün","text":"a: b"}\n\n');
  const node = await startFake(t, streams([...bytes].map((byte) => Buffer.from([byte]))));
  assert.deepEqual(await take(node.client().events(), 1), [{ event: "grün", text: "a: b" }]);
});

test("without a node the first connection fails in time; a refusal is thrown", async (t) => {
  await assert.rejects(new Client(await deadUrl(t), { timeoutMs: 200 }).events().next(), Unavailable);
  const closed = await startFake(t, () => problem(401, "unauthorized"));
  await assert.rejects(closed.client().events().next(), (error) => error instanceof TenureError && error.status === 401);
});

test("a signal ends the events with its reason", async (t) => {
  const node = await startFake(t, streams([]));
  await assert.rejects(node.client().events({ signal: AbortSignal.timeout(100) }).next(), { name: "TimeoutError" });
});
