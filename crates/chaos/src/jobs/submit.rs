//! Those who submit jobs: each on its own, over HTTP, at whichever node answers, with the same ids until an answer comes.

use super::target::{LIMITED, LONG, Target};
use crate::clock::boot_ms;
use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread::JoinHandle;
use std::time::Duration;

/// How many submit at the same time.
pub(super) const SUBMITTERS: usize = 3;

/// How many jobs go into one request, in turns.
const BATCHES: [usize; 5] = [1, 2, 5, 10, 20];

/// One in this many requests is sent by somebody who hangs up before the answer, and then sends it again.
const HANGS_UP: usize = 8;

/// More than a job needs that loses its agent at each kill.
const ATTEMPTS: u32 = 10;

const CONNECT: Duration = Duration::from_secs(1);
const ANSWER: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(250);

/// One job, as whoever submitted it sees it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Submission {
    pub id: String,
    pub queue: String,
    /// When it was first sent, on the boot-time clock.
    pub sent_ms: u64,
    /// When a node said that it is on the store.
    pub answered_ms: Option<u64>,
    /// How often it was sent.
    pub tries: u32,
}

/// What the nodes answered to requests, and how often; `none` if they died or somebody hung up.
pub type Answers = BTreeMap<String, u64>;

#[derive(Clone, Debug)]
pub(super) struct Submitter {
    pub(super) number: usize,
    pub(super) nodes: Vec<SocketAddr>,
    pub(super) token: String,
    pub(super) jobs: usize,
    /// From when until when it submits, evenly.
    pub(super) began_ms: u64,
    pub(super) length: Duration,
    /// How much longer it may go on with what has not been answered.
    pub(super) patience: Duration,
}

impl Submitter {
    pub(super) fn start(self, target: &Target) -> JoinHandle<(Vec<Submission>, Answers)> {
        let target = target.clone();
        std::thread::spawn(move || self.submit(&target))
    }

    fn submit(self, target: &Target) -> (Vec<Submission>, Answers) {
        let (mut all, mut answers): (Vec<Submission>, Answers) = Default::default();
        for batch in 0.. {
            let size = BATCHES[(batch + self.number) % BATCHES.len()].min(self.jobs - all.len());
            if size == 0 {
                break;
            }
            let length_ms = super::ms(self.length);
            let due_ms = self.began_ms + length_ms * all.len() as u64 / self.jobs as u64;
            std::thread::sleep(Duration::from_millis(due_ms.saturating_sub(boot_ms())));
            let new = (all.len()..all.len() + size).map(|number| Submission {
                id: format!("job{number}by{}", self.number),
                queue: queue(number).to_owned(),
                sent_ms: boot_ms(),
                answered_ms: None,
                tries: 0,
            });
            let mut new: Vec<Submission> = new.collect();
            self.until_answered(batch, target, &mut new, &mut answers);
            all.append(&mut new);
        }
        (all, answers)
    }

    fn until_answered(&self, batch: usize, target: &Target, jobs: &mut [Submission], answers: &mut Answers) {
        let end_ms = self.began_ms + super::ms(self.length) + super::ms(self.patience);
        let body = body(jobs, target).to_string();
        for attempt in 0.. {
            jobs.iter_mut().for_each(|job| job.tries += 1);
            let node = self.nodes[(self.number + batch + attempt) % self.nodes.len()];
            let hangs_up = attempt == 0 && batch % HANGS_UP == HANGS_UP - 1;
            let hang_up = hangs_up.then(|| Duration::from_millis(batch as u64 % 30));
            let answer = post(node, &self.token, &body, hang_up);
            let status = answer.as_ref().map_or("none", |(status, _)| status);
            *answers.entry(status.to_owned()).or_default() += 1;
            let is_named = |text: &str| jobs.iter().all(|job| text.contains(&format!("\"{}\"", job.id)));
            if answer.is_ok_and(|(status, text)| status == "202" && is_named(&text)) {
                jobs.iter_mut().for_each(|job| job.answered_ms = Some(boot_ms()));
                return;
            }
            if boot_ms() > end_ms {
                return;
            }
            std::thread::sleep(PAUSE);
        }
    }
}

/// The queue of a submitter's job with this number. Few wait where only few run at once.
fn queue(number: usize) -> &'static str {
    match number % 16 {
        0 => LIMITED,
        number if number % 2 == 0 => "short",
        _ => LONG,
    }
}

fn body(jobs: &[Submission], target: &Target) -> Value {
    let job = |job: &Submission| {
        let payload = json!({"url": target.run_url(&job.queue)});
        json!({"id": job.id, "kind": "http", "queue": job.queue, "payload": payload, "attempts": ATTEMPTS})
    };
    json!({"jobs": jobs.iter().map(job).collect::<Vec<_>>()})
}

/// The status and the text of an answer; or hangs up after this time, without either.
fn post(node: SocketAddr, token: &str, body: &str, hang_up: Option<Duration>) -> Result<(String, String)> {
    let mut stream = TcpStream::connect_timeout(&node, CONNECT)?;
    stream.set_read_timeout(Some(ANSWER))?;
    stream.set_write_timeout(Some(ANSWER))?;
    let length = body.len();
    let head = format!(
        "POST /v1/jobs HTTP/1.1\r\nHost: {node}\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(format!("{head}{body}").as_bytes())?;
    if let Some(wait) = hang_up {
        std::thread::sleep(wait);
        bail!("hung up");
    }
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, text) = answer.split_once("\r\n\r\n").context("half an answer")?;
    let status = head.split(' ').nth(1).context("no status")?;
    ensure!(status.len() == 3, "no status: {status:?}");
    Ok((status.to_owned(), text.to_owned()))
}
