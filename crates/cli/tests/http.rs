//! HTTP end to end: real nodes, real sockets.

use crate::common::{Killed, PATIENT, STEADY, Sandbox};
use crate::page::{Block, blocks};
use serde_json::{Value, json};
use std::fs::Permissions;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);

struct Served {
    child: Killed,
    address: SocketAddr,
    log: Arc<Mutex<String>>,
    /// For changes.
    token: String,
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
    run(sandbox, STEADY, arguments)
}

fn run(sandbox: &Sandbox, settings: &[&str], arguments: &[&str]) -> Command {
    let mut command = sandbox.command();
    command.env_remove("TENURE_NO_HTTP").arg("run").args(arguments).args(settings);
    command
}

impl Served {
    /// A node that serves on a port of its own, which its log tells.
    fn start(sandbox: &Sandbox, mut command: Command, token: Option<&str>) -> Served {
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
        let token = token.map_or_else(|| sandbox.http_token(), str::to_owned);
        Served { child, address: address.parse().unwrap(), log, token }
    }

    fn ask(&self, method: &str, path: &str, body: Option<Value>) -> Answer {
        self.ask_as(Some(&self.token), method, path, body)
    }

    /// With this name in the Host header.
    fn get_as(&self, host: &str, path: &str) -> Answer {
        self.send(host, None, "GET", path, None)
    }

    fn ask_as(&self, token: Option<&str>, method: &str, path: &str, body: Option<Value>) -> Answer {
        self.send(&self.address.to_string(), token, method, path, body)
    }

    fn send(&self, host: &str, token: Option<&str>, method: &str, path: &str, body: Option<Value>) -> Answer {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let body = body.map(|body| body.to_string()).unwrap_or_default();
        let token = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\n{token}Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
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
        self.until_answer(path, |answer| answer.status == status);
    }

    /// Waits for a document that is as wanted.
    fn until_json(&self, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        self.until_answer(path, |answer| wanted(&answer.json())).json()
    }

