//! A tiny HTTP server on loopback that answers as it is told.

use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

#[derive(Clone, Debug)]
pub struct Request {
    pub method: String,
    /// Path with query.
    pub target: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Request {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    pub fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }

    pub fn query(&self, name: &str) -> Option<String> {
        let query = self.target.split_once('?')?.1;
        url::form_urlencoded::parse(query.as_bytes())
            .find(|(n, _)| n == name)
            .map(|(_, value)| value.into_owned())
    }
}

pub enum Reply {
    Answer {
        status: u16,
        headers: Vec<(String, String)>,
        body: Vec<u8>,
    },
    /// Closes the connection after the whole request was read.
    HangUp,
    /// Sends the head of an answer and breaks off in the body.
    BreakOff,
    Silence,
    Late(Duration, Box<Reply>),
}

impl Reply {
    pub fn status(status: u16) -> Reply {
        Reply::Answer { status, headers: Vec::new(), body: Vec::new() }
    }

    pub fn text(body: impl Into<String>) -> Reply {
        Reply::Answer { status: 200, headers: Vec::new(), body: body.into().into_bytes() }
    }

    /// The same, as slow as a credentials service on a busy machine.
    pub fn late(self) -> Reply {
        Reply::Late(Duration::from_millis(900), Box::new(self))
    }

    pub fn error(status: u16, code: &str, message: &str) -> Reply {
        let body = format!(
            "<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>{message}</Message>\
             <AWSAccessKeyId>AKIDEXPOSED</AWSAccessKeyId><SignatureProvided>SIGEXPOSED</SignatureProvided></Error>"
        );
        Reply::Answer { status, headers: Vec::new(), body: body.into_bytes() }
    }

    pub fn with(self, name: &str, value: impl Into<String>) -> Reply {
        match self {
            Reply::Answer { status, mut headers, body } => {
                headers.push((name.to_owned(), value.into()));
                Reply::Answer { status, headers, body }
            }
            other => other,
        }
    }
}

type Handler = dyn Fn(&Request) -> Reply + Send + Sync;

pub struct Server {
    pub endpoint: String,
    seen: Arc<Mutex<Vec<Request>>>,
    task: JoinHandle<()>,
}

impl Server {
    pub async fn start(handler: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let seen: Arc<Mutex<Vec<Request>>> = Arc::default();
        let (handler, log): (Arc<Handler>, _) = (Arc::new(handler), Arc::clone(&seen));
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&handler), Arc::clone(&log)));
            }
        });
        Server { endpoint, seen, task }
    }

    /// An endpoint that nobody listens on.
    pub async fn refused() -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        format!("http://{}", listener.local_addr().unwrap())
    }

    /// Writes an object that no client of ours would.
    pub async fn put_raw(&self, target: &str) {
        let mut stream = TcpStream::connect(self.endpoint.trim_start_matches("http://")).await.unwrap();
        let request = format!("PUT {target} HTTP/1.1\r\ncontent-length: 1\r\n\r\nx");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200");
    }

    pub fn seen(&self) -> Vec<Request> {
        self.seen.lock().unwrap().clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(mut stream: TcpStream, handler: Arc<Handler>, log: Arc<Mutex<Vec<Request>>>) {
    let mut buffer = Vec::new();
    while let Some(request) = read(&mut stream, &mut buffer).await {
        log.lock().unwrap().push(request.clone());
        let reply = match handler(&request) {
            Reply::Late(delay, reply) => {
                tokio::time::sleep(delay).await;
                *reply
            }
            reply => reply,
        };
        match reply {
            Reply::Late(..) => panic!("late twice"),
            Reply::Answer { status, headers, body } => {
                let mut head = format!("HTTP/1.1 {status} x\r\n");
                for (name, value) in headers {
                    head.push_str(&format!("{name}: {value}\r\n"));
                }
                if status != 304 {
                    head.push_str(&format!("content-length: {}\r\n", body.len()));
                }
                head.push_str("\r\n");
                if stream.write_all(&[head.as_bytes(), &body].concat()).await.is_err() {
                    return;
                }
            }
            Reply::HangUp => return,
            Reply::BreakOff => {
                let head = "HTTP/1.1 200 x\r\netag: \"x\"\r\nlast-modified: Tue, 15 Nov 1994 08:12:31 GMT\r\n\
                            content-length: 100\r\n\r\npart";
                let _ = stream.write_all(head.as_bytes()).await;
                return;
            }
            Reply::Silence => std::future::pending::<()>().await,
        }
    }
}

async fn read(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<Request> {
    let head_end = loop {
        if let Some(at) = buffer.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8_lossy(&buffer[..head_end]).into_owned();
    let mut lines = head.split("\r\n");
    let mut first = lines.next()?.split(' ');
    let (method, target) = (first.next()?.to_owned(), first.next()?.to_owned());
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.trim().to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length: usize = length.and_then(|(_, value)| value.parse().ok()).unwrap_or(0);
    while buffer.len() < head_end + length {
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
    let body = buffer[head_end..head_end + length].to_vec();
    buffer.drain(..head_end + length);
    Some(Request { method, target, headers, body })
}
