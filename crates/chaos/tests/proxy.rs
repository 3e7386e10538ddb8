//! The proxy: each fault does what it says, and the journal says what the store saw.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tenure_chaos::clock::boot_us;
use tenure_chaos::linearizable::{Action, Outcome};
use tenure_chaos::proxy::{Exchange, Journal, Proxy, ProxyFault};

const PATIENCE: Duration = Duration::from_secs(20);
/// Long enough for an answer on loopback to be there if it is ever to come.
const MOMENT: Duration = Duration::from_millis(200);
const SEAT: &str =
    r#"{"v":1,"epoch":3,"state":"held","holder":{"node":"pod-a","incarnation":"i"},"nonce":"i-1"}"#;

/// A store of one answer: it notes what it gets and answers as told, after a while.
struct Store {
    url: String,
    heard: Arc<Mutex<Vec<String>>>,
    answer: Arc<Mutex<(Duration, String)>>,
}

impl Store {
    fn start() -> Store {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let won =
            "HTTP/1.1 200 OK\r\nETag: \"v1\"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_owned();
        let (heard, answer): (Arc<Mutex<Vec<String>>>, _) =
            (Arc::default(), Arc::new(Mutex::new((Duration::ZERO, won))));
        let (noted, told) = (Arc::clone(&heard), Arc::clone(&answer));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (noted, told) = (Arc::clone(&noted), Arc::clone(&told));
                std::thread::spawn(move || {
                    let Some(request) = message(&stream, PATIENCE) else { return };
                    noted.lock().unwrap().push(request);
                    let (wait, answer) = told.lock().unwrap().clone();
                    std::thread::sleep(wait);
                    let _ = (&stream).write_all(answer.as_bytes());
                });
            }
        });
        Store { url, heard, answer }
    }

    fn heard(&self) -> usize {
        self.heard.lock().unwrap().len()
    }

    fn wait_heard(&self, count: usize) {
        wait(|| self.heard() >= count);
    }
}

fn wait(is_true: impl Fn() -> bool) {
    let limit = Instant::now() + PATIENCE;
    while !is_true() {
        assert!(Instant::now() < limit, "waited in vain");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A whole HTTP message; `None` if the connection was closed, or nothing came in time.
fn message(mut stream: &TcpStream, limit: Duration) -> Option<String> {
    stream.set_read_timeout(Some(limit)).unwrap();
    let (mut text, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let read = stream.read(&mut buffer).ok().filter(|read| *read > 0)?;
        text.extend_from_slice(&buffer[..read]);
        let so_far = String::from_utf8_lossy(&text).into_owned();
        let Some((head, body)) = so_far.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().unwrap())
        });
        if body.len() >= length.unwrap_or(0) {
            return Some(so_far);
        }
    }
}

#[derive(Clone, Default)]
struct Page(Arc<Mutex<Vec<u8>>>);

impl Write for Page {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

struct Rig {
    store: Store,
    proxy: Proxy,
    page: Page,
    _runtime: tokio::runtime::Runtime,
}

impl Rig {
    fn new() -> Rig {
        let store = Store::start();
        let (page, url) = (Page::default(), store.url.clone());
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let proxy = runtime.block_on(Proxy::start("pod-a", &url, 1, Journal::new(page.clone()))).unwrap();
        Rig { store, proxy, page, _runtime: runtime }
    }

    /// Sends a renewal of the seat and leaves the answer to be read.
    fn write(&self) -> TcpStream {
        let stream = TcpStream::connect(self.proxy.url().strip_prefix("http://").unwrap()).unwrap();
        let length = SEAT.len();
        let head = format!(
            "PUT /bucket/x/plg_coordinator_global/n/seat.json HTTP/1.1\r\nHost: the-signed-one\r\nIf-Match: \"v0\"\r\n\
             Content-Length: {length}\r\n\r\n"
        );
        // A proxy that refuses may have hung up already.
        let _ = (&stream).write_all(format!("{head}{SEAT}").as_bytes());
        stream
    }

    fn status(&self) -> String {
        let answer = message(&self.write(), PATIENCE).unwrap_or_default();
        answer.split_whitespace().nth(1).unwrap_or("none").to_owned()
    }

