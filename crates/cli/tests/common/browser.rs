//! A real browser: Debian's Chromium, driven by Playwright in a Node program of ours, `browser.mjs`.

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Nothing on a page takes longer to come about.
const PATIENCE: Duration = Duration::from_secs(60);

/// One page of a Chromium of its own; both end with it.
pub struct Browser {
    bridge: Child,
    answers: Receiver<String>,
    _home: tempfile::TempDir,
}

impl Browser {
    /// Node, Chromium and two packages of npm must be there; `cargo xtask test` sees to it.
    pub fn start(width: u32, height: u32) -> Browser {
        let npm = std::env::var_os("TENURE_TEST_NPM");
        assert!(npm.is_some(), "TENURE_TEST_NPM is not set; `cargo xtask test` sets it");
        let home = tempfile::Builder::new().prefix("tenure-browser-").tempdir().unwrap();
        // A browser draws with all the processor there is; the nodes it shows come first.
        let mut bridge = Command::new("nice")
            .args(["-n", "10", "node", "--input-type=module", "--eval", include_str!("browser.mjs")])
            .envs([("HOME", home.path()), ("TMPDIR", home.path())])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        let lines = BufReader::new(bridge.stdout.take().unwrap()).lines();
        let (heard, answers) = channel();
        std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| heard.send(line)));
        let browser = Browser { bridge, answers, _home: home };
        browser.resize(width, height);
        browser
    }

    fn call(&self, command: Value) -> Value {
        // A bridge that has ended takes no command, and gives no answer either.
        let _ = writeln!(self.bridge.stdin.as_ref().unwrap(), "{command}");
        let line = self.answers.recv_timeout(PATIENCE);
        let line = line.unwrap_or_else(|error| panic!("the browser does not answer {command}: {error}"));
        let mut answer: Value = serde_json::from_str(&line).unwrap();
        assert!(answer["error"].is_null(), "{command}: {}", answer["error"].as_str().unwrap_or(""));
        answer["ok"].take()
    }

    pub fn open(&self, url: &str) {
        self.call(json!(["open", url]));
    }

    /// What a function body returns in the page.
    pub fn run(&self, script: &str) -> Value {
        self.call(json!(["run", script]))
    }

    /// Waits until an expression of the page is true.
    pub fn until(&self, what: &str, expression: &str) {
        let until = Instant::now() + PATIENCE;
        while self.run(&format!("return Boolean({expression})")) != true {
            if Instant::now() > until {
                let page = self.run("return document.body.innerText");
                let page = page.as_str().unwrap_or("");
                panic!("the page never showed {what}:\n{page}\n{:?}", self.complaints());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits for a text in an element.
    pub fn shows(&self, id: &str, text: &str) {
        let found = format!("document.getElementById({}).innerText.includes({})", json!(id), json!(text));
        self.until(&format!("{text:?} in {id}"), &found);
    }

    /// As a user's mouse does it, once the element can be clicked.
    pub fn click(&self, css: &str) {
        self.call(json!(["click", css]));
    }

    pub fn type_into(&self, css: &str, text: &str) {
        self.call(json!(["type", css, text]));
    }

    /// Presses a key on the element that has the focus: `Tab`, `Enter`, `Escape`.
    pub fn press(&self, key: &str) {
        self.call(json!(["press", key]));
    }

    /// As a user has it who likes it dark, or light.
    pub fn prefers(&self, scheme: &str) {
        self.call(json!(["prefers", scheme]));
    }

    pub fn resize(&self, width: u32, height: u32) {
        self.call(json!(["resize", width, height]));
    }

    /// What axe-core finds on the page that keeps people from using it with a keyboard or a screen reader.
    pub fn barriers(&self) -> Vec<String> {
        serde_json::from_value(self.call(json!(["barriers"]))).unwrap()
    }

    /// What the browser complains about: scripts that fail, rules of the page that are broken.
    pub fn complaints(&self) -> Vec<String> {
        serde_json::from_value(self.call(json!(["complaints"]))).unwrap()
    }

    /// Kept as the test's output, to be looked at, in light and in dark.
    pub fn picture(&self, name: &str) {
        let folder = concat!(env!("CARGO_TARGET_TMPDIR"), "/../screenshots");
        self.call(json!(["picture", format!("{folder}/{name}")]));
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The bridge closes the browser and ends when its stdin closes. It has ended when its stdout closes.
        drop(self.bridge.stdin.take());
        while self.answers.recv_timeout(Duration::from_secs(10)).is_ok() {}
        // A browser whose bridge was killed ends by itself.
        let _ = kill_process_group(Pid::from_child(&self.bridge), Signal::KILL);
        let _ = self.bridge.wait();
    }
}
