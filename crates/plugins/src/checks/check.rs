//! The kinds of checks an agent has. A check passes, or says in a few words why not; the caller measures and limits its time.

use super::link_local::LinkLocal;
use crate::schedules::schedule::{Action, CheckSpec};
use crate::work::{CommandWork, Commands};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use tenure::async_trait;
use tenure::id::JobId;
use tenure::job::OutputWriter;
use tokio::net::{TcpStream, lookup_host};

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

impl HttpCheck {
    fn allowed(&self, url: &str) -> Result<reqwest::Url, String> {
        let url = reqwest::Url::parse(url).map_err(|error| error.to_string())?;
        // The client connects to an IP address without asking the resolver, so check it here; a name goes through the resolver's
        // check.
        let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
        if let Ok(address) = host.parse::<IpAddr>() {
            self.link_local.check(address)?;
        }
        Ok(url)
    }

    /// A request for a job, unless its address is denied.
    pub(crate) fn request(
        &self,
        method: reqwest::Method,
        url: &str,
        job: &JobRun,
    ) -> Result<reqwest::RequestBuilder, String> {
        let request = self.client.request(method, self.allowed(url)?).header("Tenure-Job", job.job.as_str());
        Ok(request.header("Tenure-Attempt", job.attempt).header("Tenure-Epoch", job.epoch))
    }

    /// A request that belongs to no job, unless its address is denied.
    pub(crate) fn post(&self, url: &str) -> Result<reqwest::RequestBuilder, String> {
        Ok(self.client.post(self.allowed(url)?))
    }

    pub(crate) async fn answer(&self, request: reqwest::RequestBuilder) -> Result<reqwest::Response, String> {
        request.send().await.map_err(|error| in_short(&error.without_url()))
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
        let method = if method == "HEAD" { reqwest::Method::HEAD } else { reqwest::Method::GET };
        let answer = self.answer(self.request(method, url, job)?).await?;
        let got = u64::from(answer.status().as_u16());
        match status {
            Some(status) if got == *status => Ok(()),
            Some(status) => Err(format!("status {got}, not {status}")),
            None if (200..400).contains(&got) => Ok(()),
            None => Err(format!("status {got}")),
        }
    }
}

/// A command passes if it exits with 0.
#[async_trait]
impl Check for Commands {
    async fn check(&self, job: &JobRun, spec: &CheckSpec) -> Result<(), String> {
        let Action::Command { program, args } = &spec.action else { return Err(not_mine(spec)) };
        let command = std::iter::once(program).chain(args).cloned().collect();
        let work = CommandWork { command, directory: None, env: BTreeMap::new() };
        let ended = self.start(&work, job)?.end(&OutputWriter::nowhere(), std::future::pending()).await;
        let (status, said) = ended.map_err(|error| error.to_string())?;
        match status.success() {
            true => Ok(()),
            false => Err(format!("{status}: {said}")),
        }
    }
}