    /// What is written down, once that many requests are.
    fn journal(&self, count: usize) -> Vec<Exchange> {
        let lines = || String::from_utf8(self.page.0.lock().unwrap().clone()).unwrap();
        wait(|| lines().lines().count() >= count);
        lines().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn outcome(&self, index: usize) -> Option<Outcome> {
        match self.journal(index + 1)[index].seat.clone() {
            Some(Action::Write { outcome, .. }) => Some(outcome),
            Some(Action::Saw { .. } | Action::SawNothing | Action::SawUnchanged { .. }) | None => None,
        }
    }
}

#[test]
fn without_a_fault_everything_gets_through_as_it_was() {
    let rig = Rig::new();
    let answer = message(&rig.write(), PATIENCE).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.to_lowercase().contains("etag: \"v1\""), "{answer}");
    let heard = rig.store.heard.lock().unwrap()[0].clone();
    assert!(heard.starts_with("PUT /bucket/x/plg_coordinator_global/n/seat.json "), "{heard}");
    assert!(heard.to_lowercase().contains("host: the-signed-one\r\n"), "signatures cover the host: {heard}");
    assert!(heard.ends_with(SEAT), "{heard}");
    let written = &rig.journal(1)[0];
    assert!(written.invoke_us <= written.return_us && written.status == Some(200));
    let Some(Action::Write { replaces, content, outcome }) = &written.seat else { panic!("{written:?}") };
    assert_eq!((replaces.as_deref(), content.epoch, content.nonce.as_str()), (Some("v0"), 3, "i-1"));
    assert_eq!(*outcome, Outcome::Won("v1".to_owned()));
}

#[test]
fn a_cut_swallows_requests_and_the_answers_under_way() {
    let rig = Rig::new();
    rig.store.answer.lock().unwrap().0 = 5 * MOMENT;
    let under_way = rig.write();
    rig.store.wait_heard(1);
    rig.proxy.set(ProxyFault::Cut);
    let swallowed = rig.write();
    assert_eq!(message(&under_way, 7 * MOMENT), None, "an answer got through");
    assert_eq!(message(&swallowed, MOMENT), None);
    assert_eq!(rig.store.heard(), 1);
    assert_eq!(rig.outcome(1), Some(Outcome::Won("v1".to_owned())), "the first took effect all the same");
    rig.proxy.set(ProxyFault::None);
    assert_eq!(message(&swallowed, PATIENCE), None, "hung up on, not answered late");
    assert_eq!(rig.store.heard(), 1, "what was swallowed never arrives");
    assert_eq!(rig.status(), "200");
}

#[test]
fn a_cut_of_requests_lets_answers_through() {
    let rig = Rig::new();
    rig.store.answer.lock().unwrap().0 = MOMENT;
    let under_way = rig.write();
    rig.store.wait_heard(1);
    rig.proxy.set(ProxyFault::CutRequests);
    let swallowed = rig.write();
    assert!(message(&under_way, PATIENCE).unwrap().contains(" 200 "));
    assert_eq!((message(&swallowed, MOMENT), rig.store.heard()), (None, 1));
}

#[test]
fn a_cut_of_answers_lets_requests_take_effect() {
    let rig = Rig::new();
    rig.proxy.set(ProxyFault::CutAnswers);
    let unanswered = rig.write();
    rig.store.wait_heard(1);
    assert_eq!(message(&unanswered, MOMENT), None);
    assert_eq!(rig.outcome(0), Some(Outcome::Won("v1".to_owned())));
}

#[test]
fn refused_connections_are_closed_at_once() {
    let rig = Rig::new();
    rig.proxy.set(ProxyFault::Refuse);
    let began = Instant::now();
    assert_eq!(rig.status(), "none");
    assert!(began.elapsed() < PATIENCE && rig.store.heard() == 0);
}

#[test]
fn slow_answers_belong_to_requests_that_arrived_at_once() {
    let rig = Rig::new();
    rig.proxy.set(ProxyFault::SlowAnswers { max_ms: 800 });
    let answer = message(&rig.write(), PATIENCE).unwrap();
    let now_us = boot_us();
    assert!(answer.contains(" 200 "), "{answer}");
    assert_eq!(rig.outcome(0), Some(Outcome::Won("v1".to_owned())));
    assert!(
        now_us - rig.journal(1)[0].return_us >= 200_000,
        "the store had answered long before the node hears of it"
    );
}

#[test]
fn late_requests_arrive_though_nobody_waits_any_more() {
    let rig = Rig::new();
    rig.proxy.set(ProxyFault::LateRequests { max_ms: 600 });
    let sent_us = boot_us();
    let stream = rig.write();
    wait(|| rig.proxy.under_way() == 1);
    drop(stream);
    rig.proxy.set(ProxyFault::None);
    rig.store.wait_heard(1);
    assert!(rig.journal(1)[0].invoke_us - sent_us >= 150_000, "too early");
    assert_eq!(rig.outcome(0), Some(Outcome::Won("v1".to_owned())));
    wait(|| rig.proxy.under_way() == 0);
}

#[test]
fn dropped_answers_and_lies_took_effect_and_a_storm_did_not() {
    let rig = Rig::new();
    rig.proxy.set(ProxyFault::DropAnswers { permille: 1000 });
    assert_eq!((rig.status().as_str(), rig.store.heard()), ("none", 1));
    rig.proxy.set(ProxyFault::Lie { permille: 1000 });
    assert_eq!((rig.status().as_str(), rig.store.heard()), ("503", 2));
    rig.proxy.set(ProxyFault::Storm { permille: 1000 });
    assert_eq!((rig.status().as_str(), rig.store.heard()), ("503", 2));
    let journal = rig.journal(3);
    assert!(journal[0].seat.is_some() && journal[1].seat.is_some());
    assert_eq!((journal[2].stopped.as_deref(), &journal[2].seat), (Some("503"), &None));
}

#[test]
fn the_share_of_requests_that_are_hit_is_about_what_was_asked_for() {
    let rig = Rig::new();
    rig.proxy.set(ProxyFault::Storm { permille: 500 });
    let hit = (0..60).filter(|_| rig.status() == "503").count();
    assert!((15..=45).contains(&hit), "{hit} of 60");
    assert_eq!(rig.store.heard(), 60 - hit);
}

#[test]
fn what_the_store_said_is_told_apart() {
    let rig = Rig::new();
    for (answer, outcome) in [
        (
            "HTTP/1.1 412 Precondition Failed\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
            Some(Outcome::Lost),
        ),
        ("HTTP/1.1 500 Oops\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", Some(Outcome::Unknown)),
        ("HTTP/1.1 409 Conflict\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", None),
        // It breaks off.
        ("HTTP/1.1 200 OK\r\nETag: \"v1\"\r\nContent-Length: 9\r\n\r\n", Some(Outcome::Unknown)),
        ("", Some(Outcome::Unknown)),
    ] {
        let before = rig.store.heard();
        rig.store.answer.lock().unwrap().1 = answer.to_owned();
        let _ = message(&rig.write(), PATIENCE);
        assert_eq!(rig.outcome(before), outcome, "{answer:?}");
    }
}
