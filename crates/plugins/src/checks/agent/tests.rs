//! Real sockets and real programs: these tests cover how they are called, not timing.

use super::*;
use crate::schedules::{Rules, read_file};
use std::net::SocketAddr;
use tenure::async_trait;
use tenure::id::{JobId, KindName};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// The checks of a schedule file.
fn specs(checks: &str) -> Vec<Result<CheckSpec, String>> {
    let rules = Rules {
        own_kinds: ["odd", "nobodys"].iter().map(|kind| KindName::new(kind).expect("valid")).collect(),
    };
    let text = format!("[{{id: web, manual: true, checks: [{checks}]}}]");
    let schedule = read_file(&text, &rules).expect("valid").pop().expect("one");
    schedule.checks.into_iter().map(Ok).collect()
}

fn facts() -> JobRun {
    JobRun { job: JobId::new("web-60000").expect("valid"), attempt: 2, epoch: 7 }
}

async fn run(checks: &Checks, texts: &str) -> Vec<String> {
    let results = checks.all(&facts(), specs(texts)).await;
    results.into_iter().map(|result| if result.ok { "ok".to_owned() } else { result.detail }).collect()
}

/// Answers every request with this status line.
async fn server(answer: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut buffer = [0; 2048];
            // The request does not matter.
            let _ = stream.read(&mut buffer).await;
            let text = format!(
                "HTTP/1.1 {answer}\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            );
            let _ = stream.write_all(text.as_bytes()).await;
        }
    });
    address
}

#[tokio::test]
async fn http_judges_by_the_status() {
    let checks = Checks::new().expect("a client");
    for (answer, more, expected) in [
        ("200 OK", "", "ok"),
        ("302 Found", "", "ok"),
        ("503 Busy", "", "status 503"),
        ("503 Busy", ", status: 503", "ok"),
        ("200 OK", ", status: 204, method: HEAD", "status 200, not 204"),
    ] {
        let address = server(answer).await;
        let text = format!("{{name: a, kind: http, url: 'http://{address}/x'{more}}}");
        assert_eq!(run(&checks, &text).await, [expected], "{answer}{more}");
    }
}

#[tokio::test]
async fn http_says_for_which_job_attempt_and_epoch_it_asks() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let heard = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        let mut buffer = [0; 2048];
        let read = stream.read(&mut buffer).await.expect("a request");
        stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.expect("an answer");
        String::from_utf8_lossy(&buffer[..read]).to_lowercase()
    });
    let text = format!("{{name: a, kind: http, url: 'http://{address}/x'}}");
    assert_eq!(run(&Checks::new().expect("a client"), &text).await, ["ok"]);
    let heard = heard.await.expect("no panic");
    for header in ["tenure-job: web-60000", "tenure-attempt: 2", "tenure-epoch: 7"] {
        assert!(heard.contains(header), "{header} is not in {heard}");
    }
}

#[tokio::test]
async fn what_does_not_answer_fails_with_its_reason_and_the_others_are_done() {
    let silent = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let closed = {
        let gone = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        gone.local_addr().expect("an address").port()
    };
    let (address, port) =
        (silent.local_addr().expect("an address"), silent.local_addr().expect("an address").port());
    let text = format!(
        "{{name: a, kind: http, url: 'http://{address}/', timeout: 200ms}},
         {{name: b, kind: tcp, host: 127.0.0.1, port: {port}}},
         {{name: c, kind: tcp, host: 127.0.0.1, port: {closed}}},
         {{name: d, kind: http, url: 'http://127.0.0.1:{closed}/'}},
         {{name: e, kind: dns, host: localhost}},
         {{name: g, kind: command, program: /bin/true}},
         {{name: h, kind: nobodys}}"
    );
    let results = run(&Checks::new().expect("a client"), &text).await;
    assert_eq!(results[0], "no answer within 200 ms");
    assert_eq!(results[1], "ok");
    assert!(results[2].contains("refused"), "{results:?}");
    assert!(results[3].contains("refused") && !results[3].contains("http"), "{results:?}");
    assert_eq!(results[4], "ok");
    assert_eq!(results[5], "this agent does not run checks of kind command", "off unless allowed");
    assert_eq!(results[6], "this agent does not run checks of kind nobodys");
}

