//! A failing nightly command, from the webhook to its output, with real processes and a real receiver.

use crate::common::net::Server;
use crate::common::{Cluster, PATIENCE, STEADY, Sandbox, finish};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// Whoever is waited for looks often.
const EAGER: &[&str] = &["--job-poll-interval", "100ms", "--job-idle-interval", "500ms"];

/// Takes requests and tells their path, headers and body. The first one of each id gets no answer but a closed connection.
fn receiver() -> (Server, Receiver<(String, String, Value)>) {
    let (send, told) = channel();
    let refused = Mutex::new(Vec::new());
    (Server::start(move |stream| take(stream, &mut refused.lock().expect("no panic"), &send)), told)
}

fn take(stream: TcpStream, refused: &mut Vec<String>, send: &Sender<(String, String, Value)>) {
    let mut reader = BufReader::new(stream);
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 || line.trim().is_empty() {
            break;
        }
        if let Some((name, value)) =
            line.split_once(':').filter(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        {
            length = value.trim().parse().unwrap_or_else(|_| panic!("{name}: {value}"));
        }
        head.push_str(&line);
    }
    let mut body = vec![0; length];
    if reader.read_exact(&mut body).is_err() {
        return;
    }
    let body: Value = serde_json::from_slice(&body).expect("JSON");
    let id = body["id"].as_str().expect("an id").to_owned();
    if !refused.contains(&id) {
        refused.push(id);
        let _ = reader.get_ref().shutdown(Shutdown::Both);
        return;
    }
    // If it does not want the answer, it asks again.
    let _ = reader
        .get_mut()
        .write_all(b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    let path = head.lines().next().unwrap_or_default().to_owned();
    let _ = send.send((path, head.to_lowercase(), body));
}

#[test]
fn nt1_a_failed_job_is_posted_to_the_webhook() {
    let sandbox = Sandbox::new();
    let store = sandbox.sqlite("t.db");
    let (server, told) = receiver();
    let url = format!("http://{}/told/secret", server.address);
    let mut cluster = Cluster::new(&sandbox, &store, &[STEADY, EAGER].concat());
    let node = cluster.start_args("pod-a", &["--webhook-file", &sandbox.secret("webhook", &url)]);
    let agent = cluster.start_agent(&["--id", "a1", "--allow-command", "/bin/sh **"]);
    cluster.wait_log(agent, "takes jobs");
    let tenure = |arguments: &[&str]| sandbox.tenure_on(&store, arguments);
    let add = [
        "schedule",
        "add",
        "nightly",
        "--manual",
        "--attempts",
        "1",
        "--",
        "/bin/sh",
        "-c",
        "echo no disk; exit 3",
    ];
    tenure(&add).assert_code(0);
    tenure(&["schedule", "run-now", "nightly", "--name", "one"]).assert_code(0);
    let (path, head, body) = told.recv_timeout(PATIENCE).expect("it is told");
    assert_eq!(path, "POST /told/secret HTTP/1.1");
    assert!(head.contains("tenure-notice: job_failed-"), "{head}");
    assert_eq!(
        (&body["event"], &body["schedule"], &body["job"], &body["attempt"], &body["attempts"]),
        (&json!("job_failed"), &json!("nightly"), &json!("nightly.run.one"), &json!(1), &json!(1)),
        "{body}"
    );
    assert!(body["reason"].as_str().is_some_and(|reason| reason.contains("no disk")), "{body}");
    // From there to what it printed, without the node.
    assert_eq!(tenure(&["job", "logs", "nightly.run.one"]).assert_code(0).stdout, "no disk\n");
    let listed = tenure(&["schedule", "ls"]).assert_code(0).stdout;
    assert!(listed.contains("failed"), "{listed}");
    let degraded = Instant::now() + PATIENCE;
    while !tenure(&["health"]).stdout.contains("nightly") {
        assert!(Instant::now() < degraded, "health does not know of it");
        std::thread::sleep(Duration::from_millis(200));
    }
    cluster.wait_log(node, "job nightly.run.one failed after 1 attempt: ");
    assert!(!cluster.log(node).contains("secret"), "the address may be a secret");
}

#[test]
fn a_webhook_that_is_none_is_refused_without_its_value() {
    let sandbox = Sandbox::new();
    let store = sandbox.sqlite("t.db");
    let refused = |variables: &[(&str, &str)], arguments: &[&str], words: &[&str]| {
        let mut command = sandbox.command();
        command.args(arguments).args(["--store", &store]).envs(variables.iter().copied());
        let ran = finish(command, PATIENCE).assert_code(2).assert_says(words);
        assert!(!ran.stderr.contains("MARKED"), "{}", ran.stderr);
    };
    let (rule, good) = ("must be an http:// or https:// URL", "https://hooks.example.org/MARKED");
    let file = sandbox.secret("webhook", "hooks.example.org/MARKED\n");
    refused(&[], &["run", "--webhook-file", &file], &["--webhook-file", rule]);
    refused(&[("TENURE_WEBHOOK", "hooks.example.org/MARKED")], &["run"], &["TENURE_WEBHOOK", rule]);
    refused(&[("TENURE_WEBHOOK_FILE", &file)], &["run"], &["webhook", rule]);
    refused(&[("TENURE_WEBHOOK", good)], &["run", "--no-schedules"], &["TENURE_WEBHOOK", "--no-schedules"]);
    let add = ["schedule", "add", "web", "--manual", "--kind", "mail"];
    refused(&[], &[&add[..], &["--webhook-file", &file]].concat(), &["webhook", rule]);
    refused(&[], &[&add[..], &["--webhook", "hooks.example.org/MARKED"]].concat(), &["webhook", rule]);
    // A flag would show it to everybody in the list of processes.
    refused(&[], &["run", "--webhook", good], &["--webhook-file"]);
    let mut known = sandbox.command();
    known.args(["config", "check"]).env("TENURE_WEBHOOK", good).env("TENURE_WEBHOOK_FILE", &file);
    let known = finish(known, PATIENCE).assert_code(0);
    assert!(!known.stderr.contains("TENURE_WEBHOOK"), "these are names of ours: {}", known.stderr);
    let open = sandbox.secret("open", good);
    std::fs::set_permissions(&open, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    for verb in [&["run"][..], &add] {
        refused(&[], &[verb, &["--webhook-file", &open]].concat(), &["--webhook-file", "0644", "chmod 600"]);
    }
}

#[test]
fn the_address_of_a_webhook_is_told_by_export_alone() {
    let sandbox = Sandbox::new();
    let store = sandbox.sqlite("t.db");
    let tenure = |arguments: &[&str]| sandbox.tenure_on(&store, arguments);
    let file = sandbox.secret("webhook", "https://hooks.example.org/T0/MARKED\n");
    let add = ["schedule", "add", "web", "--manual", "--kind", "mail", "--webhook-file", &file];
    tenure(&[&add[..], &["--json"]].concat()).assert_code(0);
    for look in [
        &["schedule", "ls"][..],
        &["schedule", "ls", "--json"],
        &["schedule", "show", "web"],
        &["schedule", "show", "web", "--json"],
    ] {
        let ran = tenure(look).assert_code(0);
        assert!(!ran.stdout.contains("MARKED") && !ran.stderr.contains("MARKED"), "{look:?}: {ran:?}");
    }
    let shown = tenure(&["schedule", "show", "web", "--json"]).json();
    assert_eq!(shown["schedule"]["webhook"], "https://hooks.example.org/…");
    let exported = tenure(&["schedule", "export"]).assert_code(0).stdout;
    assert!(exported.contains("https://hooks.example.org/T0/MARKED"), "{exported}");
    let again = sandbox.write("again.yaml", &exported);
    assert!(tenure(&["apply", "-f", &again]).assert_code(0).stdout.contains("unchanged web"));
}
