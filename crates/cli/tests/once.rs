//! `tenure once`: the line that can stand on every host.
#![cfg(target_os = "linux")]

use crate::common::{FAST, Killed, PATIENCE, Ran, Sandbox, finish};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

struct Place(Sandbox);

impl Place {
    /// The command adds a line to the file `ran`.
    fn command(&self, key: &str, options: &[&str], script: &str) -> Command {
        let mut command = self.0.command();
        command.args(["once", "--store", &self.0.sqlite("once.db"), "--key", key]).args(options).args(FAST);
        command.args([
            "--",
            "sh",
            "-c",
            &format!("echo $TENURE_ONCE >> {}; {script}", self.0.path("ran").display()),
        ]);
        command
    }

    fn run(&self, key: &str, options: &[&str], script: &str) -> Ran {
        finish(self.command(key, options, script), PATIENCE)
    }

    fn runs(&self) -> usize {
        std::fs::read_to_string(self.0.path("ran")).unwrap_or_default().lines().count()
    }

    /// One that runs the command until it is dropped.
    fn at_work(&self, key: &str, options: &[&str]) -> Killed {
        let before = self.runs();
        let mut command = self.command(key, options, "exec sleep 600");
        let runner = Killed(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        let deadline = Instant::now() + PATIENCE;
        while self.runs() == before {
            assert!(Instant::now() < deadline, "{key} does not run");
            std::thread::sleep(Duration::from_millis(10));
        }
        runner
    }
}

#[test]
fn on1_of_several_at_the_same_moment_one_runs_it_and_the_others_end_well() {
    let place = Place(Sandbox::new());
    for round in 1..=4 {
        let key = format!("nightly-{round}");
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| place.run(&key, &[], "true").assert_code(0));
            }
        });
        assert_eq!(place.runs(), round, "once for each key");
    }
    let ran = place.run("nightly-1", &[], "exit 3").assert_code(0);
    assert_eq!((place.runs(), ran.stdout.as_str(), ran.stderr.as_str()), (4, "", ""), "cron sends no mail");
}

#[test]
fn on1_who_waits_ends_as_the_command_did_and_a_key_is_used_for_as_long_as_it_is_kept() {
    let place = Place(Sandbox::new());
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| place.run("migrate", &["--wait"], "sleep 0.5; exit 7").assert_code(7));
        }
    });
    assert_eq!(place.runs(), 1);
    place.run("migrate", &["--wait"], "true").assert_code(7);
    place.run("migrate", &[], "true").assert_code(0);
    assert_eq!(place.runs(), 1);
    std::thread::sleep(Duration::from_millis(1100));
    place.run("migrate", &["--keep", "1s"], "exit 5").assert_code(5);
    assert_eq!(place.runs(), 2, "it was kept for a second only");
}

#[test]
fn on1_another_that_is_at_it_is_enough_unless_one_waits() {
    let place = Place(Sandbox::new());
    let runner = place.at_work("report", &[]);
    place.run("report", &[], "true").assert_code(0);
    assert_eq!(place.runs(), 1);
    drop(runner);
}

#[test]
fn on2_without_retry_a_key_is_lost_with_its_runner_and_says_so() {
    let place = Place(Sandbox::new());
    drop(place.at_work("report", &[]));
    let says = ["the key report is lost", "--retry"];
    place.run("report", &["--wait"], "true").assert_code(12).assert_says(&says);
    place.run("report", &[], "true").assert_code(12).assert_says(&says);
    assert_eq!(place.runs(), 1, "nobody ran it again");
    place.run("report", &["--retry"], "true").assert_code(0);
    assert_eq!(place.runs(), 2);
    place.run("report", &["--retry"], "true").assert_code(0);
    assert_eq!(place.runs(), 2, "it is done now");
}

#[test]
fn on2_with_retry_one_of_those_who_wait_runs_it_when_the_runner_dies() {
    let place = Place(Sandbox::new());
    let runner = place.at_work("report", &["--retry"]);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| place.run("report", &["--wait", "--retry"], "exit 4").assert_code(4));
        }
        std::thread::sleep(Duration::from_millis(500));
        drop(runner);
    });
    assert_eq!(place.runs(), 2, "one of them");
}

#[test]
fn a_key_that_cannot_be_one_is_told_with_its_rule() {
    let place = Place(Sandbox::new());
    place.run("a/b", &[], "true").assert_code(2).assert_says(&["key", "a/b"]);
    place.run("a", &["--keep", "0s"], "true").assert_code(2).assert_says(&["--keep", "1s to 366d"]);
    assert_eq!(place.runs(), 0);
}
