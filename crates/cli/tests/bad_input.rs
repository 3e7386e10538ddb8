//! Whatever is wrong: a clear sentence, the right exit code, nothing written, no panic.

use crate::common::{Cluster, FAST, PATIENCE, Ran, Sandbox, finish};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tenure_store::{Condition, Read, SqliteStore, Store, Write};

const SEAT: &str = "plg_coordinator_global/default/seat.json";

/// Runs a node that must not even start: exit code 2, these words, and not a byte on disk.
fn refused(sandbox: &Sandbox, arguments: &[&str], words: &[&str]) -> Ran {
    let before = sandbox.contents();
    let ran = sandbox.tenure([&["run", "--events"], arguments].concat());
    let ran = ran.assert_code(2).assert_says(words);
    assert_eq!(ran.stdout, "", "an event of a node that never was");
    assert!(ran.stderr.len() < 4_000, "{} bytes of complaint", ran.stderr.len());
    assert!(sandbox.contents() == before, "{arguments:?} wrote something");
    ran
}

#[test]
fn wrong_settings_name_field_value_and_rule() {
    let sandbox = Sandbox::new();
    let store = sandbox.sqlite("t.db");
    for (arguments, words) in [
        (
            &["--startup-jitter-min", "-100"][..],
            &["startupJitterMin", "-100", "`startupJitterMin` cannot be negative", "--startup-jitter-min"][..],
        ),
        (
            &["--startup-jitter-min", "8000ms", "--startup-jitter-max", "2000ms"],
            &["startupJitterMax = 2000", "must be >= `startupJitterMin`", "startupJitterMin = 8000"],
        ),
        (
            &["--heartbeat-interval", "1000ms", "--lease-timeout", "1000ms"],
            &["leaseTimeout = 1000", "must be greater than `heartbeatInterval`", "heartbeatInterval = 1000"],
        ),
        (&["--heartbeat-interval", "soon"], &["heartbeatInterval = soon"]),
        (&["--lease-timeout", "99999999999999999999ms"], &["leaseTimeout"]),
        (&["--eligible", "perhaps"], &["eligible = perhaps"]),
        (&["--preset", "furious"], &["preset = furious", "fast"]),
        (&["--node", "a/b"], &["node = a/b", "letters, digits"]),
        (&["--node", ""], &["node"]),
        (&["--namespace", "../etc"], &["namespace = ../etc"]),
    ] {
        refused(&sandbox, &[arguments, &["--store", &store]].concat(), words);
    }
}

#[test]
fn everything_that_is_wrong_is_said_at_once() {
    let sandbox = Sandbox::new();
    let arguments = ["--node", "a/b", "--startup-jitter-min", "-1", "--store", "ftp://x"];
    let ran = refused(&sandbox, &arguments, &["node = a/b", "startupJitterMin = -1", "store"]);
    assert_eq!(ran.stderr.lines().count(), 3, "{}", ran.stderr);
    let check = sandbox.tenure([&["config", "check"], &arguments[..]].concat());
    check.assert_code(2).assert_says(&["node = a/b", "startupJitterMin = -1", "store"]);
}

#[test]
fn a_name_of_a_hundred_thousand_bytes_is_cut_in_the_message() {
    let sandbox = Sandbox::new();
    let long = "x".repeat(100_000);
    refused(&sandbox, &["--node", &long, "--store", &sandbox.sqlite("t.db")], &["node", "xxxx"]);
    refused(&sandbox, &["--namespace", &long, "--store", &sandbox.sqlite("t.db")], &["namespace", "xxxx"]);
}

#[test]
fn wrong_store_urls_are_refused_and_never_repeat_a_password() {
    let sandbox = Sandbox::new();
    for (url, words) in [
        ("ftp://host/x", &["store", "s3://", "sqlite:"][..]),
        ("https://me:MARKED@host/x", &["store", "s3://"]),
        ("s3://me:MARKED@bucket/x", &["store"]),
        ("s3:bucket", &["store", "s3://"]),
        ("sqlite:", &["store", "path"]),
        ("sqlite:x.db?mode=ro", &["store"]),
        ("nonsense", &["store", "scheme"]),
        ("", &["store"]),
    ] {
        let ran = refused(&sandbox, &["--store", url], words);
        assert!(!ran.stderr.contains("MARKED"), "{}", ran.stderr);
    }
}

