//! HTTP for `tenure run`: where, and with which tokens.

use crate::args::HttpArgs;
use crate::exit::Failure;
use crate::log::LogForm;
use crate::out::complain;
use crate::secret::Found;
use crate::token;
use std::io::IsTerminal;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use tenure::settings::Resolved;
use tenure::{Event, Node};
use tenure_server::{Bound, Options, Parts, Server, Token};
use tokio::sync::broadcast;
use url::form_urlencoded::byte_serialize;

/// An address that was taken, or what to say about one that was not to be had.
pub(crate) enum Web {
    Bound(Box<Bound>, Invitation),
    /// A warning and no failure: the election matters more than a window on it.
    Taken(String),
}

/// What to say about the token that changes need.
pub(crate) enum Invitation {
    /// On a terminal: the token itself, as part of the dashboard's address.
    Link(String),
    /// Where others read along, or later: how to get it.
    Hint,
    /// There is no token.
    ReadOnly(String),
}

impl Web {
    /// Checks what was asked for, makes the token if there is none, and takes the address. `None`: no HTTP is wanted.
    pub(crate) fn prepare(
        args: &HttpArgs,
        resolved: &Resolved,
        log: LogForm,
    ) -> Result<Option<Web>, Failure> {
        if args.no_http {
            return Ok(None);
        }
        let given = token::CHANGE.given(args.http_token_file.as_deref())?;
        let change = given.as_ref().map(checked).transpose()?;
        let read =
            token::READ.given(args.http_read_token_file.as_deref())?.as_ref().map(checked).transpose()?;
        let hosts = |options: Options| {
            let add = |options: Options, host: &String| options.host(host);
            // This machine's own name cannot be made to point elsewhere by a page of another site.
            let own = rustix::system::uname().nodename().to_string_lossy().into_owned();
            let options = options.clone().host(&own).unwrap_or(options);
            let named = args.http_hosts.iter().try_fold(options, add);
            named.map_err(|error| Failure::usage(format!("--http-host: {error}")))
        };
        // Everything is checked before the first byte is written.
        hosts(Options::new((Ipv4Addr::LOCALHOST, 0).into(), None).map_err(Failure::usage)?)?;
        let (change, invitation) = match (change, given) {
            (Some(change), Some(found)) => (Some(change), invite(found, log)),
            _ => match token::kept_or_made(resolved)? {
                Ok(found) => (Some(checked(&found)?), invite(found, log)),
                Err(why) => (None, Invitation::ReadOnly(why)),
            },
        };
        let mut options = hosts(Options::new(args.listen, change).map_err(Failure::usage)?)?;
        if let Some(read) = read {
            options = options.read_token(read);
        }
        Ok(Some(match Server::bind(options) {
            Ok(bound) => Web::Bound(Box::new(bound), invitation),
            Err(error) => Web::Taken(format!(
                "http: cannot listen on {} ({error}); the node runs without HTTP. Use --listen to choose another address",
                args.listen
            )),
        }))
    }

    /// Serves the node. What goes wrong is told, and does not end the node.
    pub(crate) fn serve(
        self,
        node: &Node,
        events: broadcast::Receiver<Event>,
        resolved: &Resolved,
    ) -> Option<Server> {
        let (served, invitation) = match self {
            Web::Bound(bound, invitation) => {
                ((*bound).serve(Parts::of(node).events(events).config(resolved)), invitation)
            }
            Web::Taken(words) => {
                tracing::warn!("{words}");
                return None;
            }
        };
        match served {
            Ok(server) => {
                tracing::info!("http: listening on http://{}", server.address());
                invitation.say(server.address());
                Some(server)
            }
            Err(error) => {
                tracing::warn!("http: cannot serve: {error}");
                None
            }
        }
    }
}

fn checked(found: &Found) -> Result<Token, Failure> {
    Token::new(&found.text).map_err(|error| Failure::usage(format!("{}: {error}", found.from)))
}

/// A secret is shown to whoever sits at the terminal. A log is kept, and read by others.
fn invite(found: Found, log: LogForm) -> Invitation {
    match log == LogForm::Human && std::io::stderr().is_terminal() {
        true => Invitation::Link(found.text),
        false => Invitation::Hint,
    }
}

impl Invitation {
    fn say(&self, address: SocketAddr) {
        match self {
            // Not by way of the log, which may go elsewhere too.
            Invitation::Link(token) => {
                complain!("open the dashboard, with the token for changes: {}", link(address, token))
            }
            Invitation::Hint => tracing::info!("http: changes need a token; `tenure token` shows it"),
            Invitation::ReadOnly(why) => tracing::warn!(
                "http: read-only, because there is no token: {why}. Set one with TENURE_HTTP_TOKEN or \
                 --http-token-file"
            ),
        }
    }
}

/// The page's address. What comes after `#` stays in the browser.
fn link(address: SocketAddr, token: &str) -> String {
    let host = match address.ip() {
        IpAddr::V4(four) if four.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(six) if six.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        address @ (IpAddr::V4(_) | IpAddr::V6(_)) => address,
    };
    let token: String = byte_serialize(token.as_bytes()).collect();
    format!("http://{}/#token={token}", SocketAddr::new(host, address.port()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_link_leads_to_this_machine_and_keeps_the_token_behind_the_hash() {
        let to = |address: &str, token: &str| link(address.parse().expect("an address"), token);
        assert_eq!(to("127.0.0.1:7420", "abc"), "http://127.0.0.1:7420/#token=abc");
        assert_eq!(to("0.0.0.0:7420", "a+b/c="), "http://127.0.0.1:7420/#token=a%2Bb%2Fc%3D");
        assert_eq!(to("[::]:7420", "a&b#c"), "http://[::1]:7420/#token=a%26b%23c");
    }
}
