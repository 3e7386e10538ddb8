//! `tenure lock` as scripts use it: trying once, a store that is away, locks within locks, who holds what.
#![cfg(target_os = "linux")]

use crate::common::net::Server;
use crate::common::{Killed, PATIENCE, Ran, Sandbox, finish, program};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

struct Place(Sandbox);

impl Place {
    fn command(&self, options: &[&str], script: &str) -> Command {
        let mut command = self.0.command();
        command.args(["lock", "--store", &self.0.sqlite("lock.db")]).args(options);
        command.args(["--", "sh", "-c", script]);
        command
    }

    fn run(&self, options: &[&str], script: &str) -> Ran {
        finish(self.command(options, script), PATIENCE)
    }

    /// Somebody who holds a lock until it is dropped.
    fn held(&self, name: &str, node: &str) -> Killed {
        let flag = self.0.path(&format!("{name}.held"));
        let script = format!("echo > {}; exec sleep 600", flag.display());
        let mut command = self.command(&["--name", name, "--node", node], &script);
        let holder = Killed(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        let deadline = Instant::now() + PATIENCE;
        while !flag.exists() {
            assert!(Instant::now() < deadline, "{name} is not had");
            std::thread::sleep(Duration::from_millis(10));
        }
        holder
    }
}

#[test]
fn lk1_a_lock_that_is_tried_once_is_had_if_it_is_free() {
    let place = Place(Sandbox::new());
    for _ in 0..5 {
        let ran = place.run(&["--timeout", "0s"], "echo mine").assert_code(0);
        assert_eq!(ran.stdout, "mine\n");
    }
    // Not much time is as good as none.
    assert_eq!(place.run(&["--timeout", "1ms"], "echo mine").assert_code(0).stdout, "mine\n");
}

#[test]
fn lk1_a_lock_that_is_held_says_who_holds_it_since_when() {
    let place = Place(Sandbox::new());
    let _holder = place.held("nightly", "pod-b");
    let began = Instant::now();
    let ran = place.run(&["--name", "nightly", "--timeout", "0s"], "echo never");
    assert_eq!(ran.stdout, "");
    ran.assert_code(11).assert_says(&["the lock nightly is held by pod-b since ", ":", ", epoch 1"]);
    assert!(began.elapsed() < Duration::from_secs(30), "it was not waited for");
    // Under its holder's own name, as two processes of one machine have it.
    let same = ["--name", "nightly", "--node", "pod-b", "--timeout", "300ms"];
    let says = "timed out waiting for the lock nightly (held by pod-b since ";
    place.run(&same, "echo never").assert_code(11).assert_says(&[says, ", epoch 1)"]);
}

/// Nobody watches a lock between two runs of a script, so each run would have to watch it for a whole expiry.
#[test]
fn a_lock_whose_holder_crashed_long_ago_is_had_in_less_than_an_expiry() {
    let place = Place(Sandbox::new());
    drop(place.held("nightly", "pod-b"));
    let soon = ["--name", "nightly", "--timeout", "5s"];
    place.run(&soon, "echo never").assert_code(11);
    let database = rusqlite::Connection::open(place.0.path("lock.db")).unwrap();
    let aged = database.execute(
        "UPDATE object SET modified_ms = modified_ms - 60000 WHERE key LIKE '%/lock-nightly/seat.json'",
        [],
    );
    assert_eq!(aged.unwrap(), 1);
    assert_eq!(place.run(&soon, "echo mine").assert_code(0).stdout, "mine\n");
}

#[test]
fn lk2_a_store_that_cannot_be_reached_is_an_error_of_its_own() {
    let sandbox = Sandbox::new();
    let silent = Server::silent();
    let run = |url: &str, options: &[&str]| {
        let mut command = sandbox.command();
        command.args(["lock", "--store", "s3://bucket/prefix"]).args(options).args(["--", "echo", "never"]);
        command.env("AWS_ACCESS_KEY_ID", "key").env("AWS_SECRET_ACCESS_KEY", "secret");
        command.env("AWS_REGION", "us-east-1").env("AWS_ENDPOINT_URL", url);
        let ran = finish(command, PATIENCE);
        assert_eq!(ran.stdout, "");
        ran.assert_code(4).assert_says(&["store"]);
    };
    // Nobody listens there, or somebody does and never answers: with a limit, without, and tried once.
    for url in ["http://127.0.0.1:1", &silent.url()] {
        for options in [&[][..], &["--timeout", "0s"], &["--timeout", "500ms"]] {
            run(url, options);
        }
    }
}

#[test]
fn lk3_a_lock_inside_the_same_lock_is_refused_and_another_is_had() {
    let place = Place(Sandbox::new());
    let inner = |name: &str| {
        let (me, store) = (program().display().to_string(), place.0.sqlite("lock.db"));
        format!("{me} lock --name {name} --store {store} -- echo inside")
    };
    let ran = place.run(&["--name", "a"], &inner("a")).assert_code(2);
    assert_eq!(ran.stdout, "");
    ran.assert_says(&["the lock a is already held", "never end"]);
    assert_eq!(place.run(&["--name", "a"], &inner("b")).assert_code(0).stdout, "inside\n");
    // Also two levels down.
    let deep = inner("b").replace("echo inside", &inner("a"));
    place.run(&["--name", "a"], &deep).assert_code(2).assert_says(&["the lock a is already held"]);
    // The same file, named from where it is.
    let mut command = place.0.command();
    command.current_dir(place.0.home());
    command.args(["lock", "--store", "sqlite:lock.db", "--name", "a", "--", "sh", "-c", &inner("a")]);
    finish(command, PATIENCE).assert_code(2).assert_says(&["the lock a is already held"]);
}

#[test]
fn lk3_ls_shows_the_locks_that_are_held() {
    let place = Place(Sandbox::new());
    let store = place.0.sqlite("lock.db");
    let ls =
        |more: &[&str]| place.0.tenure([&["lock", "ls", "--store", &store], more].concat()).assert_code(0);
    assert_eq!(ls(&[]).stdout, "no locks are held in default\n");
    assert!(!place.0.path("lock.db").exists(), "looking makes nothing");
    place.run(&["--name", "free"], "true").assert_code(0);
    let _one = place.held("nightly", "pod-a");
    let two = place.held("weekly", "pod-b");
    let shown = ls(&[]).stdout;
    let rows: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["LOCK", "HOLDER", "AGE", "EPOCH", "STATE"]);
    assert_eq!(
        (rows[1][..2].to_vec(), rows[2][..2].to_vec()),
        (vec!["nightly", "pod-a"], vec!["weekly", "pod-b"])
    );
    assert!(rows.len() == 3 && rows[1].ends_with(&["1", "live"]), "{shown}");
    let json = ls(&["--json"]).json();
    assert_eq!(json["locks"][1]["holder"], "pod-b");
    assert!(json["locks"][1]["since"].is_string() && json["locks"][1]["epoch"] == 1, "{json}");
    // A holder that was killed is seen not to renew.
    drop(two);
    assert_eq!(ls(&["--json"]).json()["locks"][1]["state"], "silent");
    let held = place.0.tenure(["leader", "--lock", "nightly", "--store", &store]).assert_code(0);
    assert_eq!(held.stdout, "pod-a\n");
    // One that is damaged hides no other, and is told at once by whoever wants it.
    let database = rusqlite::Connection::open(place.0.path("lock.db")).unwrap();
    let spoilt =
        database.execute("UPDATE object SET body = x'7b' WHERE key LIKE '%/lock-free/seat.json'", []);
    assert_eq!(spoilt.unwrap(), 1);
    let locks = ls(&["--json"]).json()["locks"].clone();
    assert_eq!((&locks[0]["name"], &locks[0]["state"]), (&"free".into(), &"unreadable".into()), "{locks}");
    assert_eq!(locks.as_array().unwrap().len(), 3);
    place
        .run(&["--name", "free"], "true")
        .assert_code(6)
        .assert_says(&["lock-free/seat.json", "cannot be read"]);
}