#[tokio::test]
async fn commands_run_only_if_the_agent_allows_them() {
    let allowed = ["/bin/sh -c **", "/bin/true"].map(|command| command.parse().expect("valid"));
    let checks = Checks::none().commands(allowed);
    let sh = |name: &str, script: &str| {
        format!("{{name: {name}, kind: command, program: /bin/sh, timeout: 5s, args: [-c, {script:?}]}}")
    };
    let texts = [
        "{name: a, kind: command, program: /bin/true}".to_owned(),
        "{name: b, kind: command, program: /bin/false}".to_owned(),
        sh("c", "echo broken >&2; exit 3"),
        // More than a pipe holds: a reader that does not drain it hangs here.
        sh("d", "head -c 300000 /dev/zero >&2; exit 1"),
        sh("e", "test -z \"$CARGO_MANIFEST_DIR\" && test -n \"$PATH\""),
        "{name: f, kind: command, program: /bin/sh, timeout: 100ms, args: [-c, 'sleep 60']}".to_owned(),
        sh("g", "read line"),
        sh("h", "test \"$TENURE_JOB/$TENURE_ATTEMPT/$TENURE_EPOCH\" = web-60000/2/7"),
    ];
    let results = run(&checks, &texts.join(", ")).await;
    assert_eq!(results[0], "ok");
    assert_eq!(results[1], "this agent does not allow this command with these arguments");
    assert_eq!(results[2], "exit status: 3: broken");
    assert!(results[3].starts_with("exit status: 1") && results[3].len() < 400, "{}", results[3]);
    assert_eq!(results[4], "ok", "nothing of the agent's environment that is not known to be harmless");
    assert_eq!(results[5], "no answer within 100 ms");
    assert!(results[6].starts_with("exit status: 1"), "nothing to read: {results:?}");
    assert_eq!(results[7], "ok", "it is told for what it runs");
}

#[tokio::test]
async fn link_local_addresses_are_not_asked() {
    let near = "{name: a, kind: http, url: 'http://[::ffff:169.254.1.2]/', timeout: 300ms},
                {name: b, kind: http, url: 'http://0xa9fe0102/', timeout: 300ms},
                {name: c, kind: tcp, host: 169.254.1.2, port: 80, timeout: 300ms}";
    for told in run(&Checks::new().expect("a client"), near).await {
        assert!(told.contains("link-local") && told.contains("--allow-link-local"), "{told}");
    }
    // A name is looked up on the way, and the check continues as long as one address is left.
    let address = server("200 OK").await;
    let named = format!("{{name: a, kind: http, url: 'http://localhost:{}/'}}", address.port());
    assert_eq!(run(&Checks::new().expect("a client"), &named).await, ["ok"]);
}

struct Odd;

#[async_trait]
impl Check for Odd {
    async fn check(&self, _: &JobRun, spec: &CheckSpec) -> Result<(), String> {
        match spec.name.as_str() {
            "panics" => panic!("on purpose"),
            "talks" => Err("x".repeat(100_000)),
            _ => Ok(()),
        }
    }
}

#[tokio::test]
async fn a_kind_of_ones_own_may_panic_and_talk_too_much() {
    let checks = Checks::none().on("odd", Odd).expect("valid");
    let results =
        run(&checks, "{name: panics, kind: odd}, {name: talks, kind: odd}, {name: fine, kind: odd}").await;
    assert_eq!((results[0].as_str(), results[2].as_str()), ("it panicked", "ok"));
    assert!(results[1].len() < 200);
    assert!(Checks::none().on("no/kind", Odd).is_err());
}

#[test]
fn a_job_of_another_version_is_not_understood() {
    let rules = Rules::default();
    let job = |v: u64| {
        format!(r#"{{"v": {v}, "due": 5, "names": "x", "checks": [{{"name": "a", "kind": "later"}}]}}"#)
    };
    let read = Job::read(job(1).as_bytes(), &rules).expect("readable");
    assert_eq!(read.due_ms, 5);
    let why = read.checks[0].as_ref().expect_err("unknown");
    assert!(why.contains("is not a known kind of check"), "{why}");
    assert!(Job::read(job(2).as_bytes(), &rules).is_none());
    assert!(Job::read(b"nonsense", &rules).is_none());
}
