//! The specification of a job, checked before anything is written.

use crate::clock::millis;
use crate::error::{Error, ErrorKind};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tenure_core::IdError;
use tenure_core::{JOB_PAYLOAD_MAX_BYTES, JOB_PRIORITY, JOB_PRIORITY_MAX, JobLimits, JobRecord, Labels};

/// Longest time that a job may specify.
const TIME_MAX_MS: u64 = 30 * 24 * 3600 * 1000;

/// Latest time before which a job may ask not to be run, from now.
const NOT_BEFORE_MAX: Duration = Duration::from_secs(366 * 24 * 3600);

/// Most capabilities that a job may need.
const CAPABILITIES_MAX: usize = 32;

/// Most attempts that a job may have.
pub(super) const ATTEMPTS_MAX: u32 = 100;

/// A job to submit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobSpec {
    /// `None`: the submission chooses one.
    id: Option<String>,
    series: Option<String>,
    watermark: u64,
    kind: String,
    payload: Vec<u8>,
    worker: Option<String>,
    needs: Labels,
    commands: Vec<Vec<String>>,
    queue: Option<String>,
    priority: u8,
    not_before: Option<SystemTime>,
    timeout: Duration,
    ttl: Option<Duration>,
    deadline: Option<Duration>,
    attempts: u32,
    backoff: Duration,
    notify: bool,
}

impl JobSpec {
    /// A job with this id and kind. Both follow the rules of ids.
    ///
    /// Submitting the same id again returns the existing job: derive the id from what the job is about, not from a
    /// counter.
    pub fn new(id: impl Into<String>, kind: impl Into<String>) -> JobSpec {
        JobSpec { id: Some(id.into()), ..JobSpec::unnamed(kind) }
    }

    /// A job of this kind with an id of its own: for [`Jobs::submit`](super::Jobs::submit). Submitting it twice makes two jobs.
    pub fn unnamed(kind: impl Into<String>) -> JobSpec {
        JobSpec {
            id: None,
            series: None,
            watermark: 0,
            kind: kind.into(),
            payload: Vec::new(),
            worker: None,
            needs: Labels::default(),
            commands: Vec::new(),
            queue: None,
            priority: JOB_PRIORITY,
            not_before: None,
            timeout: Duration::from_secs(60),
            ttl: None,
            deadline: None,
            attempts: 3,
            backoff: Duration::from_secs(1),
            notify: false,
        }
    }

    /// Its id, if it was given one.
    pub(super) fn name(&self) -> Option<&str> {
        self.id.as_deref()
    }

    /// With this id and series, unless it has its own.
    pub(super) fn or_named(mut self, id: String, series: String) -> JobSpec {
        self.id.get_or_insert(id);
        self.series.get_or_insert(series);
        self
    }

    /// The series it belongs to. Jobs of one series stand in one object of the ledger. If not set, a
    /// [`Dispatcher`](super::Dispatcher) takes its kind, and [`Jobs::submit`](super::Jobs::submit) one by which its id is found.
    pub fn series(mut self, series: impl Into<String>) -> JobSpec {
        self.series = Some(series.into());
        self
    }

    /// Its place in its series, for example the time it was due. Once a watermark is used, nothing at or below it is ever created
    /// in that series again, even after the job itself is forgotten. Watermarks must therefore rise.
    pub fn watermark(mut self, watermark: u64) -> JobSpec {
        self.watermark = watermark;
        self
    }

    /// Input for the handler: at most 16 KiB.
    pub fn payload(mut self, payload: impl Into<Vec<u8>>) -> JobSpec {
        self.payload = payload.into();
        self
    }

    /// The worker that must do it; if not set, the leader chooses one.
    pub fn worker(mut self, worker: impl Into<String>) -> JobSpec {
        self.worker = Some(worker.into());
        self
    }

    /// What the worker must have. Default: nothing.
    pub fn needs(mut self, needs: Labels) -> JobSpec {
        self.needs = needs;
        self
    }

    /// A command that the worker must allow, as [`AllowedCommand::allows`](super::AllowedCommand::allows) takes it; may be called several
    /// times, for at most 16 KiB in all. The handler learns of it from the payload alone.
    pub fn allows(mut self, command: Vec<String>) -> JobSpec {
        self.commands.push(command);
        self
    }

    /// The queue it waits in; the first job that names a queue makes it. Default: `default`.
    pub fn queue(mut self, queue: impl Into<String>) -> JobSpec {
        self.queue = Some(queue.into());
        self
    }

    /// 0 to 9: of the jobs that wait, those with a higher one are first, and among equals the older ones. Default: 5.
    pub fn priority(mut self, priority: u8) -> JobSpec {
        self.priority = priority;
        self
    }

    /// It is not run before this time, by the leader's clock; at most a year from now. Default: at once.
    pub fn not_before(mut self, time: SystemTime) -> JobSpec {
        self.not_before = Some(time);
        self
    }

