//! HTTP at full speed while the node keeps its lease: `/v1/leader` from many connections, and 500 open event streams.
//!
//! Prints missed renewals (there must be none), how much longer heartbeats take, and requests per second. The load comes from
//! `wrk` if it is installed, otherwise from a small client in this process; either way it uses the same cores.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a benchmark talks, and may end at once")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tenure::event::EventKind;
use tenure::settings::Preset;
use tenure::{Event, Node, Settings};
use tenure_server::{Options, Parts, Server};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::broadcast::Receiver;

/// Idle and loaded phases alternate, so that noise on the machine does not hit only one of them.
const ROUNDS: usize = 3;
const PHASE: Duration = Duration::from_secs(15);
const STREAMS: usize = 500;
const CONNECTIONS: usize = 64;

/// The renewals of all phases of one kind.
#[derive(Default)]
struct Renewals {
    latencies_ms: Vec<u64>,
    /// Gaps between two renewals of more than twice the heartbeat interval.
    missed: u64,
    lost: u64,
}

impl Renewals {
    fn percentile_ms(&self, percent: usize) -> u64 {
        let mut sorted = self.latencies_ms.clone();
        sorted.sort_unstable();
        sorted.get((sorted.len() * percent).div_ceil(100).saturating_sub(1)).copied().unwrap_or(0)
    }

    async fn observe(&mut self, events: &mut Receiver<Event>, heartbeat_ms: u64) {
        let (deadline, mut last) = (tokio::time::Instant::now() + PHASE, None);
        while let Ok(event) = tokio::time::timeout_at(deadline, events.recv()).await {
            let Ok(event) = event else { continue };
            if let EventKind::LeaseRenewed { latency, .. } = event.kind {
                self.latencies_ms.push(latency.as_millis() as u64);
                let gap_ms = last.map_or(0, |last| event.boot_ms - last);
                self.missed += u64::from(gap_ms > 2 * heartbeat_ms);
                last = Some(event.boot_ms);
            }
            self.lost += u64::from(matches!(event.kind, EventKind::LostLeadership { .. }));
        }
    }
}

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(bench());
}

async fn bench() {
    let dir = std::env::temp_dir().join(format!("tenure-bench-http-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    for preset in [Preset::Default, Preset::Fast] {
        let store = format!("sqlite:{}/{preset}.db", dir.display());
        let settings = Settings::builder()
            .store(store.as_str())
            .node("pod-a")
            .preset(preset)
            .startup_jitter_max(Duration::ZERO)
            .build()
            .unwrap();
        measure(preset, settings).await;
    }
    let _ = std::fs::remove_dir_all(dir);
}

async fn measure(preset: Preset, settings: Settings) {
    let heartbeat_ms = tenure::clock::millis(settings.heartbeat_interval);
    let node = Node::start(settings).await.unwrap();
    let server = Server::bind(Options::new("127.0.0.1:0".parse().unwrap(), None).unwrap()).unwrap();
    let server = server.serve(Parts::of(&node)).unwrap();
    drop(node.lead().await.unwrap());
    let mut events = node.events();
    let (mut idle, mut busy) = (Renewals::default(), Renewals::default());
    let (mut rates, mut told) = (Vec::new(), 0);
    let address = server.address();
    for _ in 0..ROUNDS {
        events = events.resubscribe();
        idle.observe(&mut events, heartbeat_ms).await;
        let stop = Arc::new(AtomicBool::new(false));
        let (read, clients) = streams(address, Arc::clone(&stop));
        tokio::time::sleep(Duration::from_secs(1)).await;
        let before = read.load(Ordering::Relaxed);
        let load = std::thread::spawn(move || load(address));
        events = events.resubscribe();
        busy.observe(&mut events, heartbeat_ms).await;
        rates.push(load.join().unwrap());
        told += read.load(Ordering::Relaxed) - before;
        stop.store(true, Ordering::Relaxed);
        let _ = clients.join();
    }

    let per_second = rates.iter().sum::<f64>() / rates.len() as f64;
    println!(
        "preset {preset}, heartbeat {heartbeat_ms} ms, on SQLite, {ROUNDS} × {} s each:",
        PHASE.as_secs()
    );
    println!("  /v1/leader             {per_second:.0} requests/s over {CONNECTIONS} connections");
    println!("  event streams          {STREAMS} open, {told} bytes read while under load");
    println!(
        "  renewals               {} idle, {} under load",
        idle.latencies_ms.len(),
        busy.latencies_ms.len()
    );
    println!(
        "  missed, lost           {}, {} idle; {}, {} under load",
        idle.missed, idle.lost, busy.missed, busy.lost
    );
    for percent in [50, 99] {
        let (idle_ms, busy_ms) = (idle.percentile_ms(percent), busy.percentile_ms(percent));
        let ratio = busy_ms as f64 / idle_ms.max(1) as f64;
        println!(
            "  heartbeat p{percent}          {idle_ms} ms idle, {busy_ms} ms under load, ratio {ratio:.1}"
        );
    }
    node.shutdown().await;
    server.stop().await;
}

/// Opens the streams and reads them on a thread of their own; counts the bytes.
fn streams(address: SocketAddr, stop: Arc<AtomicBool>) -> (Arc<AtomicU64>, std::thread::JoinHandle<()>) {
    let read = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&read);
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            for _ in 0..STREAMS {
                let counted = Arc::clone(&counted);
                tokio::spawn(async move {
                    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
                    stream.write_all(b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
                    let mut buffer = [0; 4096];
                    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
                        counted.fetch_add(count as u64, Ordering::Relaxed);
                    }
                });
            }
            while !stop.load(Ordering::Relaxed) {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        });
    });
    (read, thread)
}

/// Requests per second.
fn load(address: SocketAddr) -> f64 {
    let url = format!("http://{address}/v1/leader");
    let (connections, seconds) = (format!("-c{CONNECTIONS}"), format!("-d{}s", PHASE.as_secs()));
    if let Ok(output) = Command::new("wrk").args(["-t1", &connections, &seconds, &url]).output() {
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = |name: &str| {
            text.lines().find_map(|line| line.trim().strip_prefix(name).map(str::trim).map(str::to_owned))
        };
        if let Some(rate) = line("Requests/sec:").and_then(|rate| rate.parse().ok()) {
            if let Some(errors) = line("Socket errors:").or_else(|| line("Non-2xx or 3xx responses:")) {
                println!("  wrk                    {errors}");
            }
            return rate;
        }
    }
    println!("  (wrk is not there: four threads of this process ask instead)");
    let threads: Vec<_> = (0..4).map(|_| std::thread::spawn(move || ask(address))).collect();
    threads.into_iter().map(|thread| thread.join().unwrap()).sum::<u64>() as f64 / PHASE.as_secs_f64()
}

fn ask(address: SocketAddr) -> u64 {
    let mut stream = TcpStream::connect(address).unwrap();
    let (began, mut count, mut buffer) = (Instant::now(), 0, [0; 4096]);
    while began.elapsed() < PHASE {
        stream.write_all(b"GET /v1/leader HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        // The answer is small and comes in one piece.
        assert!(stream.read(&mut buffer).unwrap() > 0);
        count += 1;
    }
    count
}
