// Runs every example of the README, after the first one, as a program of its own. It must print what its comments say.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";
import { PACKAGE, TOKEN, startCluster } from "./cluster.js";

/** Does to a coordinator what node-cron 4 does when a task is due. */
const CRON = `const cron = {
  async schedule(_expression, task, { name, distributed, runCoordinator }) {
    const key = name + ":" + new Date().toISOString();
    if (!distributed || !(await runCoordinator.shouldRun(key, 30_000))) return;
    await task();
    await runCoordinator.onComplete(key);
  },
};`;

const sections = readFileSync(join(PACKAGE, "README.md"), "utf8").split(/^## /m);
const [beginning, ...examples] = sections.flatMap((section) => {
  const title = section.slice(0, section.indexOf("\n"));
  return [...section.matchAll(/^```js\n(.*?)^```/gms)].map(([, code]) => ({ title, code }));
});

test("the examples of the README", { concurrency: 4 }, async (t) => {
  assert.ok(examples.length >= 9);
  const cluster = await startCluster(t, 1);
  const env = { PATH: process.env.PATH, TENURE_URL: cluster.urls[0], TENURE_HTTP_TOKEN: TOKEN };
  const run = async (code) => {
    const program = (beginning.code + code).replace(/^import cron .*$/m, CRON).replace(/http:\/\/127\.0\.0\.1:\d+/g, cluster.urls[0]);
    const { stdout } = await promisify(execFile)(process.execPath, ["--input-type=module", "--eval", program], { cwd: PACKAGE, env });
    const expected = [...code.matchAll(/\/\/ prints (.*)$/gm)].map(([, text]) => `${text}\n`);
    assert.equal(stdout, expected.join(""));
  };
  await Promise.all(examples.map(({ title, code }) => t.test(title, () => run(code))));
});
