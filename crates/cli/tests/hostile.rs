//! What others put into the store, the environment or an answer: it commands no terminal, ends no wait, stops no election.

use crate::common::net::Server;
use crate::common::{Cluster, PATIENCE, PATIENT, Ran, Sandbox, finish};
use serde_json::{Value, json};
use std::io::{BufRead, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tenure_store::{Condition, Read as Found, SqliteStore, Store, Write as Written};

const ROOT: &str = "plg_coordinator_global/default";

/// Clears a screen in three ways, hides what follows, begins a line of its own and turns the text around.
const NASTY: &str = "a\u{1b}[2J\u{9b}2J\u{7f}\u{8}\r\nFORGED\tline\u{202e}z";

/// The highest epoch there is.
const LAST_EPOCH: u64 = (1 << 53) - 1;

fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

fn open(path: &Path) -> Arc<SqliteStore> {
    Arc::new(within(SqliteStore::open(path, Duration::from_secs(10))).unwrap())
}

fn put(store: &dyn Store, name: &str, body: &Value) {
    let answer =
        within(store.put(&format!("{ROOT}/{name}"), body.to_string().into_bytes().into(), Condition::Any));
    assert!(matches!(answer, Written::Won(_)), "{answer:?}");
}

fn get(store: &dyn Store, name: &str) -> Value {
    match within(store.get(&format!("{ROOT}/{name}"), None)) {
        Found::Found(object) => serde_json::from_slice(&object.body).unwrap(),
        other => panic!("{other:?}"),
    }
}

fn seat(state: &str, epoch: u64, renewals: u64, lease_ms: u64) -> Value {
    json!({
        "v": 1, "epoch": epoch, "state": state, "leaseHold": lease_ms, "leaseExpiry": 2 * lease_ms, "renewals": renewals,
        "holder": {"node": "pod-z", "incarnation": "00000000000000ab"}, "nonce": format!("00000000000000ab-{renewals}"),
        "claimedAt": NASTY, "settings": {"note": NASTY},
    })
}

/// A leader that renews as long as this lives.
struct Renewing {
    over: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Renewing {
    fn start(store: &Arc<SqliteStore>) -> Renewing {
        let (over, store) = (Arc::new(AtomicBool::new(false)), Arc::clone(store));
        let end = Arc::clone(&over);
        let thread = std::thread::spawn(move || {
            for renewals in 1.. {
                if end.load(Ordering::SeqCst) {
                    return;
                }
                put(&*store, "seat.json", &seat("held", 3, renewals, 60_000));
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        Renewing { over, thread: Some(thread) }
    }
}

impl Drop for Renewing {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A store in which every text that may be anything is nasty.
fn fill(store: &dyn Store) {
    put(
        store,
        "nodes/pod-z.json",
        &json!({
            "v": 1, "node": "pod-z", "incarnation": "00000000000000ab", "nonce": "00000000000000ab-3", "software": NASTY,
            "startedAt": NASTY, "metrics": {"namespace": NASTY, "node": NASTY, "role": NASTY, "note": NASTY, "epoch": 3,
                "heartbeats": 9, "measuredMs": 1000},
        }),
    );
    put(
        store,
        "workers/w1.json",
        &json!({
            "v": 1, "workerId": "w1", "pluginType": "queue", "pod": "pod-z", "timeout": 20000,
            "incarnation": "00000000000000ab", "nonce": "00000000000000ab-3", "startedAt": NASTY, "payload": {"queue": NASTY},
        }),
    );
    put(
        store,
        "health.json",
        &json!({
            "v": 1, "epoch": 3, "sequence": 7, "nonce": "00000000000000ab-7", "refresh": 3_600_000, "status": "degraded",
            "told": "healthy", "reasons": [{"code": "node_down", "subject": NASTY, "detail": NASTY}],
            "nodes": [{"node": "pod-z", "state": "up", "role": NASTY, "incarnation": NASTY, "version": NASTY,
                "lastSeen": 1, "told": "up"}],
            "workers": {"up": 1, "down": 0, "list": [{"workerId": NASTY, "state": "up", "pluginType": NASTY,
                "pod": NASTY, "incarnation": NASTY, "version": NASTY, "lastSeen": 9}]},
            "probes": [{"name": NASTY, "ok": false, "critical": true, "detail": NASTY}],
        }),
    );
    put(
        store,
        "terms.json",
        &json!({"v": 1, "terms": [{"epoch": 2, "leader": "pod-y", "ended": "step down", "by": NASTY}, {"epoch": 1, "leader": "pod-x", "ended": NASTY}]}),
    );
    let job = |id: &str, state: &str, result: &str| {
        json!({
            "id": id, "series": "web", "kind": "checks", "timeout": 1000, "ttl": 5000, "attempts": 1, "state": state,
            "dispatch": 1, "worker": "w1", "epoch": 3, "reason": NASTY, "result": result,
        })
    };
    let report = json!({"v": 1, "due": 5, "names": "x", "checks": [[false, 3, NASTY]]}).to_string();
    // Whichever part of the ledger they belong to: all of them are read.
    put(
        store,
        "jobs/ledger-0.json",
        &json!({
            "v": 1, "epoch": 3, "owner": "00000000000000ab", "nonce": "00000000000000ab-7", "series": {"web": 9},
            "jobs": [job("web-5", "failed", &report), job("web-6", "failed", NASTY), job("web-7", "queued", "")],
        }),
    );
    put(
        store,
        "schedules/web.json",
        &json!({
            "v": 1, "id": "web", "every": 60_000, "checks": [{"name": "a", "kind": "dns", "host": "h", "note": NASTY}],
            "note": NASTY, "runNow": [{"name": NASTY, "at": 1}, {"name": "x1", "at": 1}],
        }),
    );
    put(
        store,
        "schedules/bad.json",
        &json!({"v": 1, "id": "bad", "every": NASTY, "overlap": NASTY, "checks": [{"name": NASTY, "kind": NASTY}]}),
    );
}

/// Nothing in it moves a cursor, begins a line it should not, or turns text around.
#[track_caller]
fn assert_harmless(what: &str, ran: &Ran) {
    for text in [&ran.stdout, &ran.stderr] {
        let bad = text.chars().find(|c| (c.is_control() && *c != '\n') || *c == '\u{202e}');
        assert_eq!(bad, None, "{what}: {text:?}");
        assert!(!text.lines().any(|line| line.trim_start().starts_with("FORGED")), "{what}:\n{text}");
        assert!(!text.contains("panicked"), "{what}:\n{text}");
    }
}

#[test]
fn nothing_in_the_store_commands_the_terminal() {
    let sandbox = Sandbox::new();
    let url = sandbox.sqlite("t.db");
    let store = open(&sandbox.path("t.db"));
    fill(&*store);
    put(&*store, "seat.json", &seat("held", 3, 0, 60_000));
    let _renewing = Renewing::start(&store);
    let commands: &[(&[&str], i32, &str)] = &[
        (&["status"], 0, "since      a"),
        (&["leader"], 0, "pod-z"),
        (&["history"], 0, "stepped down (asked by "),
        (&["health"], 7, "reason     "),
        (&["workers"], 0, "w1"),
        (&["metrics"], 0, "pod-z"),
        (&["cost"], 0, "projected"),
        (&["watch", "--once"], 0, "pod-z"),
        (&["job", "ls"], 0, "web-5"),
        (&["job", "show", "web-5"], 0, "web-5"),
        (&["job", "show", "web-6"], 0, "web-6"),
        (&["schedule", "list"], 0, "web"),
        (&["schedule", "show", "web"], 0, "web"),
        (&["schedule", "show", "bad"], 6, ""),
    ];
    for (command, code, word) in commands {
        let what = command.join(" ");
        let ran = sandbox.tenure([command, &["--store", &url][..]].concat());
        assert_harmless(&what, &ran);
        let ran = ran.assert_code(*code);
        assert!(ran.stdout.contains(word), "{what}:\n{}", ran.stdout);
        if *code == 6 || ["leader", "cost"].contains(&what.as_str()) {
            continue;
        }
        let ran = sandbox.tenure([command, &["--json", "--store", &url][..]].concat()).assert_code(*code);
        assert_harmless(&format!("{what} --json"), &ran);
        let told = ran.json();
        assert!(!told.is_null(), "{what}");
    }
    let told = sandbox.tenure(["status", "--json", "--store", &url]).assert_code(0).json();
    assert_eq!(told["leader"]["since"], NASTY, "for programs it is what it was, to the letter");
    let told = sandbox.tenure(["health", "--json", "--store", &url]).assert_code(7).json();
    assert_eq!(told["probes"][0]["detail"], NASTY);
}

#[test]
fn nothing_a_node_answers_commands_the_terminal() {
    let event =
        json!({"event": NASTY, "node": NASTY, "epoch": NASTY, "time": NASTY, "why": NASTY, NASTY: NASTY});
    let missed = json!({"missed": NASTY, "why": NASTY});
    let more = json!({"missed": 7, "why": NASTY});
    let body =
        format!("id: 1\ndata: {event}\n\nevent: missed\ndata: {missed}\n\nevent: missed\ndata: {more}\n\n");
    let server = Server::start(move |mut stream| {
        // Whatever it asks.
        let _ = stream.read(&mut [0; 4096]);
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
            body.len()
        );
        let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes()));
    });
    let sandbox = Sandbox::new();
    let ran = sandbox.tenure(["events", "--url", &server.url()]).assert_code(0);
    assert_harmless("events", &ran);
    assert!(ran.stdout.contains("FORGED") && ran.stderr.contains("7 events are missing"), "{ran:?}");
    assert_eq!((ran.stdout.lines().count(), ran.stderr.lines().count()), (1, 2), "{ran:?}");
    let ran = sandbox.tenure(["events", "--json", "--url", &server.url()]).assert_code(0);
    assert_harmless("events --json", &ran);
    assert_eq!(ran.json()["node"], NASTY);
}

#[test]
fn a_password_in_the_address_of_a_node_is_not_repeated() {
    let sandbox = Sandbox::new();
    for (url, code) in [("http://me:MARKED@127.0.0.1:1", 1), ("ftp://me:MARKED@127.0.0.1:1", 2)] {
        let ran = sandbox.tenure(["events", "--url", url]).assert_code(code).assert_says(&["127.0.0.1:1"]);
        assert!(!ran.stderr.contains("MARKED"), "{ran:?}");
    }
}

#[test]
fn a_variable_that_is_no_text_is_ignored_or_named_and_never_repeated() {
    let sandbox = Sandbox::new();
    let run = |name: &str, arguments: &[&str]| {
        let mut command = sandbox.command();
        command.args(arguments).args(["--store", &sandbox.sqlite("t.db")]);
        command.env_remove("TENURE_NO_HTTP").env(name, std::ffi::OsStr::from_bytes(b"MARKED\xff"));
        let ran = finish(command, PATIENCE);
        assert!(!ran.stderr.contains("MARKED") && !ran.stdout.contains("MARKED"), "{name}: {ran:?}");
        assert!(!ran.stderr.contains("panicked"), "{name}: {ran:?}");
        ran
    };
    for name in ["X", "PASSWORD", "AWS_SECRET_ACCESS_KEY", "USER", "LC_ALL", "TENURE_LOG"] {
        run(name, &["status"]).assert_code(3);
    }
    for name in ["TENURE_NAMESPACE", "TENURE_NODE", "TENURE_LEASE_TIMEOUT"] {
        run(name, &["status"]).assert_code(2).assert_says(&[name, "must be UTF-8 text"]);
    }
    run("TENURE_HTTP_TOKEN", &["run"]).assert_code(2).assert_says(&["TENURE_HTTP_TOKEN"]);
    for name in ["TENURE_HTTP_LISTEN", "TENURE_NO_HTTP"] {
        run(name, &["run"]).assert_code(2).assert_says(&[name, "must be UTF-8 text"]);
    }
    // A name that is no text is nobody's.
    let mut command = sandbox.command();
    command.args(["status", "--store", &sandbox.sqlite("t.db")]);
    command.env(std::ffi::OsStr::from_bytes(b"\xffX"), "1");
    finish(command, PATIENCE).assert_code(3);
}

#[test]
fn the_last_epoch_is_led_and_none_beyond_it_is_read_or_written() {
    let sandbox = Sandbox::new();
    let url = sandbox.sqlite("t.db");
    let store = open(&sandbox.path("t.db"));
    for beyond in [LAST_EPOCH + 1, u64::MAX / 2, u64::MAX] {
        put(&*store, "seat.json", &seat("vacant", beyond, 0, 1000));
        let ran = sandbox.tenure(["status", "--store", &url]).assert_code(6);
        assert!(ran.stderr.contains("`epoch`"), "{}", ran.stderr);
    }
    // One is left: it is claimed, led and read.
    put(&*store, "seat.json", &seat("vacant", LAST_EPOCH - 1, 0, 1000));
    let mut cluster = Cluster::new(&sandbox, &url, PATIENT);
    let life = cluster.start("pod-a");
    assert_eq!(cluster.event(0, life, "became_leader").epoch(), LAST_EPOCH);
    let told = sandbox.tenure(["status", "--json", "--store", &url]).assert_code(0).json();
    assert_eq!((&told["epoch"], &told["leader"]["live"]), (&json!(LAST_EPOCH), &json!(true)));
    // None is left: nobody claims, and everybody who would says why.
    cluster.kill(life);
    let left = get(&*store, "seat.json");
    let life = cluster.start("pod-b");
    let said = cluster.event(0, life, "seat_unreadable");
    assert_eq!(said.text("problem"), "last epoch", "{}", said.event);
    assert!(said.text("detail").contains(&LAST_EPOCH.to_string()), "{}", said.event);
    assert_eq!(get(&*store, "seat.json"), left, "nothing was written");
    assert!(cluster.is_running(life));
    cluster.finish();
}

#[test]
fn a_leader_with_a_lease_of_a_day_is_not_waited_for_all_day() {
    let sandbox = Sandbox::new();
    let url = sandbox.sqlite("t.db");
    let store = open(&sandbox.path("t.db"));
    put(&*store, "seat.json", &seat("held", 3, 0, 86_400_000));
    let look = |command: &[&str]| sandbox.tenure([command, &["--wait", "300ms", "--store", &url]].concat());
    let ran = look(&["status"]).assert_code(3);
    assert!(ran.stdout.contains("no renewal seen within 0.3 s"), "{}", ran.stdout);
    assert!(ran.stdout.contains("leader     pod-z"), "{}", ran.stdout);
    let told = look(&["status", "--json"]).assert_code(3).json();
    assert_eq!((&told["leader"]["live"], &told["leader"]["watchedMs"]), (&json!(false), &json!(300)));
    assert_eq!(look(&["leader"]).assert_code(3).stdout, "");
}

/// Runs it as a user who owns nothing, if this is root.
fn as_nobody(sandbox: &Sandbox, command: &mut std::process::Command) {
    if rustix::process::geteuid().is_root() {
        std::fs::set_permissions(sandbox.home(), std::fs::Permissions::from_mode(0o755)).unwrap();
        command.uid(65534).gid(65534);
    }
}

/// A command of the same user reads the environment of whoever runs it, with all its secrets, if that one lets it.
#[cfg(target_os = "linux")]
#[test]
fn what_holds_secrets_is_closed_to_its_own_user() {
    for (verb, arguments, begun) in [
        ("agent", &["--id", "agent-1"][..], "agent agent-1 registers"),
        ("run", &[], "starts in namespace"),
        ("exec", &["--", "sleep", "600"], "starts in namespace"),
        ("lock", &["--log", "human", "--", "sleep", "600"], "LEADING"),
        ("once", &["--log", "human", "--key", "k", "--", "sleep", "600"], "LEADING"),
        ("worker", &["run", "--id", "w1"], "w1"),
    ] {
        let sandbox = Sandbox::new();
        let mut command = sandbox.command();
        command.arg(verb).args(arguments).env("TENURE_STORE", "memory:").env("TENURE_PRESET", "fast");
        as_nobody(&sandbox, &mut command);
        let spawned = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        // Where nobody may not even run the program there is nothing to see.
        let Ok(child) = spawned else { return eprintln!("NOT RUN: nobody may run the program") };
        let mut running = crate::common::Killed(child);
        let mut log = std::io::BufReader::new(running.0.stderr.take().unwrap()).lines();
        assert!(log.any(|line| line.unwrap().contains(begun)), "{verb} has not begun");
        // What is closed belongs to root instead of its user; root's own cannot be told apart.
        let owner = std::fs::metadata(format!("/proc/{}/environ", running.0.id())).unwrap().uid();
        assert_eq!(owner, 0, "the environment of {verb} is its user's to read");
    }
}

#[test]
fn a_database_that_may_not_be_read_is_not_taken_for_none() {
    let sandbox = Sandbox::new();
    let closed = sandbox.path("closed");
    std::fs::create_dir(&closed).unwrap();
    let store = sandbox.sqlite("closed/t.db");
    drop(open(&closed.join("t.db")));
    let look = |command: &[&str]| {
        let mut command_line = sandbox.command();
        command_line.args(command).args(["--store", &store]);
        as_nobody(&sandbox, &mut command_line);
        finish(command_line, PATIENCE)
    };
    let mode = if rustix::process::geteuid().is_root() { 0o700 } else { 0o000 };
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(mode)).unwrap();
    for command in [&["status"][..], &["leader"], &["health"], &["schedule", "ls"], &["run"]] {
        let ran = look(command).assert_code(2).assert_says(&["closed/t.db", "ermission denied"]);
        assert_eq!(ran.stdout, "", "{command:?}");
    }
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::set_permissions(closed.join("t.db"), std::fs::Permissions::from_mode(0o000)).unwrap();
    look(&["status"]).assert_code(2).assert_says(&["closed/t.db"]);
}

#[test]
fn a_database_that_somebody_else_laid_there_is_not_used() {
    let sandbox = Sandbox::new();
    let store = sandbox.sqlite("t.db");
    std::os::unix::fs::symlink(sandbox.path("theirs.db"), sandbox.path("t.db")).unwrap();
    for command in ["status", "run", "doctor"] {
        let ran = sandbox.tenure([command, "--store", &store]).assert_code(2);
        ran.assert_says(&["t.db", "symbolic link", "theirs.db"]);
    }
    assert!(!sandbox.path("theirs.db").exists(), "nothing is made where the link leads");
    std::fs::remove_file(sandbox.path("t.db")).unwrap();
    if !rustix::process::geteuid().is_root() {
        return eprintln!("NOT RUN: only root can give a file away");
    }
    drop(open(&sandbox.path("t.db")));
    std::os::unix::fs::chown(sandbox.path("t.db"), Some(65534), Some(65534)).unwrap();
    for command in ["status", "run", "doctor"] {
        let ran = sandbox.tenure([command, "--store", &store]).assert_code(2);
        ran.assert_says(&["t.db", "uid 65534", "take the seat"]);
    }
}
