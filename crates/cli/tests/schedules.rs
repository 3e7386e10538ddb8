//! Schedules as real processes: `tenure run`, `tenure agent`, `tenure apply`, `tenure schedule`, `tenure job ls`, `tenure job show`.

use crate::common::{Cluster, PATIENCE, Ran, STEADY, Sandbox};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Agents look often: a test waits for what they do.
const EAGER: &[&str] = &["--job-poll-interval", "100ms", "--job-idle-interval", "500ms"];

/// A request that says a later leader sent it.
const FORGED: &str = r#"{"url": "http://h/", "headers": {"Tenure-Epoch": "9"}}"#;

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

    fn cluster(&self) -> Cluster<'_> {
        Cluster::new(&self.sandbox, &self.store, &[STEADY, EAGER].concat())
    }

    fn tenure(&self, arguments: &[&str]) -> Ran {
        self.sandbox.tenure_on(&self.store, arguments)
    }

    fn json(&self, arguments: &[&str]) -> Value {
        self.tenure(&[arguments, &["--json"]].concat()).assert_code(0).json()
    }

    /// The jobs of a schedule, once they are as wanted.
    fn until_jobs(&self, schedule: &str, wanted: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let jobs = self.json(&["job", "ls", "--schedule", schedule])["jobs"].as_array().unwrap().clone();
            if wanted(&jobs) {
                return jobs;
            }
            assert!(Instant::now() < deadline, "{jobs:#?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn until_state(&self, schedule: &str, state: &str) -> Value {
        let jobs = self.until_jobs(schedule, |jobs| jobs.iter().any(|job| job["state"] == state));
        jobs.into_iter().find(|job| job["state"] == state).unwrap()
    }

    /// A program that runs until the file `go` is there; it says that it runs by the file `runs`.
    fn gate(&self) -> String {
        let path = self.sandbox.write(
            "gate",
            "#!/bin/sh\n: > \"$1/runs\"\ni=0\nwhile [ ! -e \"$1/go\" ] && [ $i -lt 1200 ]; do sleep 0.05; i=$((i+1)); done\n",
        );
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// A schedule by hand whose job runs until [`go`](Bench::go).
    fn add_gate(&self, id: &str) {
        let check = json!({"name": "gate", "kind": "command", "program": self.gate(), "timeout": "50s",
            "args": [self.sandbox.home().display().to_string()]});
        let arguments =
            ["schedule", "add", id, "--manual", "--timeout", "60s", "--check", &check.to_string()];
        self.tenure(&arguments).assert_code(0);
    }

    fn go(&self) {
        self.sandbox.write("go", "");
    }

    fn until_file(&self, name: &str) {
        let deadline = Instant::now() + PATIENCE;
        while !self.sandbox.path(name).exists() {
            assert!(Instant::now() < deadline, "no file {name}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn an_agent_does_what_a_file_schedules_and_jobs_tell_what_came_of_it() {
    let bench = Bench::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let file = bench.sandbox.write(
        "polls.yaml",
        &format!(
            "- id: web\n  every: 1s\n  partition: eu\n  checks:\n    - {{name: port, kind: tcp, host: 127.0.0.1, port: {port}}}\n\
             - id: down\n  every: 1s\n  attempts: 1\n  failAfter: 2\n  checks:\n    - {{name: port, kind: tcp, host: 127.0.0.1, port: {closed}}}\n\
             - id: far\n  every: 1s\n  partition: mars\n  ttl: 1h\n  checks:\n    - {{name: name, kind: dns, host: localhost}}\n"
        ),
    );
    let dry = bench.json(&["apply", "-f", &file, "--dry-run"]);
    assert_eq!((&dry["created"], &dry["dryRun"]), (&json!(3), &json!(true)));
    assert!(!bench.sandbox.path("t.db").exists(), "looking must not make a store");
    let applied = bench.json(&["apply", "-f", &file]);
    assert_eq!((&applied["created"], &applied["schedules"][0]["outcome"]), (&json!(3), &json!("created")));
    let again = bench.tenure(&["apply", "-f", &file]).assert_code(0);
    assert!(
        again.stdout.contains("unchanged web") && again.stdout.contains("3 unchanged"),
        "{}",
        again.stdout
    );

    let mut cluster = bench.cluster();
    let node = cluster.start("pod-a");
    let agent = cluster.start_agent(&["--id", "agent-1", "--partition", "eu"]);
    cluster.wait_log(agent, "agent agent-1 takes jobs");

    let done = bench.until_state("web", "succeeded");
    assert_eq!((&done["worker"], &done["checks"][0]["ok"]), (&json!("agent-1"), &json!(true)));
    let job = done["id"].as_str().unwrap();
    let shown = bench.json(&["job", "show", job]);
    assert_eq!((&shown["checks"][0]["name"], &shown["schedule"]), (&json!("port"), &json!("web")));
    assert_eq!(shown["due"], json!(job.rsplit('-').next().unwrap().parse::<u64>().unwrap()));
    let text = bench.tenure(&["job", "show", job]).assert_code(0).stdout;
    assert!(text.contains("check      port: well after"), "{text}");

    // The other one fails, which is told once with the node's events.
    let failing = cluster.event(0, node, "check_failing");
    assert_eq!(
        (failing.text("schedule"), failing.text("check"), failing.number("inARow")),
        ("down", "port", 2)
    );
    let failed = bench.until_state("down", "failed");
    assert!(failed["checks"][0]["detail"].as_str().unwrap().contains("refused"), "{failed}");

    // Nobody is on Mars, and the job says so.
    let waits = bench.until_jobs("far", |jobs| {
        jobs.iter().any(|job| job["reason"] == "no suitable worker is in partition mars")
    });
    let text = bench.tenure(&["job", "show", waits[0]["id"].as_str().unwrap()]).assert_code(0).stdout;
    assert!(text.contains("reason     no suitable worker is in partition mars"), "{text}");
    let _other = cluster.start_agent(&["--id", "agent-2", "--partition", "mars"]);
    assert_eq!(bench.until_state("far", "succeeded")["worker"], json!("agent-2"));

    let table = bench.tenure(&["job", "ls", "--limit", "1000"]).assert_code(0).stdout;
    assert!(table.contains("RESULT OR REASON") && table.contains(job), "{table}");
    let shown = bench.json(&["schedule", "show", "down"]);
    assert_eq!(shown["checks"][0]["failing"], json!(true), "{shown}");
    assert!(shown["checks"][0]["failingSince"].as_u64() > Some(1_700_000_000_000), "{shown}");
    let text = bench.tenure(&["schedule", "show", "down"]).assert_code(0).stdout;
    let line = text.lines().find(|line| line.starts_with("check      port (tcp): FAILING since 20"));
    assert!(line.is_some_and(|line| line.contains("refused")), "{text}");
    bench.tenure(&["schedule", "show", "web"]).assert_code(0);
    bench.tenure(&["schedule", "list"]).assert_code(0);
    cluster.finish();
}

#[test]
fn an_agent_that_is_told_to_stop_finishes_what_runs() {
    let bench = Bench::new();
    let mut cluster = bench.cluster();
    cluster.start("pod-a");
    let gate = bench.gate();
    let agent = cluster.start_agent(&["--id", "agent-1", "--allow-command", &format!("{gate} *")]);
    bench.add_gate("slow");
    let asked = bench.json(&["schedule", "run-now", "slow", "--name", "one"]);
    assert_eq!((&asked["outcome"], &asked["job"]), (&json!("created"), &json!("slow.run.one")));
    bench.until_file("runs");
    bench.until_jobs("slow", |jobs| jobs[0]["state"] == "running");

    cluster.signal(agent, Signal::TERM);
    cluster.wait_log(agent, "agent agent-1 is draining 1 jobs");
    assert!(cluster.is_running(agent), "it waits for its job");
    // Its schedule can go meanwhile; the job goes on.
    let removed = bench.json(&["schedule", "rm", "slow"]);
    assert_eq!((&removed["outcome"], &removed["openJobs"]), (&json!("removed"), &json!(1)));
    bench.go();
    assert!(cluster.exit(agent).success());
    assert!(cluster.log(agent).contains("agent agent-1 has drained"), "{}", cluster.log(agent));
    let done = bench.until_state("slow", "succeeded");
    assert_eq!((&done["attempt"], &done["worker"]), (&json!(1), &json!("agent-1")));
    let workers = bench.json(&["workers"]);
    assert_eq!(workers["workers"], json!([]), "it has deregistered");
    bench.tenure(&["schedule", "show", "slow"]).assert_code(10).assert_says(&["slow"]);
    cluster.finish();
}

#[test]
fn a_second_signal_ends_an_agent_at_once_and_programs_run_only_where_allowed() {
    let bench = Bench::new();
    let mut cluster = bench.cluster();
    cluster.start("pod-a");
    let agent = cluster.start_agent(&["--id", "agent-1"]);
    cluster.wait_log(agent, "takes jobs");
    bench.add_gate("slow");
    let arguments = ["schedule", "add", "slow", "--replace", "--manual", "--attempts", "1", "--check"];
    let check = json!({"kind": "command", "program": bench.gate(), "args": ["."]}).to_string();
    let changed = bench.json(&[&arguments[..], &[&check]].concat());
    assert_eq!(changed["outcome"], json!("changed"));
    bench.tenure(&["schedule", "run-now", "slow"]).assert_code(0);
    // Nobody is given a command that it does not allow.
    let waits = |jobs: &[Value]| jobs[0]["reason"].as_str().unwrap().starts_with("no suitable worker allows");
    let waiting = bench.until_jobs("slow", waits);
    bench.tenure(&["job", "cancel", waiting[0]["id"].as_str().unwrap()]).assert_code(0);
    assert!(!bench.sandbox.path("runs").exists(), "it did not run");

    let second = bench.tenure(&["agent", "--id", "agent-1"]).assert_code(1);
    assert!(second.stderr.contains("held by another live process"), "{}", second.stderr);
    cluster.signal(agent, Signal::TERM);
    assert!(cluster.exit(agent).success());

    bench.add_gate("gate");
    let agent = cluster.start_agent(&["--id", "agent-2", "--allow-command", &format!("{} *", bench.gate())]);
    bench.tenure(&["schedule", "run-now", "gate"]).assert_code(0);
    bench.until_file("runs");
    cluster.signal(agent, Signal::TERM);
    cluster.wait_log(agent, "is draining");
    // Sooner than this it would be the echo of the first.
    std::thread::sleep(Duration::from_millis(300));
    cluster.signal(agent, Signal::TERM);
    assert_eq!(cluster.exit(agent).code(), Some(143));
    bench.go();
    cluster.finish();
}

#[test]
fn a_file_with_faults_is_told_all_of_them_and_nothing_is_written() {
    let bench = Bench::new();
    let text = "- id: good\n  every: 30s\n  checks: [{name: a, kind: dns, host: h}]\n\
        - id: web\n  every: 0s\n  checks:\n    - {name: a, kind: icmp}\n\
        - id: night\n  cron: '0 25 * * *'\n  checks: [{name: a, kind: dns, host: h}]\n";
    let file = bench.sandbox.write("polls.yaml", text);
    let faults =
        ["line 5: web.every = \"0s\"", "line 7: web.checks[0].kind = \"icmp\"", "line 9: night.cron"];
    bench
        .tenure(&["apply", "-f", &file])
        .assert_code(2)
        .assert_says(&faults)
        .assert_says(&["nothing was written"]);
    let told = bench.tenure(&["apply", "-f", &file, "--json"]).assert_code(2).assert_says(&faults).json();
    let lines: Vec<&Value> = told["errors"].as_array().unwrap().iter().map(|error| &error["line"]).collect();
    assert_eq!(lines, [&json!(5), &json!(7), &json!(9)]);

    let mut command = bench.sandbox.command();
    command.args(["apply", "-f", "-", "--store", &bench.store]).stdin(Stdio::piped());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&ended.stderr).contains("stdin: line 5"), "{ended:?}");

    for (arguments, says) in [
        (&["apply", "-f", "nowhere.yaml"][..], &["nowhere.yaml", "cannot be read"][..]),
        (
            &["schedule", "add", "web", "--every", "0s", "--check", "kind=tcp,host=h"],
            &["web.every = \"0s\"", "port"],
        ),
        (
            &["schedule", "add", "web", "--check", "kind=dns,host=h"],
            &["exactly one of every, cron and manual"],
        ),
        (&["schedule", "add", "web", "--manual", "--check", "dns"], &["--check number 1", "field=value"]),
        (&["schedule", "add", "a/b", "--manual", "--check", "kind=dns,host=h"], &["id", "a/b"]),
        (&["schedule", "add", "web", "--manual", "--zone", "UTC", "--check", "kind=dns,host=h"], &["--cron"]),
        (&["agent", "--id", "a", "--slots", "0"], &["--slots", "1..=256"]),
        (&["agent", "--id", "a", "--partition", "a b"], &["--partition", "a b"]),
        (&["agent", "--id", "a", "--allow-command", "true"], &["--allow-command", "full path"]),
        (&["agent", "--id", "../a"], &["workerId", "../a"]),
        (&["job", "ls", "--state", "lazy"], &["--state", "lazy", "queued"]),
        (&["schedule", "run-now", "web", "--name", "a-b"], &["a-b", "letters and digits"]),
        (
            &["schedule", "add", "web", "--manual", "--check", "kind=command,program=LEVEL=/evil"],
            &["checks[0].program = \"LEVEL=/evil\"", "must be a full path"],
        ),
        (
            &["job", "submit", "--kind", "http", "--payload", FORGED],
            &["http.headers = \"Tenure-Epoch\"", "must not be given"],
        ),
    ] {
        bench.tenure(arguments).assert_code(2).assert_says(says);
    }
    for arguments in
        [&["schedule", "show", "web"][..], &["schedule", "pause", "web"], &["job", "show", "web-1"]]
    {
        bench.tenure(arguments).assert_code(10).assert_says(&["there is no", "web"]);
    }
    assert_eq!(bench.json(&["job", "ls"])["jobs"], json!([]));
    assert_eq!(bench.json(&["schedule", "ls"])["schedules"], json!([]));
    assert_eq!(bench.sandbox.contents().len(), 1, "{:?}", bench.sandbox.contents().keys());
}

#[test]
fn a_name_asks_for_one_job_and_paused_schedules_create_none_by_themselves() {
    let bench = Bench::new();
    let add = ["schedule", "add", "web", "--every", "1s", "--paused", "--check", "kind=dns,host=localhost"];
    assert_eq!(bench.json(&add)["outcome"], json!("created"));
    bench.tenure(&add).assert_code(1).assert_says(&["web", "already"]);
    let list = bench.json(&["schedule", "list"]);
    assert_eq!(
        (&list["schedules"][0]["enabled"], &list["schedules"][0]["next"]),
        (&json!(false), &Value::Null)
    );

    // Nobody leads: it is asked for, and stays so.
    let waits = bench.tenure(&["schedule", "run-now", "web", "--name", "one", "--wait", "100ms", "--json"]);
    assert_eq!(waits.assert_code(1).json()["outcome"], json!("waiting"));
    let mut cluster = bench.cluster();
    cluster.start("pod-a");
    cluster.start_agent(&["--id", "agent-1"]);
    let asked = bench.json(&["schedule", "run-now", "web", "--name", "one"]);
    assert_eq!((&asked["outcome"], &asked["job"]), (&json!("existed"), &json!("web.run.one")));
    let done = bench.until_state("web", "succeeded");
    assert_eq!(done["id"], json!("web.run.one"));
    let again = bench.json(&["schedule", "run-now", "web", "--name", "one"]);
    assert_eq!((&again["outcome"], &again["state"]), (&json!("existed"), &json!("succeeded")));
    bench.tenure(&["schedule", "run-now", "web"]).assert_code(0);
    let jobs = bench.until_jobs("web", |jobs| jobs.iter().all(|job| job["open"] == false));
    assert_eq!(jobs.len(), 2, "nothing but what was asked for: {jobs:#?}");

    assert_eq!(bench.json(&["schedule", "resume", "web"])["outcome"], json!("changed"));
    assert_eq!(bench.json(&["schedule", "resume", "web"])["outcome"], json!("unchanged"));
    bench.until_jobs("web", |jobs| jobs.len() >= 4);
    assert_eq!(bench.json(&["schedule", "pause", "web"])["enabled"], json!(false));
    bench.tenure(&["schedule", "rm", "web"]).assert_code(0);
    bench.tenure(&["schedule", "rm", "web"]).assert_code(10);
    cluster.finish();
}

#[test]
fn cp1_leading_starts_cluster_health_and_the_poll_orchestrator() {
    let bench = Bench::new();
    bench
        .tenure(&["schedule", "add", "web", "--manual", "--check", "kind=dns,host=localhost"])
        .assert_code(0);
    let mut cluster = bench.cluster();
    let node = cluster.start_args("pod-a", &["--no-schedules"]);
    let first = cluster.event(0, node, "process_started");
    assert_eq!(first.text("process"), "ClusterHealth");
    let waits =
        bench.tenure(&["schedule", "run-now", "web", "--wait", "1ms", "--json"]).assert_code(1).json();
    assert_eq!(waits["outcome"], json!("waiting"));
    let started = cluster.history().iter().filter(|said| said.name() == "process_started").count();
    assert_eq!(started, 1, "nothing but what is wanted");
    cluster.wait_log(node, "no jobs are handed out while this node leads");
    cluster.signal(node, Signal::TERM);
    assert!(cluster.exit(node).success());

    // The next leader runs schedules, and does what was asked for before it led.
    let mark = cluster.mark();
    let node = cluster.start("pod-a");
    for process in ["ClusterHealth", "poll-orchestrator"] {
        cluster.wait(mark, process, |said| {
            said.life == node && said.name() == "process_started" && said.text("process") == process
        });
    }
    bench.until_jobs("web", |jobs| jobs.len() == 1);
    cluster.finish();
}

/// What came of the checks of a schedule that is run once, by their names.
fn checks_of(
    bench: &Bench,
    id: &str,
    checks: &[Value],
) -> std::collections::BTreeMap<String, (bool, String)> {
    let mut arguments = vec!["schedule", "add", id, "--manual", "--attempts", "1"];
    let texts: Vec<String> = checks.iter().map(Value::to_string).collect();
    texts.iter().for_each(|text| arguments.extend(["--check", text.as_str()]));
    bench.tenure(&arguments).assert_code(0);
    bench.tenure(&["schedule", "run-now", id]).assert_code(0);
    let jobs = bench.until_jobs(id, |jobs| jobs.iter().any(|job| job["open"] == false));
    let row = |check: &Value| {
        let text = |field: &str| check[field].as_str().unwrap().to_owned();
        (text("name"), (check["ok"].as_bool().unwrap(), text("detail")))
    };
    jobs[0]["checks"].as_array().unwrap().iter().map(row).collect()
}

#[test]
fn an_agent_runs_a_command_only_with_the_arguments_it_allows() {
    let bench = Bench::new();
    let mut cluster = bench.cluster();
    let leader = cluster.start("pod-a");
    cluster.event(0, leader, "became_leader");
    let allowed = ["/bin/echo", "/bin/echo -n 'a b'", "/bin/echo to * only"];
    let allowed: Vec<&str> = allowed.into_iter().flat_map(|one| ["--allow-command", one]).collect();
    let agent = cluster.start_agent(&[&["--id", "agent-1"], &allowed[..]].concat());
    cluster.wait_log(agent, "takes jobs");
    let echo = |name: &str, args: &[&str]| json!({"name": name, "kind": "command", "program": "/bin/echo", "args": args});
    let allowed =
        [echo("none", &[]), echo("exact", &["-n", "a b"]), echo("one", &["to", "everybody", "only"])];
    let told = checks_of(&bench, "echo", &allowed);
    assert!(told.len() == 3 && told.values().all(|(ok, _)| *ok), "{told:?}");
    // One that it does not allow, and the job is not for it.
    for (name, args) in [("split", &["-n", "a", "b"][..]), ("option", &["to", "-e", "only"])] {
        let check = [allowed[0].clone(), echo("other", args)].map(|check| check.to_string());
        let add = ["schedule", "add", name, "--manual", "--check", &check[0], "--check", &check[1]];
        bench.tenure(&add).assert_code(0);
        bench.tenure(&["schedule", "run-now", name]).assert_code(0);
        let reason = format!("no suitable worker allows /bin/echo and /bin/echo {}", args.join(" "));
        bench.until_jobs(name, |jobs| jobs.iter().any(|job| job["reason"] == reason));
    }
    cluster.finish();
}

#[test]
fn a_command_sees_nothing_of_the_agents_environment_but_what_is_passed() {
    let bench = Bench::new();
    let mut cluster = bench.cluster();
    for name in [
        "AWS_SECRET_ACCESS_KEY",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "AZURE_STORAGE_KEY",
        "TENURE_HTTP_TOKEN",
        "OTHER",
    ] {
        cluster = cluster.env(name, "MARKED-and-long-enough-for-a-token");
    }
    cluster = cluster.env("PASSED", "on").env("TZ", "UTC").env("TENURE_JOB", "forged");
    let leader = cluster.start("pod-a");
    cluster.event(0, leader, "became_leader");
    let script = bench
        .sandbox
        .write("show", "#!/bin/sh\nenv > \"${0%/*}/seen.new\" && mv \"${0%/*}/seen.new\" \"${0%/*}/seen\"\n");
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let agent = cluster.start_agent(&[
        "--id",
        "agent-1",
        "--allow-command",
        &script,
        "--env",
        "PASSED",
        "--env",
        "ABSENT",
        "--env",
        "TENURE_JOB",
    ]);
    cluster.wait_log(agent, "takes jobs");
    let told = checks_of(&bench, "show", &[json!({"name": "show", "kind": "command", "program": script})]);
    assert!(told["show"].0, "{told:?}");
    let seen = std::fs::read_to_string(bench.sandbox.path("seen")).unwrap();
    assert!(!seen.contains("MARKED") && !seen.contains("forged"), "{seen}");
    let mut names: Vec<&str> =
        seen.lines().filter_map(|line| line.split_once('=')).map(|(name, _)| name).collect();
    // A shell sets these for itself.
    names.retain(|name| !["PWD", "SHLVL", "OLDPWD", "_"].contains(name));
    names.sort_unstable();
    assert_eq!(names, ["HOME", "PASSED", "PATH", "TENURE_ATTEMPT", "TENURE_EPOCH", "TENURE_JOB", "TZ"]);
    assert!(seen.contains("PASSED=on\n") && seen.contains("TENURE_JOB=show.run."), "{seen}");
    cluster.finish();
}

#[test]
fn link_local_addresses_are_not_asked_unless_the_agent_allows_them() {
    let bench = Bench::new();
    let mut cluster = bench.cluster();
    let leader = cluster.start("pod-a");
    cluster.event(0, leader, "became_leader");
    let agent = cluster.start_agent(&["--id", "agent-1"]);
    cluster.wait_log(agent, "takes jobs");
    let http = |name: &str, url: &str| json!({"name": name, "kind": "http", "url": url, "timeout": "2s"});
    let tcp = |name: &str, host: &str| json!({"name": name, "kind": "tcp", "host": host, "port": 80, "timeout": "2s"});
    let told = checks_of(
        &bench,
        "near",
        &[
            http("http", "http://169.254.1.2/latest/meta-data/"),
            http("number", "http://2851995906/"),
            http("hex", "http://0xa9.0xfe.1.2/"),
            http("mapped", "http://[::ffff:169.254.1.2]/"),
            http("six", "http://[fe80::1]/"),
            http("metadata-six", "http://[fd00:ec2::254]/"),
            http("translated", "http://[::ffff:0:169.254.1.2]/"),
            tcp("metadata-scaleway", "fd00:42::42"),
            tcp("tcp", "169.254.1.2"),
            tcp("tcp-six", "fe80::1"),
            tcp("tcp-mapped", "::ffff:169.254.1.2"),
        ],
    );
    for (name, (ok, detail)) in &told {
        assert!(!ok && detail.contains("link-local"), "{name}: {detail}");
    }
    assert_eq!(told.len(), 11);
    cluster.signal(agent, Signal::TERM);
    cluster.exit(agent);
    // Whatever is there, it is asked.
    let agent = cluster.start_agent(&["--id", "agent-2", "--allow-link-local"]);
    cluster.wait_log(agent, "takes jobs");
    let told = checks_of(&bench, "allowed", &[tcp("tcp", "169.254.1.2")]);
    assert!(!told["tcp"].1.contains("link-local"), "{told:?}");
    cluster.finish();
}

#[test]
fn an_address_with_credentials_is_refused_and_they_are_not_repeated() {
    let bench = Bench::new();
    for url in [
        "http://user:MARKED@example.org/",
        "https://MARKED@example.org/",
        "HTTP://user:MARKED@example.org/",
        "http:///user:MARKED@example.org/",
        "http://user:MARKED@",
        "ftp://user:MARKED@example.org",
        "http://a@b:MARKED@example.org/",
        "http:\\\\user:MARKED@example.org",
    ] {
        let file = bench.sandbox.write(
            "polls.yaml",
            &format!("- id: web\n  every: 1m\n  checks:\n    - {{name: home, kind: http, url: '{url}'}}\n"),
        );
        let ran = bench.tenure(&["apply", "-f", &file]).assert_code(2);
        let ran = ran.assert_says(&["line 4", "web.checks[0].url", "must"]);
        assert!(!ran.stderr.contains("MARKED") && !ran.stdout.contains("MARKED"), "{ran:?}");
        let json = bench.tenure(&["apply", "-f", &file, "--json"]).assert_code(2);
        assert!(!json.stderr.contains("MARKED") && !json.stdout.contains("MARKED"), "{json:?}");
        let check = format!("kind=http,url={url}");
        let ran =
            bench.tenure(&["schedule", "add", "web", "--every", "1m", "--check", &check]).assert_code(2);
        assert!(!ran.stderr.contains("MARKED"), "{ran:?}");
    }
    for (check, words) in [
        ("kind=tcp,host=h,port=1,url=http://user:MARKED@h/", "url"),
        ("kind=http,url=http://user:MARKED@h/,url=http://h", "twice"),
        ("http://user:MARKED@h/", "field=value"),
    ] {
        let ran = bench.tenure(&["schedule", "add", "web", "--every", "1m", "--check", check]).assert_code(2);
        let ran = ran.assert_says(&[words]);
        assert!(!ran.stderr.contains("MARKED"), "{ran:?}");
    }
    // An @ elsewhere is no credential.
    let check = "kind=http,url=https://example.org/@me?to=a@b";
    bench.tenure(&["schedule", "add", "web", "--every", "1m", "--check", check]).assert_code(0);
}

/// A schedule without a file: its command runs once per due time, on an agent that allows that very command, and its result is told.
#[test]
fn sc2_a_command_is_scheduled_with_one_line() {
    let bench = Bench::new();
    let out = bench.sandbox.path("ran");
    let script = format!("echo $LEVEL-$TENURE_JOB >> {}; echo well done", out.display());
    let add = ["schedule", "add", "nightly", "--manual", "--queue", "night", "--", "/bin/sh", "-c", &script];
    bench.tenure(&add).assert_code(0);
    let mut cluster = bench.cluster();
    cluster.start("pod-a");
    let other = cluster.start_agent(&["--id", "other", "--allow-command", "/bin/sh -c true"]);
    cluster.wait_log(other, "takes jobs");
    bench.tenure(&["schedule", "run-now", "nightly", "--name", "one"]).assert_code(0);
    let reason = format!("no suitable worker allows /bin/sh -c {script}");
    bench.until_jobs("nightly", |jobs| {
        jobs.iter().any(|job| {
            reason.starts_with(&job["reason"].as_str().unwrap().replace('…', "")) && job["reason"] != ""
        })
    });
    assert!(!out.exists(), "sc4: nobody allows it");
    let allow = format!("/bin/sh -c '{script}'");
    let able = cluster.start_agent(&["--id", "able", "--queue", "night", "--allow-command", &allow]);
    cluster.wait_log(able, "of queue night");
    let done = bench.until_state("nightly", "succeeded");
    assert_eq!((&done["worker"], &done["attempt"]), (&json!("able"), &json!(1)), "{done}");
    assert_eq!(
        (&done["kind"], &done["queue"], &done["result"]),
        (&json!("command"), &json!("night"), &json!("well done"))
    );
    assert_eq!(std::fs::read_to_string(&out).unwrap(), "-nightly.run.one\n");
    let listed = bench.tenure(&["schedule", "list"]).assert_code(0).stdout;
    assert!(listed.contains("/bin/sh -c echo"), "{listed}");
}

#[test]
fn sc4_a_submitted_command_goes_only_to_an_agent_that_allows_it() {
    let bench = Bench::new();
    let mut cluster = bench.cluster();
    cluster.start("pod-a");
    let other = cluster.start_agent(&["--id", "other", "--allow-command", "/bin/echo no"]);
    cluster.wait_log(other, "takes jobs");
    let submit = ["job", "submit", "--id", "say", "--", "/bin/echo", "well", "done"];
    bench.tenure(&submit).assert_code(0);
    let deadline = Instant::now() + PATIENCE;
    while !bench.json(&["job", "show", "say"])["reason"].as_str().unwrap_or_default().contains("allows") {
        assert!(Instant::now() < deadline, "it says why it waits");
        std::thread::sleep(Duration::from_millis(50));
    }
    cluster.start_agent(&["--id", "able", "--allow-command", "/bin/echo **"]);
    let wait = ["job", "submit", "--id", "say", "--wait", "--json", "--", "/bin/echo", "well", "done"];
    let said = bench.tenure(&wait).assert_code(0).json();
    assert_eq!((&said["state"], &said["result"]), (&json!("succeeded"), &json!("well done")), "{said}");
    let done = bench.json(&["job", "show", "say"]);
    assert_eq!((&done["worker"], &done["attempt"]), (&json!("able"), &json!(1)), "{done}");
    cluster.finish();
}

/// `export` writes what `apply` reads, and `apply --prune` makes the store like the file.
#[test]
fn sc3_export_and_prune() {
    let bench = Bench::new();
    let (port, url) = ("kind=tcp,host=h,port=1", "http://example.org/run");
    let every = ["--every", "90s", "--timeout", "1500ms"];
    bench.tenure(&[&["schedule", "add", "web", "--check", port][..], &every].concat()).assert_code(0);
    bench
        .tenure(&[
            "schedule",
            "add",
            "hook",
            "--cron",
            "30 2 * * *",
            "--zone",
            "Europe/Berlin",
            "--http",
            url,
        ])
        .assert_code(0);
    bench
        .tenure(&["schedule", "add", "mails", "--manual", "--kind", "send", "--payload", r#"{"to": "a"}"#])
        .assert_code(0);
    bench
        .tenure(&["schedule", "add", "nightly", "--manual", "--paused", "--", "/bin/true", "a b"])
        .assert_code(0);
    let before = bench.json(&["schedule", "list"])["schedules"].clone();
    let yaml = bench.tenure(&["schedule", "export"]).assert_code(0).stdout;
    assert!(
        yaml.contains("- id: \"web\"") && yaml.contains("  every: \"90s\"") && !yaml.contains("ttl"),
        "{yaml}"
    );
    let file = bench.sandbox.write("all.yaml", &yaml);
    let same = bench.json(&["apply", "-f", &file]);
    assert_eq!(same["unchanged"], json!(4), "{same}");
    let as_json = bench.tenure(&["schedule", "export", "web", "mails", "--json"]).assert_code(0).stdout;
    let two = bench.sandbox.write("two.json", &as_json);
    let asked = bench.tenure(&["apply", "-f", &two, "--prune"]).assert_code(2);
    assert!(
        asked.stderr.contains("2 schedules not in the file") && asked.stderr.contains("--yes"),
        "{}",
        asked.stderr
    );
    assert_eq!(bench.json(&["apply", "-f", &two, "--prune", "--dry-run"])["removed"], json!(2));
    assert_eq!(bench.json(&["schedule", "list"])["schedules"], before, "nothing was done");
    let pruned = bench.tenure(&["apply", "-f", &two, "--prune", "--yes"]).assert_code(0).stdout;
    assert!(pruned.contains("removed hook") && pruned.contains("2 removed"), "{pruned}");
    bench.tenure(&["apply", "-f", &file]).assert_code(0);
    let strip = |value: &Value| {
        let mut rows = value.as_array().unwrap().clone();
        rows.iter_mut().for_each(|row| drop((row["since"].take(), row["next"].take(), row["nonce"].take())));
        rows
    };
    let after = bench.json(&["schedule", "list"])["schedules"].clone();
    assert_eq!(strip(&after), strip(&before), "as it was");
    bench.tenure(&["schedule", "export", "nobody"]).assert_code(10);
    for wrong in [
        &["schedule", "add", "x", "--manual"][..],
        &["schedule", "add", "x", "--manual", "--http", "ftp://x"],
        &["schedule", "add", "x", "--manual", "--kind", "a", "--check", port],
        &["schedule", "add", "x", "--manual", "--", "true"],
    ] {
        bench.tenure(wrong).assert_code(2);
    }
}
