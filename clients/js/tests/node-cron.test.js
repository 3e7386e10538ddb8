// The coordinator in the real node-cron: three processes with the same task. `NODE_CRON` is the folder of the package.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { test } from "node:test";
import { pathToFileURL } from "node:url";
import { join } from "node:path";
import { PACKAGE, TOKEN, startCluster, until } from "./cluster.js";

const { NODE_CRON } = process.env;
const skip = NODE_CRON ? false : "node-cron is not there: NODE_CRON names its folder";

/** Prints the due time of each fire that it runs. */
const program = (nodeCron) => `
import { Client } from "tenure-client";
import cron from ${JSON.stringify(nodeCron)};
const task = ({ date }) => console.log(Math.floor(date / 1000));
cron.schedule("*/2 * * * * *", task, { name: "tick", distributed: true, runCoordinator: new Client().runCoordinator() });
console.log("scheduled");`;

test("each fire of a task runs in one of three processes", { skip }, async (t) => {
  const cluster = await startCluster(t, 1);
  const text = program(pathToFileURL(join(NODE_CRON, "dist/node-cron.js")).href);
  const env = { PATH: process.env.PATH, TENURE_URL: cluster.urls[0], TENURE_HTTP_TOKEN: TOKEN };
  const printed = [];
  let scheduled = 0;
  for (let number = 0; number < 3; number++) {
    const child = spawn(process.execPath, ["--input-type=module", "--eval", text], { cwd: PACKAGE, env, stdio: ["ignore", "pipe", "inherit"] });
    t.after(() => child.kill("SIGKILL"));
    child.stdout.on("data", (data) => {
      for (const line of String(data).trim().split("\n")) line === "scheduled" ? scheduled++ : printed.push(line);
    });
  }
  await until("all have the task", () => scheduled === 3);
  await until("six fires ran", () => printed.length >= 6);
  assert.equal(new Set(printed).size, printed.length, `a fire ran twice: ${printed}`);
});
