//! What the jobs ask: an HTTP server that notes who asked for what, and when.

use crate::clock::boot_ms;
use anyhow::{Context, Result};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

/// The largest request of an agent.
const REQUEST_MAX_BYTES: usize = 4096;

/// Submitted jobs ask for this and the name of their queue; checks ask for `/`.
const RUN: &str = "/run/";

/// The queue that is limited. Its requests are held for a while, so that those under way at once can be counted.
pub(super) const LIMITED: &str = "limited";

/// The queue whose requests are held so long that most agents have some under way when they are killed.
pub(super) const LONG: &str = "long";

/// One request of a check.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Hit {
    /// The job id: schedule and due time.
    pub job: String,
    pub attempt: u32,
    /// The epoch of the leader that assigned the job.
    pub epoch: u64,
    /// When it arrived, on the boot-time clock.
    pub at_ms: u64,
}

impl Hit {
    /// The schedule and the due time in ms, if the job's name has both.
    pub fn due(&self) -> Option<(&str, u64)> {
        let (schedule, due) = self.job.rsplit_once('-')?;
        Some((schedule, due.parse().ok()?))
    }
}

/// One request of a submitted job. Its number is its place in the record; the answer says it, so that it becomes the job's result.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Run {
    pub job: String,
    pub queue: String,
    pub attempt: u32,
    pub epoch: u64,
    /// When it arrived, on the boot-time clock.
    pub began_ms: u64,
    /// When it was answered, or when its agent hung up, as the dead do at once.
    pub ended_ms: Option<u64>,
    /// Its agent was there to be answered.
    pub is_answered: bool,
}

#[derive(Debug, Default)]
struct Noted {
    hits: Vec<Hit>,
    runs: Vec<Run>,
}

/// The server. It ends with the process.
#[derive(Clone, Debug)]
pub struct Target {
    address: SocketAddr,
    noted: Arc<Mutex<Noted>>,
}

impl Target {
    /// Listens on a free loopback port.
    pub fn start() -> Result<Target> {
        let listener = TcpListener::bind("127.0.0.1:0").context("a port for the target")?;
        let target = Target { address: listener.local_addr()?, noted: Arc::default() };
        let serving = target.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let serving = serving.clone();
                // One thread each: there are a few dozen a second, and each ends soon.
                std::thread::spawn(move || serving.serve(stream));
            }
        });
        Ok(target)
    }

    pub fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// What jobs of this queue ask for.
    pub fn run_url(&self, queue: &str) -> String {
        format!("http://{}{RUN}{queue}", self.address)
    }

    pub fn hits(&self) -> Vec<Hit> {
        self.noted.lock().hits.clone()
    }

    pub fn runs(&self) -> Vec<Run> {
        self.noted.lock().runs.clone()
    }

    fn serve(&self, mut stream: TcpStream) {
        let _ = stream.set_read_timeout(Some(Duration::from_secs(5)));
        let mut request = Vec::new();
        let mut buffer = [0; 1024];
        while !request.windows(4).any(|end| end == b"\r\n\r\n") && request.len() < REQUEST_MAX_BYTES {
            match stream.read(&mut buffer) {
                Ok(read @ 1..) => request.extend_from_slice(&buffer[..read]),
                Ok(_) | Err(_) => return,
            }
        }
        match noted(&String::from_utf8_lossy(&request)) {
            Some(Asked::Run(run)) => self.hold(&mut stream, run),
            Some(Asked::Check(hit)) => {
                self.noted.lock().hits.push(hit);
                answer(&mut stream, "");
            }
            None => answer(&mut stream, ""),
        }
    }

    fn hold(&self, stream: &mut TcpStream, run: Run) {
        let number = {
            let runs = &mut self.noted.lock().runs;
            runs.push(run.clone());
            runs.len() - 1
        };
        let spread_ms = u64::try_from(number * 17 % 51).unwrap_or(0);
        let held_ms = match run.queue.as_str() {
            LIMITED => 50 + spread_ms,
            LONG => 500 + 10 * spread_ms,
            _ => 5,
        };
        let _ = stream.set_read_timeout(Some(Duration::from_millis(held_ms)));
        // Nothing more comes from an agent that lives; the kernel closes the connection of one that is killed.
        let said = stream.read(&mut [0; 1]);
        let is_there =
            said.is_err_and(|error| [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&error.kind()));
        {
            let run = &mut self.noted.lock().runs[number];
            (run.ended_ms, run.is_answered) = (Some(boot_ms()), is_there);
        }
        answer(stream, &number.to_string());
    }
}

/// The client may be dead by now.
fn answer(stream: &mut TcpStream, body: &str) {
    let length = body.len();
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    let _ = stream.write_all(format!("{head}{body}").as_bytes());
}

enum Asked {
    Check(Hit),
    Run(Run),
}

fn noted(request: &str) -> Option<Asked> {
    let header = |name: &str| {
        let lines = request.lines().filter_map(|line| line.split_once(':'));
        let mut found = lines.filter(|(key, _)| key.eq_ignore_ascii_case(name));
        found.next().map(|(_, value)| value.trim().to_owned())
    };
    let (job, at_ms) = (header("Tenure-Job")?, boot_ms());
    let (attempt, epoch) = (header("Tenure-Attempt")?.parse().ok()?, header("Tenure-Epoch")?.parse().ok()?);
    let path = request.split(' ').nth(1)?;
    Some(match path.strip_prefix(RUN) {
        None => Asked::Check(Hit { job, attempt, epoch, at_ms }),
        Some(queue) => {
            let (queue, began_ms, ended_ms, is_answered) = (queue.to_owned(), at_ms, None, false);
            Asked::Run(Run { job, queue, attempt, epoch, began_ms, ended_ms, is_answered })
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_to_its_job_attempt_and_epoch() {
        let request = "GET / HTTP/1.1\r\nhost: x\r\ntenure-job: web-a-5000\r\nTenure-Attempt: 2\r\ntenure-epoch: 7\r\n\r\n";
        let Some(Asked::Check(hit)) = noted(request) else { panic!("complete") };
        assert_eq!((hit.due(), hit.attempt, hit.epoch), (Some(("web-a", 5000)), 2, 7));
        assert!(noted("GET / HTTP/1.1\r\ntenure-job: web-5000\r\n\r\n").is_none());
        let Some(Asked::Run(run)) = noted(&request.replace("GET /", "GET /run/mail")) else {
            panic!("complete")
        };
        assert_eq!((run.job.as_str(), run.queue.as_str(), run.attempt), ("web-a-5000", "mail", 2));
    }

    #[test]
    fn who_hangs_up_was_not_answered() {
        let target = Target::start().expect("a port");
        let ask = |job: &str| {
            let mut stream = TcpStream::connect(target.address).expect("it listens");
            let request = format!(
                "GET {RUN}{LIMITED} HTTP/1.1\r\nTenure-Job: {job}\r\nTenure-Attempt: 1\r\nTenure-Epoch: 1\r\n\r\n"
            );
            stream.write_all(request.as_bytes()).expect("it reads");
            stream
        };
        let (gone, mut there) = (ask("gone"), ask("there"));
        drop(gone);
        let mut answer = String::new();
        there.read_to_string(&mut answer).expect("an answer");
        let runs = target.runs();
        let number = runs.iter().position(|run| run.job == "there").expect("noted");
        assert!(runs[number].is_answered && answer.ends_with(&format!("\r\n\r\n{number}")), "{answer}");
        let gone = &runs[1 - number];
        assert!(
            !gone.is_answered && gone.ended_ms.is_some_and(|ended| ended < gone.began_ms + 50),
            "{gone:?}"
        );
    }
}
