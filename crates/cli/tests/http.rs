//! HTTP end to end: real nodes, real sockets.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests")]

mod common;

use common::{Killed, Sandbox};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);
const FAST: [&str; 4] = ["--preset", "fast", "--startup-jitter-max", "0"];

struct Served {
    child: Killed,
    address: SocketAddr,
    log: Arc<Mutex<String>>,
    token: Option<&'static str>,
}

struct Answer {
    status: u16,
    body: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {:?}", self.body))
    }
}

fn command(sandbox: &Sandbox, arguments: &[&str]) -> Command {
    let mut command = sandbox.command();
    command.env_remove("TENURE_NO_HTTP").arg("run").args(arguments).args(FAST);
    command
}

impl Served {
    /// A node that serves on a port of its own, which its log tells.
    fn start(mut command: Command, token: Option<&'static str>) -> Served {
        command.args(["--listen", "127.0.0.1:0"]).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = Killed(command.spawn().unwrap());
        let stderr = child.0.stderr.take().unwrap();
        let log = Arc::new(Mutex::new(String::new()));
        let (kept, (mouth, heard)) = (Arc::clone(&log), std::sync::mpsc::channel());
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                if let Some((_, address)) = line.split_once("http: listening on http://") {
                    let _ = mouth.send(address.to_owned());
                }
                kept.lock().unwrap().push_str(&(line + "\n"));
            }
        });
        let address = heard.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("{}", log.lock().unwrap()));
        Served { child, address: address.parse().unwrap(), log, token }
    }

    fn ask(&self, method: &str, path: &str, body: Option<Value>) -> Answer {
        self.ask_as(self.token, method, path, body)
    }

    fn ask_as(&self, token: Option<&str>, method: &str, path: &str, body: Option<Value>) -> Answer {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let body = body.map(|body| body.to_string()).unwrap_or_default();
        let token = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\n{token}Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            self.address,
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        Answer { status: head.split(' ').nth(1).unwrap().parse().unwrap(), body: body.to_owned() }
    }

    fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, None)
    }

    fn until(&self, path: &str, status: u16) {
        let deadline = Instant::now() + PATIENCE;
        while self.get(path).status != status {
            assert!(Instant::now() < deadline, "{path} does not get {status}: {}", self.log.lock().unwrap());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn terminate(mut self) -> (std::process::ExitStatus, String, Duration) {
        let began = Instant::now();
        let pid = self.child.0.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        let status = self.child.0.wait().unwrap();
        let log = self.log.lock().unwrap().clone();
        (status, log, began.elapsed())
    }
}

#[test]
fn two_nodes_show_who_leads_and_hand_over_when_asked() {
    let sandbox = Sandbox::new();
    let store = sandbox.sqlite("t.db");
    let node = |name: &str| Served::start(command(&sandbox, &["--store", &store, "--node", name]), None);
    let a = node("pod-a");
    a.until("/leaderz", 200);
    let b = node("pod-b");
    b.until("/readyz", 200);
    let deadline = Instant::now() + PATIENCE;
    while b.get("/v1/leader").json()["leader"] != "pod-a" {
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(b.get("/leaderz").status, 503);
    let overview = b.get("/v1/overview").json();
    assert_eq!((&overview["node"], &overview["leader"]["node"]), (&json!("pod-b"), &json!("pod-a")));
    let cli: Value =
        serde_json::from_str(&sandbox.tenure(["status", "--json", "--store", &store]).stdout).unwrap();
    let http = b.get("/v1/status").json();
    let names = |value: &Value| value["leader"].as_object().unwrap().keys().cloned().collect::<Vec<String>>();
    assert_eq!(names(&cli), names(&http), "the same names");
    // A worker by way of the standby, in no language at all.
    let worker = b.ask("POST", "/v1/workers", Some(json!({"workerId": "w1"})));
    assert_eq!((worker.status, &worker.json()["enabled"]), (201, &json!(false)), "its node does not lead");
    let sign = json!({"registration": worker.json()["registration"]});
    let asked = b.ask("POST", "/v1/step-down", Some(json!({"waitMs": 5000})));
    assert_eq!((asked.status, &asked.json()["asked"]["node"]), (202, &json!("pod-a")), "{}", asked.body);
    b.until("/leaderz", 200);
    let heard = b.ask("POST", "/v1/workers/w1/heartbeat", Some(sign)).json();
    assert_eq!((&heard["enabled"], &heard["epoch"]), (&json!(true), &json!(2)));
    let history = a.get("/v1/overview").json()["history"].clone();
    assert_eq!((&history[0]["node"], &history[1]["node"]), (&json!("pod-a"), &json!("pod-b")), "{history}");
    assert!(history[0]["reason"].is_string() && history[0]["until"].is_string());

    // Streams do not hold up the end, and the worker is deregistered in order.
    let mut stream = TcpStream::connect(b.address).unwrap();
    stream.write_all(b"GET /v1/events?recent=5 HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let (status, log, took) = b.terminate();
    assert!(status.success() && took < Duration::from_secs(5), "{took:?}: {log}");
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.contains("\"event\":") && text.ends_with("0\r\n\r\n"), "{text}");
    let workers: Value =
        serde_json::from_str(&sandbox.tenure(["workers", "--json", "--store", &store]).stdout).unwrap();
    assert_eq!(workers["workers"], json!([]), "{workers}");
}

#[test]
fn marked_credentials_are_in_no_answer_and_no_log() {
    const TOKEN: &str = "MARKED-http-token-0001";
    let sandbox = Sandbox::new();
    let file = sandbox.path("token");
    std::fs::write(&file, format!("{TOKEN}\n")).unwrap();
    let mut command =
        command(&sandbox, &["--store", &sandbox.sqlite("t.db"), "--http-token-file", file.to_str().unwrap()]);
    command
        .env("AWS_ACCESS_KEY_ID", "MARKEDkey")
        .env("AWS_SECRET_ACCESS_KEY", "MARKEDsecret")
        .env("TENURE_LOG", "trace");
    command.env("TENURE_HTTP_TOKEN", "MARKED-not-used-0001");
    let served = Served::start(command, Some(TOKEN));
    served.until("/leaderz", 200);
    let document = served.get("/openapi.json").json();
    for (path, item) in document["paths"].as_object().unwrap() {
        if path == "/v1/events" {
            continue;
        }
        for method in item.as_object().unwrap().keys() {
            let path = path.replace("{id}", "x");
            let answer =
                served.ask(&method.to_uppercase(), &path, Some(json!({"registration": "x", "waitMs": 0})));
            assert!(!answer.body.contains("MARKED"), "{method} {path}: {}", answer.body);
            assert!(answer.status != 401 && answer.status != 500, "{method} {path}: {}", answer.body);
        }
    }
    assert_eq!(served.ask_as(None, "GET", "/v1/leader", None).status, 401);
    assert_eq!(
        served.ask_as(Some("MARKED-not-used-0001"), "GET", "/v1/leader", None).status,
        401,
        "the file goes first"
    );
    let (_, log, _) = served.terminate();
    assert!(log.len() > 500 && !log.contains("MARKED"), "{log}");
}

#[test]
fn a_taken_port_is_a_warning_and_the_node_leads() {
    let sandbox = Sandbox::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let mut command =
        command(&sandbox, &["--store", &sandbox.sqlite("t.db"), "--events", "--listen", &address]);
    let mut child = Killed(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    let mut events = BufReader::new(child.0.stdout.take().unwrap()).lines();
    assert!(events.any(|line| line.unwrap().contains("became_leader")), "it leads all the same");
    child.0.kill().unwrap();
    let mut log = String::new();
    child.0.stderr.take().unwrap().read_to_string(&mut log).unwrap();
    let warnings: Vec<&str> = log.lines().filter(|line| line.contains("http:")).collect();
    assert!(warnings.len() == 1 && warnings[0].contains("WARN") && warnings[0].contains(&address), "{log}");
}

#[test]
fn others_are_kept_out_by_a_token_or_not_served_at_all() {
    let sandbox = Sandbox::new();
    let store = sandbox.sqlite("t.db");
    let run = |more: &[&str], token: Option<&str>| {
        let mut command = command(&sandbox, &[&["--store", &store][..], more].concat());
        if let Some(token) = token {
            command.env("TENURE_HTTP_TOKEN", token);
        }
        common::finish(command, PATIENCE)
    };
    for open in ["0.0.0.0:0", "[::]:0", "192.0.2.1:7420"] {
        let ran = run(&["--listen", open], None).assert_code(2);
        assert!(ran.stderr.contains("bearer token") && ran.stderr.contains("loopback"), "{}", ran.stderr);
    }
    let secret = "MARKED with spaces in it";
    let ran = run(&[], Some(secret)).assert_code(2);
    assert!(ran.stderr.contains("TENURE_HTTP_TOKEN") && !ran.stderr.contains("MARKED"), "{}", ran.stderr);
    run(&[], Some("")).assert_code(2);
    let missing = run(&["--http-token-file", "nowhere"], None).assert_code(2);
    assert!(missing.stderr.contains("nowhere"), "{}", missing.stderr);
    run(&["--listen", "7420"], None).assert_code(2);
    run(&["--http-host", "a b"], None).assert_code(2);
    assert!(sandbox.contents().is_empty(), "nothing was written: {:?}", sandbox.contents().keys());
}

/// The code blocks of a page in this language.
fn blocks(page: &str, language: &str) -> Vec<String> {
    let mut all = Vec::new();
    for part in page.split(&format!("```{language}\n")).skip(1) {
        all.push(part.split("```").next().unwrap().to_owned());
    }
    all
}

#[test]
fn the_examples_of_the_guide_run() {
    let page = include_str!("../../../docs/guide/http.md");
    let sandbox = Sandbox::new();
    let served =
        Served::start(command(&sandbox, &["--store", &sandbox.sqlite("t.db"), "--node", "pod-a"]), None);
    served.until("/leaderz", 200);
    for (language, program, file, says) in [
        ("sh", "sh", "look.sh", "\"leader\":\"pod-a\""),
        ("python", "python3", "worker.py", "may work: True in epoch 1"),
        ("js", "node", "events.mjs", "pod-a leads in epoch 1"),
    ] {
        let found = blocks(page, language);
        assert_eq!(found.len(), 1, "{language}");
        let path = sandbox.path(file);
        std::fs::write(&path, &found[0]).unwrap();
        let ran =
            Command::new(program).arg(&path).env("TENURE", format!("http://{}", served.address)).output();
        let Ok(ran) = ran else {
            eprintln!("NOT RUN: {program} is not there, so the {language} example was not tried");
            continue;
        };
        let (stdout, stderr) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
        assert!(ran.status.success(), "{language}: {stdout}{stderr}");
        assert!(stdout.contains(says), "{language}: {stdout}{stderr}");
    }
    assert_eq!(served.get("/v1/workers").json()["workers"], json!([]), "the worker of the example has left");
}
