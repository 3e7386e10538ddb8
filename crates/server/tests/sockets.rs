//! On real sockets: slow clients, clients that do not read, too many of them, and the end.
//!
//! Time is real here, and short: the limits are set to fractions of a second, and what is asserted is order, not speed.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};
use tenure::settings::Preset;
use tenure::{Node, Settings};
use tenure_server::{Limits, Options, Parts, Server, Token};

/// Nothing here takes longer unless it hangs.
const PATIENCE: Duration = Duration::from_secs(20);

const TOKEN: &str = "token-0123456789";

struct Running {
    node: Node,
    server: Server,
}

impl Running {
    async fn new(change: impl FnOnce(&mut Limits)) -> Running {
        let settings = Settings::builder()
            .store("memory:")
            .node("pod-a")
            .preset(Preset::Fast)
            .startup_jitter_max(Duration::ZERO);
        let node = Node::start(settings.build().expect("valid")).await.expect("a node");
        let mut limits = Limits::default();
        change(&mut limits);
        let address: SocketAddr = "127.0.0.1:0".parse().expect("an address");
        let options = Options::new(address, Token::new(TOKEN).ok()).expect("loopback").limits(limits);
        let server = Server::bind(options).expect("a free port").serve(Parts::of(&node)).expect("served");
        node.lead().await.expect("leads");
        Running { node, server }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.server.address()).expect("connected");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream
    }

    fn ask(&self, path: &str) -> String {
        let mut stream = self.connect();
        stream
            .write_all(
                format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").as_bytes(),
            )
            .expect("sent");
        read_all(&mut stream)
    }
}

/// Until the other side closes.
fn read_all(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        Err(error) => panic!("it was not closed in time: {error}"),
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// On a thread of its own: what blocks must not hold up the node.
async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.expect("no panic")
}

fn multi() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

