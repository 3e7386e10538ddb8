//! Small servers on loopback: a proxy that can be cut, and a server that refuses or says nothing.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Listens on a port of its own and hands every connection to `serve`, on a thread each, until it is dropped.
pub struct Server {
    pub address: SocketAddr,
    pub connections: Arc<AtomicUsize>,
    over: Arc<AtomicBool>,
    held: Arc<Mutex<Vec<TcpStream>>>,
}

impl Server {
    pub fn start(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (connections, over, held): (Arc<AtomicUsize>, Arc<AtomicBool>, Arc<Mutex<Vec<TcpStream>>>) =
            Default::default();
        let (count, end, kept, serve) =
            (Arc::clone(&connections), Arc::clone(&over), Arc::clone(&held), Arc::new(serve));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if end.load(Ordering::SeqCst) {
                    return;
                }
                count.fetch_add(1, Ordering::SeqCst);
                kept.lock().unwrap().push(stream.try_clone().unwrap());
                let serve = Arc::clone(&serve);
                std::thread::spawn(move || serve(stream));
            }
        });
        Server { address, connections, over, held }
    }

    /// Takes connections and what comes through them, and never says a word.
    pub fn silent() -> Server {
        Server::start(|mut stream| while matches!(stream.read(&mut [0; 4096]), Ok(1..)) {})
    }

    pub fn answering(status: &'static str, body: &'static str) -> Server {
        Server::start(move |mut stream| {
            let mut seen = Vec::new();
            let mut buffer = [0; 4096];
            while let Ok(read @ 1..) = stream.read(&mut buffer) {
                seen.extend_from_slice(&buffer[..read]);
                // The head is enough to refuse; the connection is closed, so the body need not be told apart.
                if seen.windows(4).any(|bytes| bytes == b"\r\n\r\n") {
                    let length = body.len();
                    let head = format!(
                        "HTTP/1.1 {status}\r\ncontent-type: application/xml\r\ncontent-length: {length}\r\n\
                         connection: close\r\n\r\n"
                    );
                    let _ =
                        stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes()));
                    let _ = stream.shutdown(Shutdown::Write);
                    seen.clear();
                }
            }
        })
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    fn hang_up(&self) {
        for stream in self.held.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect_timeout(&self.address, Duration::from_secs(1));
        self.hang_up();
    }
}

/// A way to an engine that can be cut and mended.
pub struct Proxy {
    server: Server,
    is_cut: Arc<AtomicBool>,
}

impl Proxy {
    /// A way to `http://host:port`.
    pub fn to(endpoint: &str) -> Proxy {
        let target = endpoint.strip_prefix("http://").unwrap().trim_end_matches('/').to_owned();
        let is_cut = Arc::new(AtomicBool::new(false));
        let cut = Arc::clone(&is_cut);
        let server = Server::start(move |client| {
            if cut.load(Ordering::SeqCst) {
                return;
            }
            let Ok(engine) = TcpStream::connect(&target) else { return };
            let _ = (client.set_nodelay(true), engine.set_nodelay(true));
            let (from, to) = (client.try_clone().unwrap(), engine.try_clone().unwrap());
            std::thread::spawn(move || carry(from, to));
            carry(engine, client);
        });
        Proxy { server, is_cut }
    }

    pub fn url(&self) -> String {
        self.server.url()
    }

    /// Ends all connections and takes no new one.
    pub fn cut(&self) {
        self.is_cut.store(true, Ordering::SeqCst);
        self.server.hang_up();
    }

    pub fn mend(&self) {
        self.is_cut.store(false, Ordering::SeqCst);
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream) {
    let _ = std::io::copy(&mut from, &mut to);
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

/// A document of a server at `host:port`: its status and its body.
pub fn get(address: &str, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(super::PATIENCE)).unwrap();
    // The old version knows no pieces and no compression.
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

/// Waits until somebody listens there.
pub fn listens(address: &str, patience: Duration) {
    let until = std::time::Instant::now() + patience;
    while TcpStream::connect(address).is_err() {
        assert!(std::time::Instant::now() < until, "nobody listens on {address}");
        std::thread::sleep(Duration::from_millis(100));
    }
}
