//! The kinds of checks, as an agent has them. A check says that all is well, or in a few words why not; its time is taken, and
//! limited, by whoever runs it.

use super::schedule::{Action, CheckSpec};
use std::collections::BTreeSet;
use std::process::Stdio;
use tenure::{NodeId, async_trait};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::{TcpStream, lookup_host};

/// What is kept of a program's errors.
const SAID_MAX_BYTES: usize = 200;

/// The job a check is part of. Whatever is looked at may want to know: one that must do nothing twice for a job remembers its id,
/// one that must not listen to a former leader remembers the highest epoch.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct JobRun {
    /// Its id: the schedule and the due time.
    pub job: NodeId,
    /// Which attempt.
    pub attempt: u32,
    /// The epoch of the leader that gave it out.
    pub epoch: u64,
}

/// One kind of check. It is dropped where it awaits when its time is over, and must not block.
#[async_trait]
pub trait Check: Send + Sync + 'static {
    /// Looks once. The error is for people; it is cut.
    async fn check(&self, job: &JobRun, spec: &CheckSpec) -> Result<(), String>;
}

fn not_mine(spec: &CheckSpec) -> String {
    format!("a check of kind {} cannot be done here", spec.action.kind())
}

/// Opens a connection, and closes it.
#[derive(Clone, Copy, Debug, Default)]
pub struct TcpCheck;

#[async_trait]
impl Check for TcpCheck {
    async fn check(&self, _: &JobRun, spec: &CheckSpec) -> Result<(), String> {
        let Action::Tcp { host, port } = &spec.action else { return Err(not_mine(spec)) };
        let port = u16::try_from(*port).map_err(|_| format!("{port} is no port"))?;
        TcpStream::connect((host.as_str(), port)).await.map(drop).map_err(|error| error.to_string())
    }
}

/// Looks a name up the way this machine does. Not promised: that a lookup ends with its time; it goes on unheard.
#[derive(Clone, Copy, Debug, Default)]
pub struct DnsCheck;

#[async_trait]
impl Check for DnsCheck {
    async fn check(&self, _: &JobRun, spec: &CheckSpec) -> Result<(), String> {
        let Action::Dns { host } = &spec.action else { return Err(not_mine(spec)) };
        let mut found = lookup_host((host.as_str(), 0)).await.map_err(|error| error.to_string())?;
        found.next().map(drop).ok_or_else(|| "it has no address".to_owned())
    }
}

/// Asks by HTTP, on a connection of its own, directly, and says for what: `Tenure-Job`, `Tenure-Attempt`, `Tenure-Epoch`. Redirects are not followed, they are an answer; the body is not read.
#[derive(Clone, Debug)]
pub struct HttpCheck {
    client: reqwest::Client,
}

impl HttpCheck {
    /// With the certificates this machine trusts.
    pub fn new() -> Result<HttpCheck, String> {
        // Somebody else's choice, made before, is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .pool_max_idle_per_host(0)
            .user_agent(concat!("tenure-poll/", env!("CARGO_PKG_VERSION")))
            .build();
        client.map(|client| HttpCheck { client }).map_err(|error| in_short(&error))
    }
}

/// An error and what it came from, without the address: that stands in the schedule.
fn in_short(error: &dyn std::error::Error) -> String {
    let mut last = error;
    while let Some(cause) = last.source() {
        last = cause;
    }
    last.to_string()
}

#[async_trait]
impl Check for HttpCheck {
    async fn check(&self, job: &JobRun, spec: &CheckSpec) -> Result<(), String> {
        let Action::Http { url, method, status } = &spec.action else { return Err(not_mine(spec)) };
        let request = match method.as_str() {
            "HEAD" => self.client.head(url),
            _ => self.client.get(url),
        };
        let request = request
            .header("Tenure-Job", job.job.as_str())
            .header("Tenure-Attempt", job.attempt)
            .header("Tenure-Epoch", job.epoch);
        let answer = request.send().await.map_err(|error| in_short(&error.without_url()))?;
        let got = u64::from(answer.status().as_u16());
        match status {
            Some(status) if got == *status => Ok(()),
            Some(status) => Err(format!("status {got}, not {status}")),
            None if (200..400).contains(&got) => Ok(()),
            None => Err(format!("status {got}")),
        }
    }
}

/// Runs programs this agent's own settings allow, without a shell, with no environment but `PATH`, `TENURE_JOB`, `TENURE_ATTEMPT` and `TENURE_EPOCH`,
/// and nothing to read. All is well if it ends with 0. Not promised: that what a program started ends with it.
#[derive(Clone, Debug)]
pub struct CommandCheck {
    allowed: BTreeSet<String>,
}

impl CommandCheck {
    /// Exactly these programs, as schedules name them.
    pub fn new(allowed: impl IntoIterator<Item = impl Into<String>>) -> CommandCheck {
        CommandCheck { allowed: allowed.into_iter().map(Into::into).collect() }
    }
}

#[async_trait]
impl Check for CommandCheck {
    async fn check(&self, job: &JobRun, spec: &CheckSpec) -> Result<(), String> {
        let Action::Command { program, args } = &spec.action else { return Err(not_mine(spec)) };
        if !self.allowed.contains(program) {
            return Err("this agent's settings do not allow this program".to_owned());
        }
        let mut command = tokio::process::Command::new(program);
        command.args(args).env_clear().stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        if let Some(path) = std::env::var_os("PATH") {
            command.env("PATH", path);
        }
        command.env("TENURE_JOB", job.job.as_str()).env("TENURE_ATTEMPT", job.attempt.to_string());
        command.env("TENURE_EPOCH", job.epoch.to_string());
        let mut child = command.kill_on_drop(true).spawn().map_err(|error| error.to_string())?;
        let said = match child.stderr.take() {
            Some(stderr) => beginning(stderr).await,
            None => String::new(),
        };
        let status = child.wait().await.map_err(|error| error.to_string())?;
        match status.success() {
            true => Ok(()),
            false => Err(format!("{status}: {said}")),
        }
    }
}

/// The beginning of what is said; the rest is heard, so that nobody waits for a reader, and forgotten.
async fn beginning(mut from: impl AsyncRead + Unpin) -> String {
    let (mut kept, mut buffer) = (Vec::new(), [0; 1024]);
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        let room = SAID_MAX_BYTES.saturating_sub(kept.len()).min(read);
        kept.extend_from_slice(&buffer[..room]);
    }
    String::from_utf8_lossy(&kept).trim().to_owned()
}
