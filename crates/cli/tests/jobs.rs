//! Jobs and queues by command, from anywhere.

use crate::common::{Cluster, PATIENCE, Ran, STEADY, Sandbox};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

struct Bench {
    sandbox: Sandbox,
    store: String,
}

impl Bench {
    fn new() -> Bench {
        let sandbox = Sandbox::new();
        let store = sandbox.sqlite("t.db");
        Bench { sandbox, store }
    }

    fn tenure(&self, line: &str) -> Ran {
        self.sandbox.tenure_on(&self.store, &line.split(' ').collect::<Vec<_>>())
    }

    fn json(&self, line: &str) -> Value {
        self.tenure(&format!("{line} --json")).assert_code(0).json()
    }

    fn until(&self, line: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let said = self.json(line);
            if wanted(&said) {
                return said;
            }
            assert!(Instant::now() < deadline, "{said:#}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// It succeeded and printed all of this.
fn prints(ran: Ran, words: &[&str]) {
    let ran = ran.assert_code(0);
    for word in words {
        assert!(ran.stdout.contains(word), "{word:?} is not in:\n{}", ran.stdout);
    }
}

#[test]
fn su4_what_is_submitted_while_nobody_leads_waits_and_can_be_called_off() {
    let bench = Bench::new();
    let ran = bench
        .tenure("job submit --kind send --id mail-7 --queue mail --priority 7 --payload hello")
        .assert_code(0);
    assert_eq!(ran.stdout, "submitted job mail-7\n");
    let again = bench.json("job submit --kind send --id mail-7");
    assert_eq!(again["outcome"], "existed");
    let job = bench.json("job show mail-7");
    let facts = (&job["state"], &job["kind"], &job["queue"], &job["priority"]);
    assert_eq!(facts, (&json!("queued"), &json!("send"), &json!("mail"), &json!(7)), "{job:#}");
    prints(bench.tenure("job show mail-7"), &["queue      mail, priority 7", "has not taken it up"]);
    prints(bench.tenure("job cancel mail-7"), &["asked the leader to cancel job mail-7"]);
    bench.tenure("job cancel mail-8").assert_code(10);
    let mut cluster = Cluster::new(&bench.sandbox, &bench.store, STEADY);
    cluster.start_all(&["pod-a"]);
    bench.until("job show mail-7", |job| job["state"] == "cancelled");
    assert_eq!(bench.json("job ls --queue mail")["total"], 1);
    assert_eq!(bench.json("job ls --queue mail --open")["total"], 0);
    assert_eq!(bench.json("job ls --kind other")["total"], 0);
    cluster.finish();
}

#[test]
fn qu2_a_queue_is_limited_paused_and_resumed_by_command() {
    let bench = Bench::new();
    prints(bench.tenure("queue ls"), &["no queues in default"]);
    bench.tenure("queue show mail").assert_code(10);
    prints(bench.tenure("queue set mail --concurrency 4"), &["queue mail is active", "4"]);
    prints(bench.tenure("queue pause mail"), &["queue mail is paused", "4"]);
    bench.tenure("job submit --kind send --queue mail").assert_code(0);
    bench.tenure("job submit --kind send").assert_code(0);
    let queues = bench.json("queue ls");
    let told: Vec<_> = queues["queues"]
        .as_array()
        .unwrap()
        .iter()
        .map(|queue| {
            (queue["queue"].as_str().unwrap(), &queue["waiting"], &queue["paused"], &queue["concurrency"])
        })
        .collect();
    let (no, yes, one, four) = (json!(false), json!(true), json!(1), json!(4));
    assert_eq!(told, [("default", &one, &no, &Value::Null), ("mail", &one, &yes, &four)]);
    prints(bench.tenure("queue ls"), &["mail (paused)", "any number"]);
    let mut cluster = Cluster::new(&bench.sandbox, &bench.store, STEADY);
    cluster.start_all(&["pod-a"]);
    let listed = bench.until("job ls --queue mail", |listed| {
        listed["jobs"][0]["reason"].as_str().is_some_and(|reason| reason.contains("paused"))
    });
    assert_eq!(listed["jobs"][0]["reason"], "queue mail is paused");
    assert_eq!(bench.json("queue resume mail")["paused"], false);
    assert_eq!(bench.json("queue set mail --concurrency none")["concurrency"], Value::Null);
    bench.until("job ls --queue mail", |listed| listed["jobs"][0]["reason"] != "queue mail is paused");
    cluster.finish();
}

#[test]
fn what_cannot_be_a_job_or_a_queue_is_told_with_its_rule() {
    let bench = Bench::new();
    for (line, says) in [
        ("job submit --kind a/b", &["kind", "a/b"][..]),
        ("job submit --kind send --queue a/b", &["queue", "a/b"]),
        ("job submit --kind send --priority 10", &["--priority", "10", "0..=9"]),
        ("job submit --kind send --not-before tomorrow", &["--not-before", "tomorrow", "10m"]),
        ("job submit --kind send --not-before 400d", &["--not-before", "366d"]),
        ("job submit --kind send --timeout 90d", &["--timeout", "30d"]),
        ("job submit --kind send --capability a/b", &["--capability", "a/b"]),
        ("job submit -- date", &["job.command", "date", "full path"]),
        ("job submit --http ftp://h/", &["job.http.url", "ftp://h/"]),
        ("job submit --kind command --payload x", &["job"]),
        ("job submit --kind send --http http://h/", &["--kind", "--http"]),
        ("job submit --queue mail", &["--kind", "--http"]),
        ("queue set mail --concurrency 0", &["concurrency", "0", "1 to 100000"]),
        ("queue set mail --concurrency many", &["--concurrency", "many", "none"]),
        ("queue pause a/b", &["NAME", "a/b"]),
        ("job ls --dead --open", &["--dead", "--open"]),
    ] {
        bench.tenure(line).assert_code(2).assert_says(says);
    }
    let past = bench.tenure("job submit --kind send --not-before 2020-01-01T00:00:00Z");
    prints(past, &["submitted job"]);
}
