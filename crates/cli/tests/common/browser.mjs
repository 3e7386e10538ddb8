// Drives Debian's Chromium for browser.rs. Every line on stdin is a command, `[name, ...arguments]`; every line on
// stdout is its answer, `{"ok": value}` or `{"error": text}`. When stdin closes, the browser closes and this ends.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { stripVTControlCharacters } from "node:util";

// A folder node_modules with playwright-core and axe-core.
const modules = process.env.TENURE_TEST_NPM;
const { chromium } = createRequire(`${modules}/`)("./playwright-core");

const browser = await chromium.launch({
  executablePath: "/usr/bin/chromium",
  // A test machine has no user namespaces for a sandbox.
  chromiumSandbox: false,
  // Playwright itself turns off most of what would ask other servers.
  args: ["--disable-gpu", "--disable-quic"],
});
const page = await browser.newPage();

const complaints = [];
page.on("console", (message) => {
  if (!["error", "warning"].includes(message.type())) return;
  complaints.push(`${message.location().url} - ${message.text()}`);
});
page.on("pageerror", (error) => complaints.push(`${page.url()} - ${error.stack}`));

const commands = {
  async open(url) {
    await page.goto(url);
  },
  run: (body) => page.evaluate(`(() => { ${body} })()`),
  click: (css) => page.click(css),
  async type(css, text) {
    await page.click(css);
    await page.keyboard.type(text);
  },
  async press(key) {
    await page.keyboard.press(key);
    // A dialog tells the page with the next frame that it has closed. No user presses two keys within one frame.
    await page.evaluate(() => new Promise(requestAnimationFrame));
  },
  prefers: (scheme) => page.emulateMedia({ colorScheme: scheme }),
  resize: (width, height) => page.setViewportSize({ width, height }),
  async barriers() {
    await page.evaluate(readFileSync(`${modules}/axe-core/axe.min.js`, "utf8"));
    const found = await page.evaluate(() => axe.run(document, { resultTypes: ["violations"] }));
    const html = (one) => one.nodes.map((node) => node.html).join(" ");
    return found.violations.map((one) => `${one.id}: ${one.help}: ${html(one)}`);
  },
  complaints: () => complaints,
  async picture(path) {
    for (const [scheme, end] of [["dark", "-dark"], ["light", ""]]) {
      await commands.prefers(scheme);
      await page.screenshot({ path: `${path}${end}.png` });
    }
  },
};

async function answer([name, ...given]) {
  try {
    return { ok: await commands[name](...given) };
  } catch (error) {
    return { error: stripVTControlCharacters(error.message) };
  }
}

// Closing the browser also ends a command that would never end by itself.
const lines = createInterface({ input: process.stdin }).once("close", () => browser.close());
for await (const line of lines) {
  console.log(JSON.stringify(await answer(JSON.parse(line))));
}
