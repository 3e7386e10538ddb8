//! What the jobs of a schedule do besides checks: run a command, send an HTTP request, or something that workers of one's own do.
//!
//! [`Work`] is what a schedule says; [`Commands`] and [`HttpRequests`] are the agent's side.

mod command;
mod http;

pub use command::{CommandWork, Commands};
pub use http::{HttpRequests, HttpWork};

use serde_json::{Value, json};
use tenure::id::KindName;

/// The kind of the jobs that run a command.
pub const COMMAND_KIND: &str = "command";

/// The kind of the jobs that send an HTTP request.
pub const HTTP_KIND: &str = "http";

/// How many bytes of what a program or a server says are kept as the result.
const SAID_MAX_BYTES: usize = 800;

/// What each job of a schedule does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Work {
    /// Runs a command, on an agent that allows it.
    Command(CommandWork),
    /// Sends an HTTP request, from an agent.
    Http(HttpWork),
    /// Whatever the workers do that take jobs of this kind.
    Other {
        /// The kind of the jobs.
        kind: KindName,
        /// The payload of each.
        payload: Value,
    },
}

impl Work {
    /// The kind of the jobs.
    pub fn kind(&self) -> &str {
        match self {
            Work::Command(_) => COMMAND_KIND,
            Work::Http(_) => HTTP_KIND,
            Work::Other { kind, .. } => kind.as_str(),
        }
    }

    /// The payload of each job.
    pub fn payload(&self) -> Value {
        match self {
            Work::Command(work) => json!(work),
            Work::Http(work) => json!(work),
            Work::Other { payload, .. } => payload.clone(),
        }
    }

    /// For people: the command, the request, or the kind.
    pub fn told(&self) -> String {
        match self {
            Work::Command(work) => work.command.join(" "),
            Work::Http(work) => format!("{} {}", work.method, work.url),
            Work::Other { kind, .. } => format!("jobs of kind {kind}"),
        }
    }
}