#[test]
fn settings_files_that_cannot_be_used_are_named() {
    let sandbox = Sandbox::new();
    let unknown = sandbox.write("unknown.toml", "heartbeatIntervall = 1000\n");
    let jitter = sandbox.write("jitter.json", r#"{"startupJitterMin": -100}"#);
    let broken = sandbox.write("broken.toml", "heartbeatInterval = = 1\n");
    let kind = sandbox.write("kind.toml", "leaseTimeout = \"long\"\n");
    std::fs::write(sandbox.path("binary.toml"), [0xff, 0xfe, 0, 1]).unwrap();
    let binary = sandbox.path("binary.toml").display().to_string();
    let folder = sandbox.path("folder.toml");
    std::fs::create_dir(&folder).unwrap();
    let (folder, absent) = (folder.display().to_string(), sandbox.path("absent.toml").display().to_string());
    for (file, words) in [
        (&unknown, &["heartbeatIntervall", "heartbeatInterval", "unknown.toml"][..]),
        (&jitter, &["startupJitterMin = -100", "cannot be negative", "jitter.json"]),
        (&broken, &["broken.toml"]),
        (&kind, &["leaseTimeout", "long", "kind.toml"]),
        (&binary, &["binary.toml"]),
        (&folder, &["folder.toml", "directory"]),
        (&absent, &["absent.toml", "No such file"]),
    ] {
        refused(&sandbox, &["--config", file, "--store", &sandbox.sqlite("t.db")], words);
        sandbox.tenure(["config", "check", "--config", file]).assert_code(2).assert_says(words);
    }
}

#[test]
fn an_unreadable_settings_file_is_named() {
    // Root may read everything, but not the memory of a kernel thread or a file that fails on reading.
    let sandbox = Sandbox::new();
    let file = Path::new("/proc/self/mem");
    assert!(file.exists());
    refused(&sandbox, &["--config", "/proc/self/mem"], &["/proc/self/mem", "cannot be read"]);
    use std::os::unix::fs::PermissionsExt;
    let secret = sandbox.write("secret.toml", "node = \"x\"\n");
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o000)).unwrap();
    if std::fs::read(&secret).is_err() {
        let ran = sandbox.tenure(["run", "--config", &secret]);
        ran.assert_code(2).assert_says(&["secret.toml", "cannot be read"]);
    }
}

#[test]
fn database_files_that_cannot_be_used_are_left_untouched() {
    use std::os::unix::fs::PermissionsExt;
    let sandbox = Sandbox::new();
    std::fs::create_dir(sandbox.path("folder")).unwrap();
    sandbox.write(
        "text.db",
        "this is a letter to my aunt, and longer than a database header would be at the least, \
                              so that nobody can take it for an empty or a truncated one",
    );
    let foreign = rusqlite::Connection::open(sandbox.path("foreign.db")).unwrap();
    foreign.execute_batch("CREATE TABLE aunt (name TEXT); INSERT INTO aunt VALUES ('Agatha');").unwrap();
    drop(foreign);
    let ours = rusqlite::Connection::open(sandbox.path("locked.db")).unwrap();
    ours.execute_batch("CREATE TABLE x (y)").unwrap();
    drop(ours);
    std::fs::set_permissions(sandbox.path("locked.db"), std::fs::Permissions::from_mode(0o444)).unwrap();
    for (name, words) in [
        ("folder", &["folder", "is a directory"][..]),
        ("absent/t.db", &["absent", "does not exist"]),
        ("text.db/t.db", &["text.db", "not a directory"]),
        ("text.db", &["text.db", "not an SQLite database"]),
        ("foreign.db", &["foreign.db", "another application"]),
        ("locked.db", &["locked.db", "read-only"]),
    ] {
        let url = sandbox.sqlite(name);
        refused(&sandbox, &["--store", &url], words);
        let before = sandbox.contents();
        sandbox.tenure(["doctor", "--store", &url]).assert_code(2).assert_says(words);
        if !name.contains('/') {
            sandbox.tenure(["status", "--store", &url]).assert_code(2).assert_says(words);
        }
        assert!(sandbox.contents() == before, "{name} was written to");
    }
    // Not even root can make a file there.
    refused(&sandbox, &["--store", "sqlite:/proc/tenure.db"], &["/proc/tenure.db"]);
}

#[test]
fn a_database_that_others_hold_is_busy_and_not_broken() {
    let sandbox = Sandbox::new();
    let store = sandbox.sqlite("t.db");
    sandbox.tenure(["doctor", "--store", &store]).assert_code(0);
    let lock = rusqlite::Connection::open(sandbox.path("t.db")).unwrap();
    // In a rollback journal an exclusive transaction keeps readers out as well.
    lock.execute_batch("PRAGMA journal_mode = DELETE; BEGIN EXCLUSIVE").unwrap();
    let ran = sandbox.tenure(["run", "--store", &store]);
    ran.assert_code(4).assert_says(&["t.db", "busy"]);
    sandbox.tenure(["status", "--store", &store]).assert_code(4).assert_says(&["t.db", "busy"]);
}

fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

fn open(path: &Path) -> Arc<SqliteStore> {
    Arc::new(within(SqliteStore::open(path, Duration::from_secs(10))).unwrap())
}

