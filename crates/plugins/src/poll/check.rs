//! The kinds of checks, as an agent has them. A check says that all is well, or in a few words why not; its time is taken, and
//! limited, by whoever runs it.

use super::allowed::AllowedCommand;
use super::reach::LinkLocal;
use super::schedule::{Action, CheckSpec};
use std::net::IpAddr;
use std::process::Stdio;
use std::sync::Arc;
use tenure::async_trait;
use tenure::id::JobId;
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
    pub job: JobId,
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
pub struct TcpCheck {
    link_local: LinkLocal,
}

impl TcpCheck {
    /// Link-local addresses are denied by [`default`](TcpCheck::default).
    pub fn new(link_local: LinkLocal) -> TcpCheck {
        TcpCheck { link_local }
    }
}

#[async_trait]
impl Check for TcpCheck {
    async fn check(&self, _: &JobRun, spec: &CheckSpec) -> Result<(), String> {
        let Action::Tcp { host, port } = &spec.action else { return Err(not_mine(spec)) };
        let port = u16::try_from(*port).map_err(|_| format!("{port} is no port"))?;
        let addresses = self.link_local.addresses(host, port).await?;
        TcpStream::connect(&addresses[..]).await.map(drop).map_err(|error| error.to_string())
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
    link_local: LinkLocal,
}

impl HttpCheck {
    /// With the certificates this machine trusts.
    pub fn new(link_local: LinkLocal) -> Result<HttpCheck, String> {
        // Somebody else's choice, made before, is as good.
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
        let url = reqwest::Url::parse(url).map_err(|error| error.to_string())?;
        // An address is connected to as it is; a name is looked up by the client, which asks the same question then.
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

/// What a command finds in its environment of the agent's own: nothing that a secret is kept in.
const PASSED: [&str; 4] = ["PATH", "HOME", "LANG", "TZ"];

/// Runs commands this agent's own settings allow, without a shell and with nothing to read. Of the agent's environment they see
/// `PATH`, `HOME`, `LANG`, `TZ` and what is named here; `TENURE_JOB`, `TENURE_ATTEMPT` and `TENURE_EPOCH` are set. All is well if it
/// ends with 0. Not promised: that what a program started ends with it.
#[derive(Clone, Debug)]
pub struct CommandCheck {
    allowed: Vec<AllowedCommand>,
    passed: Vec<String>,
}

impl CommandCheck {
    /// These commands and no others.
    pub fn new(allowed: impl IntoIterator<Item = AllowedCommand>) -> CommandCheck {
        CommandCheck { allowed: allowed.into_iter().collect(), passed: Vec::new() }
    }

    /// They see these variables of the agent's environment too.
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

/// The beginning of what is said; the rest is heard, so that nobody waits for a reader, and forgotten.
async fn beginning(mut from: impl AsyncRead + Unpin) -> String {
    let (mut kept, mut buffer) = (Vec::new(), [0; 1024]);
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        let room = SAID_MAX_BYTES.saturating_sub(kept.len()).min(read);
        kept.extend_from_slice(&buffer[..room]);
    }
    String::from_utf8_lossy(&kept).trim().to_owned()
}