    /// How long one attempt may run, by the worker's clock. Default: 1 min.
    pub fn timeout(mut self, timeout: Duration) -> JobSpec {
        self.timeout = timeout;
        self
    }

    /// How long it may wait for a worker to claim it. Default: no limit.
    pub fn ttl(mut self, ttl: Duration) -> JobSpec {
        self.ttl = Some(ttl);
        self
    }

    /// How long it may take in all. Default: no limit.
    pub fn deadline(mut self, deadline: Duration) -> JobSpec {
        self.deadline = Some(deadline);
        self
    }

    /// How often it may be started. Default: 3.
    pub fn attempts(mut self, attempts: u32) -> JobSpec {
        self.attempts = attempts;
        self
    }

    /// The pause before the second attempt; it doubles before each further one, up to 10 min. Default: 1 s.
    pub fn backoff(mut self, backoff: Duration) -> JobSpec {
        self.backoff = backoff;
        self
    }

    /// Whoever [delivers notices](super::NoticeSender) is told if it fails or expires. Default: only if they want to be told of
    /// every job.
    pub fn notify(mut self) -> JobSpec {
        self.notify = true;
        self
    }

    /// The record for the ledger, before anything has happened to the job.
    pub fn record(&self) -> Result<JobRecord, Error> {
        self.check()
    }

    pub(crate) fn check(&self) -> Result<JobRecord, Error> {
        let ms = |field: &'static str, time: Duration, least: u64| {
            let ms = millis(time);
            let rule = "must be at least 1 ms (a backoff may be 0) and at most 30 days";
            match (least..=TIME_MAX_MS).contains(&ms) {
                true => Ok(ms),
                false => Err(invalid(field, format_args!("{ms} ms"), rule)),
            }
        };
        if self.payload.len() > JOB_PAYLOAD_MAX_BYTES {
            let value = format_args!("{} bytes", self.payload.len());
            return Err(invalid("payload", value, "must be at most 16384 bytes"));
        }
        if self.needs.capabilities.len() > CAPABILITIES_MAX {
            let count = self.needs.capabilities.len();
            return Err(invalid("capabilities", count, "may name at most 32"));
        }
        let words = self.commands.iter().flatten().map(|word| word.len() + 6).sum::<usize>();
        if words > JOB_PAYLOAD_MAX_BYTES || self.commands.iter().any(Vec::is_empty) {
            return Err(invalid(
                "commands",
                format_args!("{words} bytes"),
                "must be 1 to 16384 bytes of programs",
            ));
        }
        if self.priority > JOB_PRIORITY_MAX {
            return Err(invalid("priority", self.priority, "must be 0 to 9"));
        }
        if !(1..=ATTEMPTS_MAX).contains(&self.attempts) {
            return Err(invalid("attempts", self.attempts, "must be 1 to 100"));
        }
        let name = self.id.as_ref().ok_or_else(|| invalid("id", "", "is missing"))?;
        let job = id("id", name)?;
        let series = id("series", self.series.as_ref().unwrap_or(&self.kind))?;
        let kind = id("kind", &self.kind)?;
        let limits = JobLimits {
            timeout_ms: ms("timeout", self.timeout, 1)?,
            ttl_ms: self.ttl.map_or(Ok(0), |ttl| ms("ttl", ttl, 1))?,
            deadline_ms: self.deadline.map_or(Ok(0), |deadline| ms("deadline", deadline, 1))?,
            attempts_max: self.attempts,
            backoff_ms: ms("backoff", self.backoff, 0)?,
        };
        let target = self.worker.as_ref().map(|worker| id("worker", worker)).transpose()?;
        let queue = self.queue.as_ref().map(|queue| id("queue", queue)).transpose()?;
        let since_1970 = |time: SystemTime| {
            time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| millis(since) as i64)
        };
        let now = SystemTime::now();
        if self.not_before.is_some_and(|time| time > now + NOT_BEFORE_MAX) {
            return Err(invalid("notBefore", "later", "must be within a year"));
        }
        Ok(JobRecord {
            watermark: self.watermark,
            payload: Arc::from(self.payload.as_slice()),
            target,
            needs: self.needs.clone(),
            commands: Arc::from(self.commands.clone()),
            queue: queue.unwrap_or_default(),
            priority: self.priority,
            submitted_ms: since_1970(now),
            not_before_ms: self.not_before.map_or(0, since_1970),
            notify: self.notify,
            ..JobRecord::new(job, series, kind, limits)
        })
    }
}

/// This field breaks this rule. Nothing was written.
fn invalid(field: &str, value: impl fmt::Display, rule: &str) -> Error {
    let value = crate::wire::told(&value.to_string());
    Error::new(ErrorKind::Invalid, format_args!("`{field}` of a job is {value:?}: it {rule}"))
}

fn id<T: FromStr<Err = IdError>>(field: &str, text: &str) -> Result<T, Error> {
    text.parse().map_err(|error: IdError| invalid(field, &error.value, error.rule))
}
