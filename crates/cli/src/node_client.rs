//! The one place that makes requests to a node over HTTP.

use crate::args::SettingsArgs;
use crate::exit::Failure;
use crate::token;
use std::path::Path;
use std::time::Duration;
use url::{Host, Url};

/// The node must begin to answer within this.
const PATIENCE: Duration = Duration::from_secs(10);

/// A node says something every 15 s, if only that it is there.
const SILENCE: Duration = Duration::from_secs(45);

pub(crate) struct NodeClient {
    url: Url,
    /// The same for people.
    shown: String,
    client: reqwest::Client,
    /// As it was given.
    token: Option<String>,
    /// This user's own, for a node on this machine that asks for one.
    own: Option<String>,
}

impl NodeClient {
    pub(crate) fn new(url: Url, token_file: Option<&Path>) -> Result<NodeClient, Failure> {
        let shown = without_credentials(&url);
        if !["http", "https"].contains(&url.scheme()) {
            return Err(Failure::usage(format!("--url {shown}: must begin with http:// or https://")));
        }
        let token = token::CHANGE.given(token_file)?.map(|found| found.text);
        let near = is_loopback(&url) && url.port_or_known_default().is_some_and(listens_for_us);
        let own = if token.is_none() && near { own_token() } else { None };
        // An error means that somebody has installed one, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder()
            // A proxy would see the token.
            .no_proxy()
            .connect_timeout(PATIENCE)
            .read_timeout(SILENCE)
            .redirect(reqwest::redirect::Policy::none())
            .build();
        let client = client.map_err(|error| Failure::other(words(&error)))?;
        Ok(NodeClient { url, shown, client, token, own })
    }

    /// Asks for a document. This user's own token is sent only to a process of this user or of root on this machine, and only if it
    /// asks for one: on loopback anybody may have taken the port.
    pub(crate) async fn get(
        &self,
        path: &str,
        query: &[(&str, &str)],
        headers: &[(&str, &str)],
    ) -> Result<reqwest::Response, Failure> {
        let mut url = self.url.join(path).map_err(|error| Failure::usage(format!("--url: {error}")))?;
        url.query_pairs_mut().extend_pairs(query);
        let answer = self.send(&url, headers, self.token.as_deref()).await?;
        let answer = match &self.own {
            Some(own) if answer.status().as_u16() == 401 => self.send(&url, headers, Some(own)).await?,
            Some(_) | None => answer,
        };
        match answer.status().as_u16() {
            200 => Ok(answer),
            401 => Err(Failure::other(format!("{} rejected the token (--token-file)", self.shown))),
            other => Err(Failure::other(format!("{} answers {other}", self.shown))),
        }
    }

    async fn send(
        &self,
        url: &Url,
        headers: &[(&str, &str)],
        token: Option<&str>,
    ) -> Result<reqwest::Response, Failure> {
        let mut request = self.client.get(url.clone());
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = tokio::time::timeout(PATIENCE, request.send()).await;
        answer
            .map_err(|_| Failure::other(format!("{} does not answer", self.shown)))?
            .map_err(|error| self.away(&error))
    }

    /// The node cannot be asked.
    pub(crate) fn away(&self, error: &reqwest::Error) -> Failure {
        Failure::other(format!("{}: {}", self.shown, words(error)))
    }
}

fn without_credentials(url: &Url) -> String {
    let mut url = url.clone();
    // Neither can be refused where there is something to hide: such an address has a host.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.to_string()
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.to_canonical().is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    }
}

/// Whether everybody who listens on this port of this machine is this user or root.
fn listens_for_us(port: u16) -> bool {
    let me = rustix::process::geteuid().as_raw();
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(std::fs::read_to_string);
    let listeners: Vec<u32> = tables.iter().flatten().flat_map(|table| listeners(table, port)).collect();
    !listeners.is_empty() && listeners.iter().all(|user| [0, me].contains(user))
}

/// The users that listen on this port, by one of the kernel's tables.
fn listeners(table: &str, port: u16) -> Vec<u32> {
    const LISTENING: &str = "0A";
    let user = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (local, state, user) = (fields.get(1)?, fields.get(3)?, fields.get(7)?);
        let (_, local_port) = local.split_once(':')?;
        let matches = u16::from_str_radix(local_port, 16) == Ok(port) && *state == LISTENING;
        // What cannot be read is nobody we know.
        matches.then(|| user.parse().unwrap_or(u32::MAX))
    };
    table.lines().filter_map(user).collect()
}

/// The token in this user's data directory. Whatever keeps it from being found is no reason not to ask without.
fn own_token() -> Option<String> {
    let resolved = SettingsArgs::of_environment().load().ok()?;
    let found = token::kept(&token::path(&resolved.settings.data_dir)).ok()?;
    found.map(|found| found.text)
}

/// The innermost cause: the outer ones say that something failed.
fn words(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => words(source),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_are_told_by_user() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            0: 0100007F:1CFC 00000000:0000 0A 00000000:00000000 00:00000000 00000000 65534        0 1 1\n\
            1: 0100007F:1CFC 0100007F:A000 01 00000000:00000000 00:00000000 00000000  1000        0 2 1\n\
            2: 0100007F:1CFD 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 3 1\n";
        assert_eq!((listeners(table, 7420), listeners(table, 7421)), (vec![65_534], vec![1000]));
        assert_eq!(listeners(table, 1), [0; 0]);
        let socket = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        assert!(listens_for_us(socket.local_addr().expect("bound").port()));
    }

    #[test]
    fn only_this_machine_is_sent_the_users_own_token() {
        let is = |text: &str| is_loopback(&text.parse().expect("a URL"));
        for here in ["http://127.0.0.1:7420", "http://127.8.9.1/x", "http://[::1]:1", "http://LOCALHOST:80"] {
            assert!(is(here), "{here}");
        }
        for elsewhere in [
            "http://10.0.0.1",
            "http://localhost.example",
            "http://127.0.0.1.example",
            "http://0.0.0.0:7420",
            "http://user:127.0.0.1@example",
        ] {
            assert!(!is(elsewhere), "{elsewhere}");
        }
    }
}
