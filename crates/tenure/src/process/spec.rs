//! What a process is, declared before it runs.

use super::context::ProcessContext;
use crate::clock::millis;
use std::any::Any;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tenure_core::{ProcessConfig, Restart};

/// The failure of a process, in words.
pub(super) type Failure = String;

pub(super) type Work = Pin<Box<dyn Future<Output = Result<(), Failure>> + Send>>;

/// Most characters kept of a failure.
const FAILURE_CHARS_MAX: usize = 200;

/// One leader-only process: what it does, and how it is supervised.
#[derive(Clone)]
#[must_use = "a process runs only under a supervisor"]
pub struct ProcessSpec {
    name: Arc<str>,
    restart: Restart,
    ready_within: Option<Duration>,
    stop_grace: Duration,
    pub(super) body: Body,
}

#[derive(Clone)]
pub(super) enum Body {
    Task(Arc<dyn Fn(ProcessContext) -> Work + Send + Sync>),
    Thread(Arc<dyn Fn(ProcessContext) -> Result<(), Failure> + Send + Sync>),
}

impl ProcessSpec {
    /// A process that awaits. The function is called again for every start, and runs as a task that can be cut off where it
    /// awaits.
    ///
    /// It should return soon after [`ProcessContext::cancelled`]; it must itself stop anything it spawned elsewhere.
    pub fn new<F, W, E>(name: impl Into<String>, body: F) -> ProcessSpec
    where
        F: Fn(ProcessContext) -> W + Send + Sync + 'static,
        W: Future<Output = Result<(), E>> + Send + 'static,
        E: fmt::Display,
    {
        let body = Body::Task(Arc::new(move |context| {
            let work = body(context);
            Box::pin(async move { work.await.map_err(|error| in_short(&error.to_string())) })
        }));
        ProcessSpec::with(name, body)
    }

    /// A process that blocks. It gets its own thread and must check [`ProcessContext::is_cancelled`]: nobody can cut it off.
    /// A process that does not listen loses its guard and is reported as stuck.
    pub fn blocking<F, E>(name: impl Into<String>, body: F) -> ProcessSpec
    where
        F: Fn(ProcessContext) -> Result<(), E> + Send + Sync + 'static,
        E: fmt::Display,
    {
        let body = Body::Thread(Arc::new(move |context| {
            body(context).map_err(|error| in_short(&error.to_string()))
        }));
        ProcessSpec::with(name, body)
    }

    fn with(name: impl Into<String>, body: Body) -> ProcessSpec {
        ProcessSpec {
            name: Arc::from(name.into()),
            restart: Restart::Permanent,
            ready_within: None,
            stop_grace: Duration::from_secs(1),
            body,
        }
    }

    /// When to start it again after it ended; always, if not set.
    pub fn restart(mut self, restart: Restart) -> ProcessSpec {
        self.restart = restart;
        self
    }

    /// The process reports by [`ProcessContext::ready`], within 30 s, when it is ready; only then is the next one started.
    /// Without this, it is ready as soon as it is started.
    pub fn ready_signal(self) -> ProcessSpec {
        self.ready_within(Duration::from_secs(30))
    }

    /// Like [`ready_signal`](ProcessSpec::ready_signal), within this time. If a process takes longer, it cannot start, and
    /// leadership is given up.
    pub fn ready_within(mut self, limit: Duration) -> ProcessSpec {
        self.ready_within = Some(limit);
        self
    }

    /// How long it may take to stop by itself; 1 s, if not set. All processes together have three quarters of
    /// `drainTimeout`, and never longer than the lease: if that is too little for all, each gets a share of it.
    pub fn stop_grace(mut self, grace: Duration) -> ProcessSpec {
        self.stop_grace = grace;
        self
    }

    /// The name given to [`new`](ProcessSpec::new) or [`blocking`](ProcessSpec::blocking).
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn shared_name(&self) -> Arc<str> {
        Arc::clone(&self.name)
    }

    pub(super) fn plan(&self) -> ProcessConfig {
        ProcessConfig {
            restart: self.restart,
            ready_within_ms: self.ready_within.map(millis),
            stop_grace_ms: millis(self.stop_grace),
        }
    }
}

impl fmt::Debug for ProcessSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.body {
            Body::Task(_) => "task",
            Body::Thread(_) => "thread",
        };
        write!(f, "process {} ({kind}, {:?})", self.name, self.restart)
    }
}

/// A panic's message.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (None, Some(text)) => text.as_str(),
        (None, None) => "without words",
    };
    in_short(text)
}

/// One bounded line of what a process said.
fn in_short(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(FAILURE_CHARS_MAX).collect()
}