#[test]
fn slow_heads_and_idle_connections_are_closed() {
    multi().block_on(async {
        let running = Running::new(|limits| limits.head = Duration::from_millis(300)).await;
        let (mut slow, mut idle, mut silent) = (running.connect(), running.connect(), running.connect());
        aside(move || {
            let began = Instant::now();
            idle.write_all(b"GET /v1/leader HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("sent");
            // One byte at a time never ends the head.
            let mut rest =
                b"GET /v1/leader HTTP/1.1\r\nHost: localhost\r\nX: ".iter().chain(std::iter::repeat(&b'x'));
            slow.set_nonblocking(true).expect("set");
            let closed = loop {
                let sent = slow.write(&[*rest.next().expect("endless")]);
                let mut byte = [0; 256];
                match (sent, slow.read(&mut byte)) {
                    (Err(error), _) if error.kind() != ErrorKind::WouldBlock => break true,
                    (_, Ok(0)) => break true,
                    (_, Ok(_)) => {}
                    (_, Err(error)) if error.kind() != ErrorKind::WouldBlock => break true,
                    _ if began.elapsed() > PATIENCE => break false,
                    _ => std::thread::sleep(Duration::from_millis(20)),
                }
            };
            assert!(closed, "a head that does not end is closed");
            assert!(read_all(&mut idle).contains("\"leader\":\"pod-a\""), "answered, and closed once idle");
            assert_eq!(read_all(&mut silent), "", "one that says nothing is closed");
        })
        .await;
        running.server.stop().await;
    });
}

#[test]
fn slow_bodies_and_large_heads_are_refused() {
    multi().block_on(async {
        let running = Running::new(|limits| limits.body = Duration::from_millis(300)).await;
        let (mut slow, mut large) = (running.connect(), running.connect());
        aside(move || {
            let head = "POST /v1/fence HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n";
            slow.write_all(format!("{head}Content-Length: 100\r\n\r\n{{").as_bytes()).expect("sent");
            let answer = read_all(&mut slow);
            assert!(answer.starts_with("HTTP/1.1 408") && answer.contains("urn:tenure:problem:slow"), "{answer}");
            let _ = large.write_all(format!("GET / HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "x".repeat(40_000)).as_bytes());
            let answer = read_all(&mut large);
            assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431"), "{answer}");
        })
        .await;
        running.server.stop().await;
    });
}

#[test]
fn a_stream_that_nobody_reads_is_dropped_and_holds_nobody_up() {
    multi().block_on(async {
        let running = Running::new(|limits| {
            (limits.write, limits.streams) = (Duration::from_millis(300), 2);
            // Comments fill what the system keeps for a client.
            limits.keep_alive = Duration::from_nanos(1);
        })
        .await;
        // The system takes little for them, so that it shows soon that nobody reads.
        let small = || {
            let socket =
                socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
            socket.set_recv_buffer_size(2048).expect("set");
            socket.connect(&running.server.address().into()).expect("connected");
            TcpStream::from(socket)
        };
        let mut unread: Vec<TcpStream> = (0..2).map(|_| small()).collect();
        for stream in &mut unread {
            stream.write_all(b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("sent");
        }
        let began = Instant::now();
        while !running.ask("/v1/events").contains("urn:tenure:problem:busy") {
            assert!(began.elapsed() < PATIENCE, "both streams are open");
        }
        let epoch = running.node.leadership().borrow().epoch;
        // Places become free without any of them having read a byte.
        let free = loop {
            let mut stream = running.connect();
            stream.write_all(b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("sent");
            let mut start = [0; 12];
            stream.read_exact(&mut start).expect("an answer");
            if &start == b"HTTP/1.1 200" {
                break true;
            }
            if began.elapsed() > PATIENCE {
                break false;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        assert!(free, "clients that do not read are dropped");
        assert!(running.node.leadership().borrow().is_leader(), "the node has led all the time");
        assert_eq!(running.node.leadership().borrow().epoch, epoch);
        running.server.stop().await;
    });
}

/// Whether the server has closed it; what it has sent before does not count.
fn is_closed(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).expect("set");
    let mut byte = [0; 256];
    loop {
        match (&*stream).read(&mut byte) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() != ErrorKind::WouldBlock,
        }
    }
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn when_it_is_full_the_longest_idle_makes_room_and_every_probe_is_answered() {
    multi().block_on(async {
        let running = Running::new(|limits| {
            (limits.connections, limits.head) = (12, Duration::from_secs(600));
        })
        .await;
        // One that is answered: a stream.
        let mut stream = running.connect();
        stream.write_all(b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("sent");
        let mut start = [0; 12];
        stream.read_exact(&mut start).expect("an answer");
        assert_eq!(&start, b"HTTP/1.1 200");
        let mut used = running.connect();
        let held: Vec<TcpStream> = (0..9).map(|_| running.connect()).collect();
        // Connections are taken in order: whoever is answered after them comes after them.
        running.ask("/livez");
        used.write_all(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("sent");
        used.read_exact(&mut start).expect("an answer");
        assert_eq!(&start, b"HTTP/1.1 200");
        let mut more = Vec::new();
        for path in ["/livez", "/readyz", "/leaderz"] {
            let answer = running.ask(path);
            assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
            more.push(running.connect());
        }
        let closed = || held.iter().map(is_closed).collect::<Vec<bool>>();
        until("14 connections do not fit, so two are closed", || {
            closed().iter().filter(|one| **one).count() >= 2
        });
        let closed = closed();
        assert!(closed.is_sorted_by_key(|one| !one), "the longest idle goes first: {closed:?}");
        assert!(!closed[8] && !more.iter().any(is_closed), "no more than must be: {closed:?}");
        assert!(!is_closed(&stream) && !is_closed(&used), "one that is used stays, however old it is");
        running.server.stop().await;
    });
}

/// A connection from an address of this machine that nobody else has.
fn connect_from(address: [u8; 4], server: SocketAddr) -> TcpStream {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
    socket.bind(&SocketAddr::from((address, 0)).into()).expect("bound");
    socket.connect(&server.into()).expect("connected");
    TcpStream::from(socket)
}

#[test]
fn half_requests_of_a_thousand_addresses_close_nobody_elses_connection() {
    multi().block_on(async {
        let running = Running::new(|limits| limits.connections = 16).await;
        let open = |head: &str| {
            let mut stream = running.connect();
            stream.write_all(format!("{head}\r\nHost: localhost\r\n\r\n").as_bytes()).expect("sent");
            let mut start = [0; 12];
            stream.read_exact(&mut start).expect("an answer");
            assert_eq!(&start, b"HTTP/1.1 200");
            stream
        };
        let streams: Vec<TcpStream> = (0..12).map(|_| open("GET /v1/events HTTP/1.1")).collect();
        let mut half = Vec::new();
        for round in 0..100u8 {
            let mut stream = connect_from([127, 1, round, 1], running.server.address());
            let _ = stream.write_all(b"GET /v1/leader HTTP/1.1\r\nHost: local");
            half.push(stream);
        }
        let answer = running.ask("/livez");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        until("only four have room beside the streams", || {
            half.iter().filter(|one| !is_closed(one)).count() <= 4
        });
        assert!(!streams.iter().any(is_closed), "a stream is not closed for half a request");
        running.server.stop().await;
    });
}

#[test]
fn half_requests_make_room_before_whoever_was_ever_answered() {
    multi().block_on(async {
        let running = Running::new(|limits| limits.connections = 16).await;
        let used: Vec<TcpStream> = (0..8)
            .map(|_| {
                let mut used = running.connect();
                used.write_all(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("sent");
                let mut start = [0; 12];
                used.read_exact(&mut start).expect("an answer");
                used
            })
            .collect();
        let half: Vec<TcpStream> =
            (0..100u8).map(|round| connect_from([127, 1, round, 1], running.server.address())).collect();
        until("only eight have room", || half.iter().filter(|one| !is_closed(one)).count() <= 8);
        assert!(!used.iter().any(is_closed), "they may be asked for more");
        running.server.stop().await;
    });
}

#[test]
fn a_thousand_idle_connections_cost_no_probe() {
    multi().block_on(async {
        let running = Running::new(|limits| limits.connections = 100).await;
        let mut held: Vec<TcpStream> = Vec::new();
        for round in 0..12 {
            held.extend((0..100).map(|_| running.connect()));
            for path in ["/livez", "/leaderz"] {
                let answer = running.ask(path);
                assert!(answer.starts_with("HTTP/1.1 200"), "round {round}, {path}: {answer}");
            }
            held.drain(..held.len().saturating_sub(200));
        }
        running.server.stop().await;
    });
}

#[test]
fn streams_do_not_take_all_connections_and_stay_when_a_probe_comes() {
    multi().block_on(async {
        let running = Running::new(|limits| limits.connections = 8).await;
        let open = |path: &str| {
            let mut stream = running.connect();
            let head = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
            stream.write_all(head.as_bytes()).expect("sent");
            let mut start = [0; 12];
            stream.read_exact(&mut start).expect("an answer");
            (stream, start)
        };
        let streams: Vec<TcpStream> = (0..6).map(|_| open("/v1/events").0).collect();
        assert_eq!(&open("/v1/events").1, b"HTTP/1.1 503", "three quarters are for streams");
        // Requests whose bodies do not come are busy too.
        let slow: Vec<TcpStream> = (0..2)
            .map(|_| {
                let mut slow = running.connect();
                let head = "POST /v1/fence HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
                slow.write_all(format!("{head}Content-Length: 9\r\n\r\n{{").as_bytes()).expect("sent");
                slow
            })
            .collect();
        let answer = running.ask("/livez");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert!(!streams.iter().any(is_closed), "a slow body makes room before a stream does");
        drop(slow);
        running.server.stop().await;
    });
}

#[test]
fn the_end_waits_for_no_client_and_leaves_nothing() {
    multi().block_on(async {
        let Running { node, server } = Running::new(|_| {}).await;
        let address = server.address();
        let connect = || {
            let stream = TcpStream::connect(address).expect("connected");
            stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
            stream
        };
        let mut stream = connect();
        stream.write_all(b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("sent");
        let mut half = connect();
        half.write_all(b"POST /v1/fence HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{").expect("sent");
        let mut worker = connect();
        let body = r#"{"workerId":"w1","kinds":["mail"]}"#;
        let head = format!("HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\n");
        worker.write_all(format!("POST /v1/workers {head}Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes()).expect("sent");
        let mut start = [0; 12];
        worker.read_exact(&mut start).expect("an answer");
        assert_eq!(&start, b"HTTP/1.1 201");
        let mut events = node.events();
        let began = Instant::now();
        server.close();
        node.shutdown().await;
        let drained = began.elapsed();
        server.stop().await;
        assert!(drained < Duration::from_millis(1500), "the node left without waiting for clients: {drained:?}");
        let (told, _) = aside(move || (read_all(&mut stream), read_all(&mut half))).await;
        assert!(told.contains("text/event-stream") && told.ends_with("0\r\n\r\n"), "the stream ended in order: {told}");
        assert!(TcpStream::connect(address).is_err(), "nobody listens any more");
        // Whoever reads events sees their end: nothing of the server holds the channel open.
        let ended = async { while !matches!(events.recv().await, Err(tokio::sync::broadcast::error::RecvError::Closed)) {} };
        tokio::time::timeout(Duration::from_secs(5), ended).await.expect("the events have ended");
    });
}

#[test]
fn a_taken_address_is_an_error_at_once() {
    multi().block_on(async {
        let running = Running::new(|_| {}).await;
        let options = Options::new(running.server.address(), None).expect("loopback");
        assert_eq!(Server::bind(options).expect_err("taken").kind(), ErrorKind::AddrInUse);
        running.server.stop().await;
    });
}
