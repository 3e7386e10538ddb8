//! `tenure events` against a real node.

use crate::common::{Cluster, STEADY, Sandbox};
use rustix::process::Signal;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

#[test]
fn events_of_a_node_are_printed_and_followed_through_its_restart() {
    let sandbox = Sandbox::new();
    let mut cluster = Cluster::new(&sandbox, &sandbox.sqlite("t.db"), STEADY).env("TENURE_NO_HTTP", "false");
    let a = cluster.start_args("pod-a", &["--listen", "127.0.0.1:0"]);
    let address = cluster.http_address(a);
    cluster.event(0, a, "lease_renewed");
    let url = format!("http://{address}");
    let json = sandbox.tenure(["events", "--json", "--url", &url]).assert_code(0).stdout;
    let names: Vec<String> = json
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["event"].as_str().unwrap().to_owned())
        .collect();
    assert!(names.iter().any(|name| name.ends_with(".became_leader")), "{names:?}");
    assert!(!names.iter().any(|name| name.ends_with("_renewed") || name.ends_with("_check")), "{names:?}");
    let newest = ["events", "--recent", "1", "--only", "became", "--url", &url];
    assert_eq!(sandbox.tenure(newest).assert_code(0).stdout.lines().count(), 1, "counted after the choice");
    let renewed =
        sandbox.tenure(["events", "--all", "--only", "lease_renewed", "--url", &url]).assert_code(0).stdout;
    assert!(renewed.contains("epoch 1  lease_renewed"), "{renewed}");
    let lines = sandbox.tenure(["events", "--only", "became", "--url", &url]).assert_code(0).stdout;
    assert_eq!(lines.lines().count(), 1, "{lines}");
    assert!(lines.contains("pod-a  epoch 1  became_leader"), "{lines}");
    assert_eq!(sandbox.tenure(["events", "--recent", "0", "--url", &url]).assert_code(0).stdout, "");

    let mut command = sandbox.command();
    command.args(["events", "--follow", "--json", "--only", "became_leader", "--url", &url]);
    let mut follower =
        crate::common::Killed(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    let mut told = BufReader::new(follower.0.stdout.take().unwrap()).lines();
    let mut warned = BufReader::new(follower.0.stderr.take().unwrap()).lines();
    let first: Value = serde_json::from_str(&told.next().unwrap().unwrap()).unwrap();
    assert_eq!(first["epoch"], 1, "it follows by now");
    cluster.signal(a, Signal::TERM);
    cluster.exit(a);
    let away = warned.next().unwrap().unwrap();
    assert!(away.contains("trying again"), "{away}");
    // Two more tries; that nothing is said again cannot be waited for.
    std::thread::sleep(std::time::Duration::from_millis(2500));
    let mark = cluster.mark();
    let again = cluster.start_args("pod-a", &["--listen", &address]);
    cluster.event(mark, again, "became_leader");
    let next: Value = serde_json::from_str(&told.next().unwrap().unwrap()).unwrap();
    assert_eq!((&next["epoch"], &next["node"]), (&2.into(), &"pod-a".into()));
    // A connection that broke and one that is refused are two things, each said once and not at every try.
    let mut said = vec![away];
    for line in
        warned.by_ref().map(Result::unwrap).take_while(|line| line != "tenure: the node answers again")
    {
        assert!(!said.contains(&line), "{line} was said before");
        said.push(line);
    }
    let all = warned.find(|line| line.as_ref().unwrap().contains("events are missing here"));
    assert!(all.is_some(), "what was missed is said");
    cluster.finish();
}

#[test]
fn a_node_that_cannot_be_asked_is_named() {
    let sandbox = Sandbox::new();
    let nobody = sandbox.tenure(["events", "--url", "http://127.0.0.1:1"]).assert_code(1);
    assert!(nobody.stderr.contains("http://127.0.0.1:1") && nobody.stderr.contains("refused"), "{nobody:?}");
    let wrong = sandbox.tenure(["events", "--url", "file:///etc/passwd"]).assert_code(2);
    assert!(wrong.stderr.contains("must begin with http://"), "{wrong:?}");
    let mut cluster = Cluster::new(&sandbox, &sandbox.sqlite("t.db"), STEADY).env("TENURE_NO_HTTP", "false");
    let file = sandbox.secret("token", "a-token-of-many-letters\n");
    let a = cluster.start_args("pod-a", &["--listen", "127.0.0.1:0", "--http-read-token-file", &file]);
    let url = format!("http://{}", cluster.http_address(a));
    cluster.event(0, a, "became_leader");
    let stranger = Sandbox::new();
    let refused = stranger.tenure(["events", "--url", &url]).assert_code(1);
    assert!(refused.stderr.contains("rejected the token"), "{refused:?}");
    let told = sandbox.tenure(["events", "--url", &url, "--token-file", &file]).assert_code(0);
    assert!(told.stdout.contains("became_leader") && !told.stdout.contains("many-letters"), "{told:?}");
    cluster.finish();
}

#[test]
fn no_proxy_ever_sees_the_token() {
    let sandbox = Sandbox::new();
    let mut cluster = Cluster::new(&sandbox, &sandbox.sqlite("t.db"), STEADY).env("TENURE_NO_HTTP", "false");
    let a = cluster.start_args("pod-a", &["--listen", "127.0.0.1:0"]);
    let url = format!("http://{}", cluster.http_address(a));
    cluster.event(0, a, "became_leader");
    let proxy = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    proxy.set_nonblocking(true).unwrap();
    let mut command = sandbox.command();
    command.args(["events", "--only", "became_leader", "--url", &url]);
    let address = format!("http://{}", proxy.local_addr().unwrap());
    for name in ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"] {
        command.env(name, &address);
    }
    command.env("TENURE_HTTP_TOKEN", "MARKED-token-0123456789");
    let mut events =
        crate::common::Killed(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
    let mut told = BufReader::new(events.0.stdout.take().unwrap()).lines();
    let until = std::time::Instant::now() + crate::common::PATIENCE;
    loop {
        assert!(proxy.accept().is_err(), "the request went to the proxy");
        if events.0.try_wait().unwrap().is_some() {
            break;
        }
        assert!(std::time::Instant::now() < until, "`events` does not end");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert!(proxy.accept().is_err(), "the request went to the proxy");
    assert!(told.next().unwrap().unwrap().contains("became_leader"));
    cluster.finish();
}
