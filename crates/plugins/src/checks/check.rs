//! The kinds of checks an agent has. A check passes, or says in a few words why not; the caller measures and limits its time.

use super::allowed::AllowedCommand;
use super::link_local::LinkLocal;
use crate::schedules::schedule::{Action, CheckSpec};
use std::net::IpAddr;
use std::process::Stdio;
use std::sync::Arc;
use tenure::async_trait;
use tenure::id::JobId;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::{TcpStream, lookup_host};

/// How much of a program's error output is kept.
const SAID_MAX_BYTES: usize = 200;

/// The job a check belongs to. The target may need this: to do nothing twice for a job it remembers the id, and to ignore a
/// former leader it remembers the highest epoch.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct JobRun {
    /// The job id: the schedule and the due time.
    pub job: JobId,
    /// The number of this attempt.
    pub attempt: u32,
    /// The epoch of the leader that assigned the job.
    pub epoch: u64,
}

/// One kind of check. It must not block; when its time is up, it is dropped at an await point.
#[async_trait]
pub trait Check: Send + Sync + 'static {
    /// Checks once. The error is for people and may be cut.
    async fn check(&self, job: &JobRun, spec: &CheckSpec) -> Result<(), String>;
}

fn not_mine(spec: &CheckSpec) -> String {
    format!("checks of kind {} cannot run here", spec.action.kind())
}

/// Opens a connection and closes it.
#[derive(Clone, Copy, Debug, Default)]
pub struct TcpCheck {
    link_local: LinkLocal,
}

impl TcpCheck {
    /// [`default`](TcpCheck::default) denies link-local addresses.
    pub fn new(link_local: LinkLocal) -> TcpCheck {
        TcpCheck { link_local }
    }
}

#[async_trait]
impl Check for TcpCheck {
    async fn check(&self, _: &JobRun, spec: &CheckSpec) -> Result<(), String> {
        let Action::Tcp { host, port } = &spec.action else { return Err(not_mine(spec)) };
        let port = u16::try_from(*port).map_err(|_| format!("{port} is not a port"))?;
        let addresses = self.link_local.addresses(host, port).await?;
        TcpStream::connect(&addresses[..]).await.map(drop).map_err(|error| error.to_string())
    }
}

/// Looks up a name the way this machine does. A lookup may outlive its time limit; its result is then ignored.
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

/// Sends an HTTP request directly, on a connection of its own, with the headers `Tenure-Job`, `Tenure-Attempt` and
/// `Tenure-Epoch`. Redirects count as the answer and are not followed; the body is not read.
#[derive(Clone, Debug)]
pub struct HttpCheck {
    client: reqwest::Client,
    link_local: LinkLocal,
}

impl HttpCheck {
    /// Uses the certificates this machine trusts.
    pub fn new(link_local: LinkLocal) -> Result<HttpCheck, String> {
        // An error means that another part of the program has already chosen a provider, which is fine.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .dns_resolver(Arc::new(link_local))
            .pool_max_idle_per_host(0)
            .user_agent(concat!("tenure-poll/", env!("CARGO_PKG_VERSION")))
            .build();
        client.map(|client| HttpCheck { client, link_local }).map_err(|error| in_short(&error))
    }
}

/// An error and its causes, without the address: that is in the schedule.
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
        let url = reqwest::Url::parse(url).map_err(|error| error.to_string())?;
        // The client connects to an IP address without asking the resolver, so check it here; a name goes through the resolver's
        // check.
        let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
        if let Ok(address) = host.parse::<IpAddr>() {
            self.link_local.check(address)?;
        }
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

/// The variables passed on from the agent's environment: none that would hold a secret.
const PASSED: [&str; 4] = ["PATH", "HOME", "LANG", "TZ"];

/// Runs the commands this agent's own settings allow, without a shell and with empty input. From the agent's environment they see
/// `PATH`, `HOME`, `LANG`, `TZ` and the variables named here; `TENURE_JOB`, `TENURE_ATTEMPT` and `TENURE_EPOCH` are set. The
/// check passes if the program exits with 0. Child processes of the program may outlive it.
#[derive(Clone, Debug)]
pub struct CommandCheck {
    allowed: Vec<AllowedCommand>,
    passed: Vec<String>,
}

impl CommandCheck {
    /// Allows these commands and no others.
    pub fn new(allowed: impl IntoIterator<Item = AllowedCommand>) -> CommandCheck {
        CommandCheck { allowed: allowed.into_iter().collect(), passed: Vec::new() }
    }

    /// Passes these variables of the agent's environment on as well.
    pub fn env(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> CommandCheck {
        self.passed.extend(names.into_iter().map(Into::into));
        self
    }
}

#[async_trait]
impl Check for CommandCheck {
    async fn check(&self, job: &JobRun, spec: &CheckSpec) -> Result<(), String> {
        let Action::Command { program, args } = &spec.action else { return Err(not_mine(spec)) };
        if !self.allowed.iter().any(|allowed| allowed.allows(program, args)) {
            return Err("this agent does not allow this command with these arguments".to_owned());
        }
        let mut command = tokio::process::Command::new(program);
        command.args(args).env_clear().stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        for name in PASSED.into_iter().chain(self.passed.iter().map(String::as_str)) {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
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

/// The beginning of the output. The rest is read and discarded, so that the program never blocks on a full pipe.
async fn beginning(mut from: impl AsyncRead + Unpin) -> String {
    let (mut kept, mut buffer) = (Vec::new(), [0; 1024]);
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        let room = SAID_MAX_BYTES.saturating_sub(kept.len()).min(read);
        kept.extend_from_slice(&buffer[..room]);
    }
    String::from_utf8_lossy(&kept).trim().to_owned()
}
