//! A newcomer's path: the commands of the README's "Run it", as they stand there, and what the browser shows meanwhile.
//!
//! `cargo xtask newcomer` plays it in a fresh clone.

use crate::common::browser::Browser;
use rustix::process::{Pid, Signal, kill_process_group};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Where the clone is; without it the workspace itself is used.
const CLONE: &str = "TENURE_NEWCOMER_CLONE";

fn root() -> PathBuf {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    std::env::var_os(CLONE).map_or(workspace, PathBuf::from)
}

/// What the section tells to type, in order.
fn commands(readme: &str) -> Vec<String> {
    let section = readme.split("\n## ").find(|section| section.starts_with("Run it\n")).unwrap();
    section.lines().filter_map(|line| line.strip_prefix("$ ")).map(str::to_owned).collect()
}

/// One terminal. Whatever runs in it ends with the test.
struct Terminal(Child);

impl Terminal {
    fn open(command: &str, home: &Path) -> Terminal {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("exec {command}")]).current_dir(root()).env("HOME", home);
        // Nothing of the developer's own settings but where the compiler lives.
        let user = PathBuf::from(std::env::var_os("HOME").unwrap_or_default());
        for (variable, folder) in [("CARGO_HOME", ".cargo"), ("RUSTUP_HOME", ".rustup")] {
            shell.env(variable, std::env::var_os(variable).map_or(user.join(folder), PathBuf::from));
        }
        shell.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::inherit()).process_group(0);
        Terminal(shell.spawn().unwrap())
    }

    fn wait(mut self) {
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = kill_process_group(Pid::from_child(&self.0), Signal::KILL);
        let _ = self.0.wait();
    }
}

#[test]
#[ignore = "needs chromium, and playwright-core from npm"]
fn the_first_minutes_go_as_the_readme_says() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let commands = commands(&readme);
    let [first, second, third, kill, ..] = commands.as_slice() else { panic!("{commands:?}") };
    let home = tempfile::Builder::new().prefix("tenure-newcomer-").tempdir().unwrap();
    let browser = Browser::start(1280, 1400);

    let _first = Terminal::open(first, home.path());
    let pages = ["http://127.0.0.1:7420", "http://127.0.0.1:7421"];
    assert!(pages.iter().all(|page| readme.contains(page)), "the README names the pages");
    crate::common::net::listens("127.0.0.1:7420", std::time::Duration::from_secs(900));
    browser.open(pages[0]);
    browser.shows("link", "live");
    browser.shows("leader-name", "pod-a");
    browser.shows("leader-epoch", "epoch 1");
    browser.picture("newcomer-1-first-node");

    let (_second, _third) = (Terminal::open(second, home.path()), Terminal::open(third, home.path()));
    crate::common::net::listens("127.0.0.1:7421", crate::common::PATIENCE);
    browser.open(pages[1]);
    browser.shows("link", "live");
    browser.shows("leader-name", "pod-a");
    browser.shows("nodes", "pod-c");
    browser.picture("newcomer-2-three-nodes");

    Terminal::open(kill, home.path()).wait();
    browser.shows("leader-epoch", "epoch 2");
    browser.shows("terms", "pod-a");
    browser.shows("events", "leader_down");
    let leader = browser.run("return document.getElementById('leader-name').innerText");
    assert!(leader == "pod-b" || leader == "pod-c", "{leader}");
    browser.picture("newcomer-3-another-leads");
}
