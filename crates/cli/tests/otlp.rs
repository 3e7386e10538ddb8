//! The log over OTLP, as a collector gets it. Only in builds with the feature.

use crate::common::net::Server;
use crate::common::{Cluster, PATIENCE, STEADY, Sandbox};
use rustix::process::Signal;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Takes whatever is posted and says that it is well.
fn collect(mut stream: TcpStream, kept: &Mutex<Vec<u8>>) {
    let mut buffer = [0; 64 * 1024];
    let mut seen = Vec::new();
    while let Ok(read @ 1..) = stream.read(&mut buffer) {
        seen.extend_from_slice(&buffer[..read]);
        let Some(head) = seen.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
        let text = String::from_utf8_lossy(&seen[..head]).to_ascii_lowercase();
        let length = text.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
        if seen.len() >= head + 4 + length.unwrap_or(0) {
            kept.lock().unwrap().append(&mut seen);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
        }
    }
}

#[test]
fn a_collector_gets_events_with_namespace_and_epoch() {
    let kept: Arc<Mutex<Vec<u8>>> = Arc::default();
    let ours = Arc::clone(&kept);
    let collector = Server::start(move |stream| collect(stream, &ours));
    let sandbox = Sandbox::new();
    let endpoint = format!("http://{}", collector.address);
    let mut cluster = Cluster::new(&sandbox, &sandbox.sqlite("t.db"), STEADY)
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint)
        .env("OTEL_SERVICE_NAME", "billing-leader");
    let node = cluster.start_args("pod-a", &["--namespace", "billing"]);
    cluster.event(0, node, "became_leader");
    cluster.signal(node, Signal::TERM);
    assert!(cluster.exit(node).success());
    // What was left was sent before the process ended.
    let until = Instant::now() + PATIENCE;
    let has = |word: &str| kept.lock().unwrap().windows(word.len()).any(|part| part == word.as_bytes());
    for word in ["POST /v1/logs", "billing-leader", "became_leader", "namespace", "billing", "epoch", "pod-a"]
    {
        while !has(word) {
            assert!(Instant::now() < until, "{word:?} never arrived");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    cluster.finish();
}

/// A collector that is not there costs records, and nothing else.
#[test]
fn a_collector_that_is_not_there_keeps_nobody_from_leading_or_ending() {
    let sandbox = Sandbox::new();
    let mut cluster = Cluster::new(&sandbox, &sandbox.sqlite("t.db"), STEADY)
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1");
    let node = cluster.start("pod-a");
    cluster.event(0, node, "lease_renewed");
    cluster.signal(node, Signal::TERM);
    assert!(cluster.exit(node).success());
    cluster.finish();
}
