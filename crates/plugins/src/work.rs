//! What the jobs of a schedule do besides checks: run a command, send an HTTP request, or something that workers of one's own do.
//!
//! [`Work`] is what a schedule says; [`Commands`] and [`HttpRequests`] are the agent's side.

mod command;
mod http;

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use command::PASSED;
pub use command::{CommandWork, Commands};
pub(crate) use http::refused_headers;
pub use http::{HttpRequests, HttpWork};

use crate::schedules::Problems;
use crate::schedules::read::job_work;
use serde_json::{Value, json};
use std::time::Duration;
use tenure::id::KindName;
use tenure::job::JobSpec;

/// The kind of the jobs that run a command.
pub const COMMAND_KIND: &str = "command";

/// The kind of the jobs that send an HTTP request.
pub const HTTP_KIND: &str = "http";

/// How long a command or a request may take, unless it says otherwise.
pub const WORK_TIMEOUT: Duration = Duration::from_secs(3600);

/// How many bytes of what a program or a server says are kept as the result.
const SAID_MAX_BYTES: usize = 800;

/// The end of what was said, as text of at most [`SAID_MAX_BYTES`]: what is not UTF-8 gets longer as text.
fn end_of(said: &[u8]) -> String {
    let text = String::from_utf8_lossy(said);
    let mut from = text.len().saturating_sub(SAID_MAX_BYTES);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    text[from..].trim().to_owned()
}

/// The beginning, likewise.
pub(crate) fn beginning_of(said: &[u8]) -> String {
    let text = String::from_utf8_lossy(said);
    let mut upto = text.len().min(SAID_MAX_BYTES);
    while !text.is_char_boundary(upto) {
        upto -= 1;
    }
    text[..upto].trim().to_owned()
}

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
    /// What a job does that is submitted with this kind and payload, if agents run jobs of that kind: it is checked as in a schedule.
    /// What other kinds mean is the business of their workers.
    pub fn of_job(kind: &str, payload: &[u8]) -> Result<Option<Work>, Problems> {
        let read = || serde_json::from_slice(payload).unwrap_or(Value::Null);
        match kind {
            COMMAND_KIND => job_work(kind, &read()).map(Some),
            HTTP_KIND => job_work(kind, &json!({ "http": read() })).map(Some),
            _ => Ok(None),
        }
    }

    /// A job that does this, for a worker that allows its command.
    pub fn job(&self, spec: JobSpec) -> JobSpec {
        let spec = spec.payload(self.payload().to_string());
        match self {
            Work::Command(work) => spec.allows(work.words()),
            Work::Http(_) | Work::Other { .. } => spec,
        }
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sc4_a_submitted_command_says_what_its_worker_must_allow() {
        let payload = br#"{"command": ["/bin/backup", "--all"], "directory": "/srv", "env": {"LEVEL": "1"}}"#;
        let work = Work::of_job("command", payload).expect("valid").expect("agents run it");
        let job = work.job(JobSpec::new("a", work.kind())).record().expect("valid");
        assert_eq!(job.commands.concat(), ["PWD=/srv", "LEVEL=1", "/bin/backup", "--all"]);
        assert_eq!(serde_json::from_slice::<CommandWork>(&job.payload).expect("read").command[1], "--all");
        let request =
            Work::of_job("http", br#"{"url": "http://h/"}"#).expect("valid").expect("agents run it");
        assert_eq!(request.told(), "GET http://h/");
        assert_eq!(Work::of_job("send", b"anything"), Ok(None));
    }

    #[test]
    fn what_is_no_text_makes_no_result_too_long() {
        let binary = [b"a", &[0xff; SAID_MAX_BYTES][..], b"z"].concat();
        let (end, beginning) = (end_of(&binary), beginning_of(&binary));
        assert!(end.len() <= SAID_MAX_BYTES && end.ends_with("\u{fffd}z"), "{end}");
        assert!(beginning.len() <= SAID_MAX_BYTES && beginning.starts_with("a\u{fffd}"), "{beginning}");
        assert_eq!(
            (end_of(b" one two\n"), beginning_of(b" one two\n")),
            ("one two".into(), "one two".into())
        );
    }

    #[test]
    fn what_no_agent_could_run_is_refused_with_its_rule() {
        for (kind, payload, says) in [
            ("command", r#"{"command": ["backup"]}"#, "full path"),
            ("command", r#"{"command": ["/bin/x"], "dir": "/"}"#, "dir"),
            ("command", "/bin/x", "job"),
            ("command", r#"{"http": {"url": "http://h/"}}"#, "command"),
            ("http", r#"{"url": "ftp://h/"}"#, "url"),
            ("http", r#"{"url": "http://h/", "method": "BREW"}"#, "GET"),
            (
                "http",
                r#"{"url": "http://h/", "headers": {"Tenure-Epoch": "9"}}"#,
                r#"job.http.headers = "Tenure-Epoch": must not be given"#,
            ),
        ] {
            let error = Work::of_job(kind, payload.as_bytes()).expect_err(payload).to_string();
            assert!(error.contains(says), "{payload}: {error}");
        }
    }
}