fn put(store: &dyn Store, body: &str) {
    let answer = within(store.put(SEAT, body.to_owned().into(), Condition::Any));
    assert!(matches!(answer, Write::Won(_)), "{answer:?}");
}

fn body(store: &dyn Store) -> String {
    match within(store.get(SEAT, None)) {
        Read::Found(object) => String::from_utf8(object.body.to_vec()).unwrap(),
        other => panic!("{other:?}"),
    }
}

fn seat(version: u64, epoch: u64) -> Value {
    json!({
        "v": version, "epoch": epoch, "state": "vacant", "leaseHold": 1000, "leaseExpiry": 3000, "renewals": 0,
        "holder": {"node": "pod-z", "incarnation": "00000000000000ab"}, "nonce": "00000000000000ab-7",
    })
}

#[test]
fn a_seat_that_cannot_be_read_is_reported_and_left_alone() {
    for (bad, problem) in [
        ("{\"v\": 1, \"epoch\": ".to_owned(), "corrupt"),
        ("not a seat at all".to_owned(), "corrupt"),
        (String::new(), "corrupt"),
        (seat(2, 40).to_string(), "newer version"),
    ] {
        let sandbox = Sandbox::new();
        let url = sandbox.sqlite("t.db");
        let store = open(&sandbox.path("t.db"));
        put(&*store, &bad);
        for command in [&["status"][..], &["status", "--json"], &["step-down"]] {
            let ran = sandbox.tenure([command, &["--store", &url]].concat());
            let ran = ran.assert_code(6).assert_says(&[SEAT]);
            assert_eq!(ran.stdout, "");
        }
        let mut cluster = Cluster::new(&sandbox, &url, FAST);
        let life = cluster.start("pod-a");
        let said = cluster.event(0, life, "seat_unreadable");
        assert_eq!(said.text("problem"), problem, "{}", said.event);
        assert!(!said.text("detail").is_empty());
        // Longer than a first election takes: whoever wanted to overwrite it would have by now.
        std::thread::sleep(Duration::from_secs(2));
        assert!(cluster.is_running(life));
        assert_eq!(body(&*store), bad, "the seat is not ours to mend");
        assert!(cluster.history().iter().all(|said| said.name() != "became_leader"));

        // Mended by hand, it is taken up in the same process, with the next epoch.
        put(&*store, &seat(1, 41).to_string());
        let leader = cluster.leader(0);
        assert_eq!((leader.life, leader.epoch()), (life, 42));
        cluster.signal(life, Signal::TERM);
        assert_eq!(cluster.exit(life).code(), Some(0));
        cluster.finish();
    }
}

#[test]
fn an_endpoint_that_refuses_ends_a_node_with_its_own_code() {
    const DENIED: &str = "<?xml version=\"1.0\"?><Error><Code>AccessDenied</Code><Message>Access Denied.\
                          </Message></Error>";
    const NO_BUCKET: &str = "<?xml version=\"1.0\"?><Error><Code>NoSuchBucket</Code><Message>The specified bucket \
                             does not exist</Message></Error>";
    for (status, answer, word) in
        [("403 Forbidden", DENIED, "denied"), ("404 Not Found", NO_BUCKET, "bucket")]
    {
        let server = crate::common::net::Server::answering(status, answer);
        for command in
            [&["run", "--events", "--startup-jitter-max", "0"][..], &["status"], &["step-down"], &["doctor"]]
        {
            let sandbox = Sandbox::new();
            let mut tenure = sandbox.command();
            tenure.args(command).args(["--store", "s3://bucket/prefix"]);
            tenure.env("AWS_ENDPOINT_URL", server.url()).env("AWS_REGION", "us-east-1");
            tenure.env("AWS_ACCESS_KEY_ID", "key").env("AWS_SECRET_ACCESS_KEY", "secret");
            let ran = finish(tenure, PATIENCE).assert_code(4);
            let said = ran.stderr.to_lowercase();
            assert!(said.contains(word) && said.contains("refuses"), "{command:?}: {}", ran.stderr);
        }
    }
}

#[test]
fn an_endpoint_where_nobody_listens_is_said_to_be_away() {
    let sandbox = Sandbox::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    for command in ["status", "step-down", "doctor"] {
        let mut tenure = sandbox.command();
        tenure.args([command, "--store", "s3://bucket/prefix"]).env("AWS_ENDPOINT_URL", &url);
        tenure.env("AWS_ACCESS_KEY_ID", "key").env("AWS_SECRET_ACCESS_KEY", "secret");
        tenure.env("AWS_REGION", "us-east-1");
        finish(tenure, PATIENCE).assert_code(4).assert_says(&["the store does not answer"]);
    }
}
