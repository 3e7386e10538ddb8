//! What jobs print, by command: a real agent, real commands, both streams.

use crate::common::{Cluster, PATIENCE, Ran, STEADY, Sandbox, finish};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Whoever is waited for looks often.
const EAGER: &[&str] = &["--job-poll-interval", "100ms", "--job-idle-interval", "500ms"];

struct Bench<'a> {
    sandbox: &'a Sandbox,
    store: String,
    cluster: Cluster<'a>,
}

impl<'a> Bench<'a> {
    /// A node, and an agent that runs anything a shell can.
    fn new(sandbox: &'a Sandbox, agent: &[&str]) -> Bench<'a> {
        let store = sandbox.sqlite("t.db");
        let mut cluster = Cluster::new(sandbox, &store, &[STEADY, EAGER].concat());
        cluster.start("pod-a");
        let agent = cluster.start_agent(&[&["--id", "a1", "--allow-command", "/bin/sh **"], agent].concat());
        cluster.wait_log(agent, "takes jobs");
        Bench { sandbox, store, cluster }
    }

    fn tenure(&self, arguments: &[&str]) -> Ran {
        self.sandbox.tenure_on(&self.store, arguments)
    }

    /// Runs this to its end, in one attempt, unless told otherwise.
    fn run(&self, id: &str, attempts: &str, script: &str) -> Value {
        let submit =
            ["job", "submit", "--id", id, "--attempts", attempts, "--backoff", "10ms", "--wait", "--json"];
        let ran = self.tenure(&[&submit[..], &["--", "/bin/sh", "-c", script]].concat());
        ran.json()
    }

    fn logs(&self, arguments: &[&str]) -> Ran {
        self.tenure(&[&["job", "logs"], arguments].concat())
    }
}

#[test]
fn hi1_what_a_command_prints_is_shown_by_job_logs() {
    let sandbox = Sandbox::new();
    let bench = Bench::new(&sandbox, &[]);
    let script = "echo \"try $TENURE_ATTEMPT\"; echo oh dear >&2; printf 'caf\\303\\251\\377'; exit 3";
    assert_eq!(bench.run("two", "2", script)["state"], "failed");
    let said = bench.logs(&["two"]).assert_code(0);
    assert_eq!((said.stdout.as_str(), said.stderr.as_str()), ("try 2\ncaf\u{e9}\u{fffd}", "oh dear\n"));
    assert_eq!(bench.logs(&["two", "--attempt", "1"]).assert_code(0).stdout, "try 1\ncaf\u{e9}\u{fffd}");
    let shown = bench.logs(&["two", "--json"]).assert_code(0).json();
    assert_eq!(
        (&shown["job"], &shown["attempt"], &shown["worker"]),
        (&json!("two"), &json!(2), &json!("a1"))
    );
    assert_eq!(
        (&shown["bytes"], &shown["leftOut"], &shown["last"]),
        (&json!(22), &json!(0), &json!([])),
        "{shown}"
    );
    assert!(shown["first"].as_array().unwrap().contains(&json!({"stream": "stderr", "text": "oh dear\n"})));
    assert!(shown["endedAt"].as_u64() >= shown["startedAt"].as_u64(), "{shown}");
    // Much more than is kept, and nothing at all.
    bench.run("much", "1", "seq 1000000 1999999");
    let much = bench.logs(&["much"]).assert_code(0).assert_says(&["7737856 bytes are left out here"]);
    assert_eq!(much.stdout.len(), 256 * 1024);
    assert!(much.stdout.starts_with("1000000\n1000001\n") && much.stdout.ends_with("1999999\n"));
    bench.run("silent", "1", "true");
    let nothing = bench.logs(&["silent"]).assert_code(0).assert_says(&["job silent", "said nothing"]);
    assert_eq!(nothing.stdout, "");
    assert_eq!(bench.logs(&["silent", "--json"]).assert_code(0).json()["bytes"], 0);
    bench.logs(&["silent", "--follow"]).assert_code(0).assert_says(&["attempt 1 of job silent"]);
    bench.logs(&["two", "--attempt", "3"]).assert_code(10).assert_says(&["no attempt 3", "it had 2", "1, 2"]);
    bench.logs(&["none"]).assert_code(10).assert_says(&["there is no job \"none\" in default"]);
    bench.logs(&["none", "--follow"]).assert_code(10).assert_says(&["there is no job"]);
    bench.logs(&["a/b"]).assert_code(2);
    bench.cluster.finish();
}

#[test]
fn hi1_who_follows_a_job_sees_it_to_its_end() {
    let sandbox = Sandbox::new();
    let bench = Bench::new(&sandbox, &[]);
    let (runs, go) = (sandbox.path("runs"), sandbox.path("go"));
    let script = format!(
        "echo begins; : > {}; while [ ! -e {} ]; do sleep 0.05; done; echo ends >&2",
        runs.display(),
        go.display()
    );
    let follow = || {
        let mut command = sandbox.command();
        command.args(["job", "logs", "long", "--follow", "--store", &bench.store]);
        std::thread::spawn(move || finish(command, PATIENCE))
    };
    bench
        .tenure(&["job", "submit", "--id", "long", "--not-before", "2s", "--", "/bin/sh", "-c", &script])
        .assert_code(0);
    let early = follow();
    let deadline = Instant::now() + PATIENCE;
    while !runs.exists() {
        assert!(Instant::now() < deadline, "it begins");
        std::thread::sleep(Duration::from_millis(20));
    }
    let nothing = bench.logs(&["long"]).assert_code(0);
    assert!(
        nothing.stderr.contains("has said nothing so far") || nothing.stdout == "begins\n",
        "{nothing:?}"
    );
    let late = follow();
    std::fs::write(&go, "").unwrap();
    for (who, followed) in [("early", early), ("late", late)] {
        let ran = followed.join().unwrap().assert_code(0);
        assert_eq!(ran.stdout, "begins\n", "{who}");
        assert!(ran.stderr.ends_with("ends\n"), "{who}: {}", ran.stderr);
    }
    bench.cluster.finish();
}

#[test]
fn what_is_secret_is_not_kept_and_a_command_that_takes_too_long_is() {
    let sandbox = Sandbox::new();
    let mut bench = Bench::new(&sandbox, &["--no-output", "--queue", "secret"]);
    let open =
        bench.cluster.start_agent(&["--id", "a2", "--queue", "default", "--allow-command", "/bin/sh **"]);
    bench.cluster.wait_log(open, "takes jobs");
    let submit =
        ["job", "submit", "--id", "keys", "--queue", "secret", "--wait", "--", "/bin/sh", "-c", "echo hush"];
    bench.tenure(&submit).assert_code(0);
    assert_eq!(bench.logs(&["keys"]).assert_code(0).stdout, "");
    let script = "trap '' TERM; echo begins; sleep 100 & echo waits; wait; wait";
    let submit = ["job", "submit", "--id", "slow", "--timeout", "1s", "--attempts", "1", "--wait", "--"];
    let ran = bench.tenure(&[&submit[..], &["/bin/sh", "-c", script]].concat());
    assert_eq!(ran.code, Some(1), "{ran:?}");
    // It is written beside the result, a moment later at most.
    let said = bench.logs(&["slow", "--follow"]).assert_code(0);
    assert_eq!(said.stdout, "begins\nwaits\n", "{}", said.stderr);
    bench.cluster.finish();
}