    fn until_answer(&self, path: &str, wanted: impl Fn(&Answer) -> bool) -> Answer {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let answer = self.get(path);
            if wanted(&answer) {
                return answer;
            }
            let (status, body, log) = (answer.status, answer.body, self.log.lock().unwrap().clone());
            assert!(Instant::now() < deadline, "{path} stays {status}: {body}\n{log}");
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
fn ob1_a_node_that_is_not_eligible_names_the_leader_over_http() {
    let sandbox = Sandbox::new();
    let store = sandbox.sqlite("t.db");
    let start = |name: &str, more: &[&str]| {
        let command = command(&sandbox, &[&["--store", &store, "--node", name], more].concat());
        Served::start(&sandbox, command, None)
    };
    let a = start("pod-a", &[]);
    a.until("/leaderz", 200);
    let outsider = start("pod-x", &["--eligible", "false"]);
    outsider.until_json("/v1/leader", |seen| seen["leader"] == "pod-a");
    let stale = outsider.ask("POST", "/v1/fence", Some(json!({"epoch": 0})));
    assert_eq!((stale.status, &stale.json()["verdict"]), (200, &json!("reject_stale")));
    assert_eq!(outsider.get("/readyz").status, 200);
    let (status, ..) = a.terminate();
    assert!(status.success());
    outsider.until_json("/v1/leader", |seen| seen["leader"].is_null());
}

#[test]
fn ob2_a_killed_leader_is_gone_over_http_once_another_leads() {
    let sandbox = Sandbox::new();
    let store = sandbox.sqlite("t.db");
    let node = |name: &str| {
        Served::start(&sandbox, run(&sandbox, PATIENT, &["--store", &store, "--node", name]), None)
    };
    let mut a = node("pod-a");
    a.until("/leaderz", 200);
    let b = node("pod-b");
    b.until("/readyz", 200);
    // Looked at before, so that something old could be shown.
    assert_eq!(b.get("/v1/nodes").status, 200);
    a.child.0.kill().unwrap();
    b.until("/leaderz", 200);
    let nodes = b.get("/v1/nodes").json();
    let rows = nodes["nodes"].as_array().unwrap();
    let shown: Vec<(&Value, &Value)> = rows.iter().map(|row| (&row["role"], &row["state"])).collect();
    assert_eq!(shown[0], (&json!("gone"), &json!("down")), "{nodes}");
    assert_eq!(shown[1].0, &json!("leader"), "{nodes}");
    let overview = b.get("/v1/overview").json();
    assert_eq!(
        (&overview["leader"]["node"], &overview["nodes"][0]["role"]),
        (&json!("pod-b"), &json!("gone"))
    );
    b.until_json("/v1/health/cluster", |health| health["reasons"][0]["code"] == "node_down");
}

/// A node that cannot reach its store is not ready, whatever it was before.
#[test]
fn a_node_whose_store_is_gone_is_not_ready() {
    let sandbox = Sandbox::new();
    let store = sandbox.sqlite("t.db");
    let a = Served::start(&sandbox, run(&sandbox, PATIENT, &["--store", &store, "--node", "pod-a"]), None);
    a.until("/readyz", 200);
    for file in ["t.db", "t.db-wal", "t.db-shm"] {
        let _ = std::fs::remove_file(sandbox.path(file));
    }
    a.until("/readyz", 503);
    assert!(a.get("/readyz").body.contains("the store does not answer"), "{}", a.get("/readyz").body);
}

#[test]
fn two_nodes_show_who_leads_and_hand_over_when_asked() {
    let sandbox = Sandbox::new();
    let store = sandbox.sqlite("t.db");
    let node =
        |name: &str| Served::start(&sandbox, command(&sandbox, &["--store", &store, "--node", name]), None);
    let a = node("pod-a");
    a.until("/leaderz", 200);
    let b = node("pod-b");
    b.until("/readyz", 200);
    b.until_json("/v1/leader", |seen| seen["leader"] == "pod-a");
    assert_eq!(b.get("/leaderz").status, 503);
    let own = rustix::system::uname().nodename().to_string_lossy().into_owned();
    assert_eq!(b.get_as(&own, "/v1/leader").status, 200, "this machine's own name is its to answer to");
    assert_eq!(b.get_as("elsewhere.example", "/v1/leader").status, 421);
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
    // The former leader learns it with its next look.
    let overview = a.until_json("/v1/overview", |seen| seen["history"][1]["node"] == "pod-b");
    let history = &overview["history"];
    assert_eq!(history[0]["node"], "pod-a", "{history}");
    assert!(history[0]["reason"].is_string() && history[0]["until"].is_string());

    // Streams do not hold up the end, and the worker is deregistered in order.
    let mut stream = TcpStream::connect(b.address).unwrap();
    stream.write_all(b"GET /v1/events?recent=5 HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let (mut text, mut piece) = (String::new(), [0; 4096]);
    while !text.contains("\"event\":") {
        let read = stream.read(&mut piece).unwrap();
        assert!(read > 0, "it ended without an event: {text}");
        text.push_str(&String::from_utf8_lossy(&piece[..read]));
    }
    let (status, log, took) = b.terminate();
    assert!(status.success() && took < Duration::from_secs(5), "{took:?}: {log}");
    stream.read_to_string(&mut text).unwrap();
    assert!(text.ends_with("0\r\n\r\n"), "{text}");
    let workers: Value =
        serde_json::from_str(&sandbox.tenure(["workers", "--json", "--store", &store]).stdout).unwrap();
    assert_eq!(workers["workers"], json!([]), "{workers}");
}

#[test]
fn marked_credentials_are_in_no_answer_and_no_log() {
    const TOKEN: &str = "MARKED-http-token-0001";
    const READER: &str = "MARKED-http-reader-0001";
    let sandbox = Sandbox::new();
    let file = sandbox.path("token");
    secret(&file, TOKEN, 0o600);
    let reader = sandbox.path("reader");
    secret(&reader, READER, 0o400);
    let mut command =
        command(&sandbox, &["--store", &sandbox.sqlite("t.db"), "--http-token-file", file.to_str().unwrap()]);
    command.arg("--http-read-token-file").arg(&reader);
    command
        .env("AWS_ACCESS_KEY_ID", "MARKEDkey")
        .env("AWS_SECRET_ACCESS_KEY", "MARKEDsecret")
        .env("TENURE_LOG", "trace");
    command.env("TENURE_HTTP_TOKEN", "MARKED-not-used-0001");
    command.env("TENURE_HTTP_READ_TOKEN", "MARKED-not-used-0002");
    let served = Served::start(&sandbox, command, Some(TOKEN));
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
    assert_eq!(served.ask_as(Some(READER), "GET", "/v1/leader", None).status, 200);
    assert_eq!(served.ask_as(Some(READER), "POST", "/v1/step-down", None).status, 403);
    assert_eq!(served.ask_as(Some("MARKED-not-used-0002"), "GET", "/v1/leader", None).status, 401);
    assert!(!sandbox.path(".local/share/tenure/http-token").exists(), "none is made where one is given");
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

fn secret(path: &Path, token: &str, mode: u32) {
    std::fs::write(path, format!("{token}\n")).unwrap();
    std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().mode() & 0o7777
}

#[test]
fn a_local_account_without_the_token_changes_nothing() {
    let sandbox = Sandbox::new();
    // A data directory from before, which others could look into.
    std::fs::create_dir_all(sandbox.path(".local/share/tenure")).unwrap();
    std::fs::set_permissions(sandbox.path(".local/share/tenure"), Permissions::from_mode(0o755)).unwrap();
    let missing = sandbox.tenure(["token"]).assert_code(1);
    assert!(missing.stderr.contains("tenure run"), "{}", missing.stderr);
    let store = sandbox.sqlite("t.db");
    let served = Served::start(&sandbox, command(&sandbox, &["--store", &store]), None);
    served.until("/leaderz", 200);
    assert_eq!(mode(&sandbox.path(".local/share/tenure")), 0o700);
    let path = sandbox.tenure(["token", "--path"]).assert_code(0).stdout;
    assert_eq!(mode(Path::new(path.trim())), 0o600);
    let shown = sandbox.tenure(["token"]).assert_code(0).stdout;
    assert_eq!(shown.trim(), served.token);
    assert!(served.token.len() == 64 && served.token.bytes().all(|byte| byte.is_ascii_hexdigit()));

    let schedule = json!({"every": "1h", "checks": [{"name": "x", "kind": "tcp", "host": "h", "port": 1}]});
    for token in [None, Some("0123456789abcdef"), Some("")] {
        for (method, path, body) in [
            ("PUT", "/v1/schedules/evil", &schedule),
            ("POST", "/v1/schedules/evil/run-now", &json!({})),
            ("POST", "/v1/step-down", &json!({})),
            ("POST", "/v1/workers", &json!({"workerId": "w1"})),
        ] {
            let answer = served.ask_as(token, method, path, Some(body.clone()));
            assert_eq!(answer.status, 401, "{method} {path}: {}", answer.body);
        }
        assert_eq!(served.ask_as(token, "GET", "/v1/leader", None).json()["epoch"], 1, "reads stay open");
        assert_eq!(served.ask_as(token, "POST", "/v1/fence", Some(json!({"epoch": 1}))).status, 200);
    }
    let listed = sandbox.tenure(["schedule", "list", "--json", "--store", &store]).assert_code(0).json();
    assert_eq!(listed["schedules"], json!([]));
    assert_eq!(served.ask("PUT", "/v1/schedules/good", Some(schedule)).status, 201);

    // Another node of the same user has the same token, and no log has it.
    let other = Served::start(&sandbox, command(&sandbox, &["--store", &store]), None);
    assert_eq!(other.token, served.token);
    for served in [served, other] {
        let token = served.token.clone();
        let (_, log, _) = served.terminate();
        assert!(log.contains("`tenure token` shows") && !log.contains(&token), "{log}");
    }
}

#[test]
fn a_token_that_others_can_read_is_refused() {
    let sandbox = Sandbox::new();
    let file = sandbox.path("token");
    let flags = ["--http-token-file", "--http-read-token-file"];
    for (bits, flag) in [(0o644, flags[0]), (0o620, flags[1]), (0o604, flags[0]), (0o660, flags[0])] {
        secret(&file, "MARKED-token-0123456789", bits);
        let run = command(&sandbox, &["--store", &sandbox.sqlite("t.db"), flag, file.to_str().unwrap()]);
        let ran = crate::common::finish(run, PATIENCE).assert_code(2);
        assert!(ran.stderr.contains(flag) && ran.stderr.contains(&format!("{bits:04o}")), "{}", ran.stderr);
        assert!(ran.stderr.contains("chmod 600") && !ran.stderr.contains("MARKED"), "{}", ran.stderr);
        assert_eq!(sandbox.contents().len(), 1, "nothing was written");
    }
    let file_flag = ["token", "--http-token-file", file.to_str().unwrap()];
    sandbox.tenure(file_flag).assert_code(2).assert_says(&["0660"]);
    // And so is the one it made itself, once somebody has opened it.
    let own = sandbox.path(".local/share/tenure/http-token");
    std::fs::create_dir_all(own.parent().unwrap()).unwrap();
    secret(&own, "MARKED-token-0123456789", 0o644);
    let run = command(&sandbox, &["--store", &sandbox.sqlite("t.db")]);
    crate::common::finish(run, PATIENCE).assert_code(2).assert_says(&["http-token", "0644", "chmod 600"]);
    sandbox.tenure(["token"]).assert_code(2).assert_says(&["0644"]);
}

#[test]
fn without_a_place_for_a_token_it_only_answers_questions_and_only_here() {
    let sandbox = Sandbox::new();
    let file = sandbox.write("no-directory", "");
    let store = sandbox.sqlite("t.db");
    let arguments = ["--store", &store, "--data-dir", &file];
    let open = [&arguments[..], &["--listen", "0.0.0.0:0"]].concat();
    let ran = crate::common::finish(command(&sandbox, &open), PATIENCE).assert_code(2);
    assert!(ran.stderr.contains("needs a token") && ran.stderr.contains("loopback"), "{}", ran.stderr);
    let served = Served::start(&sandbox, command(&sandbox, &arguments), Some("0123456789abcdef"));
    served.until("/leaderz", 200);
    assert_eq!(served.get("/v1/leader").status, 200);
    assert_eq!(served.ask("POST", "/v1/step-down", None).status, 403);
    let (_, log, _) = served.terminate();
    assert!(log.contains("http: read-only"), "{log}");
}

/// A container whose user has somebody else's home.
#[test]
fn a_home_that_is_closed_to_it_is_no_reason_not_to_run() {
    use std::os::unix::process::CommandExt;
    let sandbox = Sandbox::new();
    let closed = sandbox.path("closed");
    std::fs::create_dir(&closed).unwrap();
    let within = closed.join("tenure");
    let mut run = command(&sandbox, &["--store", "memory:", "--data-dir", within.to_str().unwrap()]);
    let (is_root, nobody) = (rustix::process::geteuid().is_root(), 65534);
    let modes = if is_root { (0o755, 0o700) } else { (0o700, 0o000) };
    std::fs::set_permissions(sandbox.home(), Permissions::from_mode(modes.0)).unwrap();
    std::fs::set_permissions(&closed, Permissions::from_mode(modes.1)).unwrap();
    if is_root {
        run.uid(nobody).gid(nobody);
    }
    let served = Served::start(&sandbox, run, Some("0123456789abcdef"));
    served.until("/leaderz", 200);
    assert_eq!(served.ask("POST", "/v1/step-down", None).status, 403);
    drop(served);
    std::fs::set_permissions(&closed, Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn what_is_wrong_with_a_token_is_said_before_anything_is_written() {
    let sandbox = Sandbox::new();
    let store = sandbox.sqlite("t.db");
    let run = |more: &[&str], token: Option<&str>| {
        let mut command = command(&sandbox, &[&["--store", &store][..], more].concat());
        if let Some(token) = token {
            command.env("TENURE_HTTP_TOKEN", token);
        }
        crate::common::finish(command, PATIENCE)
    };
    let secret = "MARKED with spaces in it";
    let ran = run(&[], Some(secret)).assert_code(2);
    assert!(ran.stderr.contains("TENURE_HTTP_TOKEN") && !ran.stderr.contains("MARKED"), "{}", ran.stderr);
    run(&[], Some("")).assert_code(2);
    let missing = run(&["--http-token-file", "nowhere"], None).assert_code(2);
    assert!(missing.stderr.contains("nowhere"), "{}", missing.stderr);
    run(&["--listen", "7420"], None).assert_code(2);
    run(&["--http-host", "a b"], None).assert_code(2);
    run(&["--worker", "../seat"], None).assert_code(2);
    assert!(sandbox.contents().is_empty(), "nothing was written: {:?}", sandbox.contents().keys());
}

#[test]
fn other_addresses_take_a_token_for_everything() {
    let sandbox = Sandbox::new();
    let mut command = command(&sandbox, &["--store", &sandbox.sqlite("t.db"), "--listen", "0.0.0.0:0"]);
    let mut child = Killed(command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap());
    let mut log = BufReader::new(child.0.stderr.take().unwrap()).lines().map_while(Result::ok);
    let port =
        log.find_map(|line| line.split_once("listening on http://0.0.0.0:").map(|(_, port)| port.to_owned()));
    let rest = std::thread::spawn(move || log.for_each(drop));
    let url = format!("http://127.0.0.1:{}", port.unwrap());
    // The CLI of the same user finds the token by itself; others do not have it.
    let own = sandbox.tenure(["events", "--url", &url]).assert_code(0);
    assert!(own.stderr.is_empty(), "{}", own.stderr);
    let stranger = Sandbox::new();
    let ran = stranger.tenure(["events", "--url", &url]).assert_code(1);
    assert!(ran.stderr.contains("rejected the token"), "{}", ran.stderr);
    drop(child);
    rest.join().unwrap();
}

/// The link with the token is for whoever sits at the terminal.
#[test]
fn on_a_terminal_the_link_with_the_token_is_printed() {
    let sandbox = Sandbox::new();
    let terminal =
        rustix::pty::openpt(rustix::pty::OpenptFlags::RDWR | rustix::pty::OpenptFlags::NOCTTY).unwrap();
    rustix::pty::grantpt(&terminal).unwrap();
    rustix::pty::unlockpt(&terminal).unwrap();
    let name = rustix::pty::ptsname(&terminal, Vec::new()).unwrap();
    let screen = std::fs::OpenOptions::new().read(true).write(true).open(name.to_str().unwrap()).unwrap();
    let mut command = command(&sandbox, &["--store", &sandbox.sqlite("t.db"), "--listen", "127.0.0.1:0"]);
    let child = Killed(command.stdout(Stdio::null()).stderr(Stdio::from(screen)).spawn().unwrap());
    drop(command); // It holds the other end open.
    let pid = rustix::process::Pid::from_child(&child.0);
    // Without a link the reading below would never end.
    let (found, ended) = std::sync::mpsc::channel::<()>();
    let watch = std::thread::spawn(move || {
        if ended.recv_timeout(PATIENCE) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        }
    });
    let mut shown = BufReader::new(std::fs::File::from(terminal)).lines().map_while(Result::ok);
    let line = shown.find(|line| line.contains("#token=")).expect("a link");
    drop(found);
    watch.join().unwrap();
    let (page, token) = line.trim().rsplit_once("/#token=").unwrap();
    assert!(page.contains("http://127.0.0.1:"), "{line}");
    assert_eq!(token, sandbox.http_token());
    drop(child);
}

/// A node is closed to its own user: only root can count.
fn open_files(child: &Killed) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", child.0.id())).map_or(0, Iterator::count)
}

#[test]
#[cfg(target_os = "linux")]
fn idle_connections_leave_files_to_the_store_and_probes_are_answered() {
    const FILES: usize = 200;
    let sandbox = Sandbox::new();
    let store = sandbox.sqlite("t.db");
    let plain = command(&sandbox, &["--store", &store]);
    let mut limited = Command::new("sh");
    limited.args(["-c", &format!("ulimit -n {FILES}; exec \"$0\" \"$@\"")]);
    limited.arg(plain.get_program()).args(plain.get_args()).current_dir(sandbox.home());
    for (name, value) in plain.get_envs() {
        value.map(|value| limited.env(name, value));
    }
    limited.env_remove("TENURE_NO_HTTP");
    let served = Served::start(&sandbox, limited, Some("only-reads-are-made"));
    served.until("/leaderz", 200);
    let mut held: Vec<TcpStream> = Vec::new();
    for round in 0..12 {
        held.extend((0..FILES / 4).map(|_| TcpStream::connect(served.address).unwrap()));
        for path in ["/livez", "/leaderz"] {
            let answer = served.ask_as(None, "GET", path, None);
            assert_eq!(answer.status, 200, "round {round}, {path}: {}", answer.body);
        }
        let open = open_files(&served.child);
        assert!(open <= FILES * 3 / 4, "round {round}: {open} files are open, of {FILES}");
    }
    assert_eq!(served.get("/v1/leader").json()["epoch"], 1, "it has led all the time");
}

#[test]
fn the_examples_of_the_guide_run() {
    let page = include_str!("../../../docs/guide/http.md");
    let sandbox = Sandbox::new();
    let served = Served::start(
        &sandbox,
        command(&sandbox, &["--store", &sandbox.sqlite("t.db"), "--node", "pod-a"]),
        None,
    );
    served.until("/leaderz", 200);
    for (language, program, file, says) in [
        ("sh", "sh", "look.sh", "\"leader\":\"pod-a\""),
        ("python", "python3", "worker.py", "may work: True in epoch 1"),
        ("js", "node", "events.mjs", "pod-a leads in epoch 1"),
    ] {
        let found: Vec<Block> = blocks(page).into_iter().filter(|block| block.language == language).collect();
        assert_eq!(found.len(), 1, "{language}");
        let path = sandbox.path(file);
        std::fs::write(&path, &found[0].text).unwrap();
        let mut command = Command::new(program);
        command.arg(&path).env("TENURE", format!("http://{}", served.address));
        let ran = command.env("TENURE_HTTP_TOKEN", &served.token).output();
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
