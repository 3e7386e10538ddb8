//! How the server is to serve: where, for whom, and how much of it.

use crate::access::Access;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use subtle::ConstantTimeEq;

/// Where `tenure run` serves if it is not told otherwise. It serves by default, because nobody looks at a node that cannot be
/// asked; and on loopback, because others on the network need a token.
pub const DEFAULT_LISTEN: &str = "127.0.0.1:7420";

/// Shorter tokens can be guessed.
const TOKEN_MIN_CHARS: usize = 16;

/// Longer ones do not fit into a header beside everything else.
const TOKEN_MAX_CHARS: usize = 1024;

/// A bearer token. Never shown; compared in constant time.
#[derive(Clone)]
pub struct Token(Box<[u8]>);

impl Token {
    /// Takes 16 to 1,024 visible ASCII characters; white space around them is left out. The error never repeats the text.
    pub fn new(text: &str) -> Result<Token, OptionsError> {
        let text = text.trim();
        let visible = text.bytes().all(|byte| byte.is_ascii_graphic());
        if !visible || !(TOKEN_MIN_CHARS..=TOKEN_MAX_CHARS).contains(&text.len()) {
            return Err(OptionsError::Token);
        }
        Ok(Token(text.as_bytes().into()))
    }

    /// Whether it is this one. Takes as long for a near miss as for a far one; only the length can be told.
    pub(crate) fn is(&self, other: &[u8]) -> bool {
        self.0.ct_eq(other).into()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(masked)")
    }
}

/// Why the server cannot be set up like that.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OptionsError {
    /// Others could reach it, and no token keeps them out.
    #[error(
        "listening on {0} needs a token, because it is not a loopback address and others could reach it: give \
         --http-token-file FILE or TENURE_HTTP_TOKEN, or listen on {DEFAULT_LISTEN}"
    )]
    Open(SocketAddr),
    /// The token breaks a rule.
    #[error(
        "a bearer token must have {TOKEN_MIN_CHARS} to {TOKEN_MAX_CHARS} visible ASCII characters and no spaces"
    )]
    Token,
    /// A name of the host breaks a rule.
    #[error("{0:?} is no host name: letters, digits, '-' and '.', without a port")]
    Host(String),
}

/// How the server is to serve.
#[derive(Clone, Debug)]
pub struct Options {
    pub(crate) listen: SocketAddr,
    pub(crate) access: Access,
    pub(crate) hosts: Vec<String>,
    pub(crate) limits: Limits,
}

impl Options {
    /// Listens there, and lets whoever has the token read and change things. On a loopback address everybody of the machine may
    /// read. Without a token nothing can be changed, and no other address is served.
    pub fn new(listen: SocketAddr, token: Option<Token>) -> Result<Options, OptionsError> {
        let loopback = is_loopback(listen.ip());
        if token.is_none() && !loopback {
            return Err(OptionsError::Open(listen));
        }
        let access = Access { change: token, read: None, loopback };
        Ok(Options { listen, access, hosts: Vec::new(), limits: Limits::default() })
    }

    /// With a token that may only read, for scrapers and dashboards. Where there is one, reading takes a token on loopback too.
    pub fn read_token(mut self, token: Token) -> Options {
        self.access.read = Some(token);
        self
    }

    /// Answers to this name too, beside `localhost` and addresses: a page of another site cannot then have its own name point
    /// here.
    pub fn host(mut self, name: &str) -> Result<Options, OptionsError> {
        let fine = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
        if name.is_empty() || name.len() > 253 || !name.chars().all(fine) {
            return Err(OptionsError::Host(name.chars().take(64).collect()));
        }
        self.hosts.push(name.to_ascii_lowercase());
        Ok(self)
    }

    /// With other limits.
    pub fn limits(mut self, limits: Limits) -> Options {
        self.limits = limits;
        self
    }

    /// Where it is to listen.
    pub fn listen(&self) -> SocketAddr {
        self.listen
    }

    /// Whether a `Host` header names this server: any address, `localhost`, or a name that was given.
    pub(crate) fn knows_host(&self, host: &str) -> bool {
        let name = match host.strip_prefix('[') {
            Some(rest) => match rest.split_once(']') {
                Some((address, port)) if port.is_empty() || is_port(port) => address,
                Some(_) | None => return false,
            },
            None => match host.split_once(':') {
                Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
                Some(_) => return false,
                None => host,
            },
        };
        // An address cannot be made to point elsewhere; names can.
        name.parse::<IpAddr>().is_ok()
            || name.eq_ignore_ascii_case("localhost")
            || self.hosts.iter().any(|known| known.eq_ignore_ascii_case(name))
    }
}

fn is_port(text: &str) -> bool {
    text.strip_prefix(':').is_some_and(|port| port.bytes().all(|b| b.is_ascii_digit()))
}

/// `127.0.0.0/8`, `::1`, and the former written as an IPv6 address.
fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

/// What a client may use up. Every one of them has a test.
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub struct Limits {
    /// Connections at once, and never more than the process may open; another one takes the place of an idle one.
    pub connections: usize,
    /// Event streams among them.
    pub streams: usize,
    /// Bytes of a body.
    pub body_bytes: usize,
    /// Time for the head of a request, also while a connection is idle.
    pub head: Duration,
    /// Time for the body of a request.
    pub body: Duration,
    /// Time for an answer that is not waited for on purpose.
    pub answer: Duration,
    /// Time in which a client must take something of an answer, once it takes nothing.
    pub write: Duration,
    /// A comment on an event stream this often, so that both sides notice that the other is gone.
    pub keep_alive: Duration,
    /// Requests to the store a second that clients may cause beside the cached documents …
    pub store_per_second: f64,
    /// … and at once, after a pause.
    pub store_burst: f64,
    /// Documents from the store are at least this old before they are read again …
    pub fresh: Duration,
    /// … and this long for every request that reading them took.
    pub fresh_per_request: Duration,
    /// Workers that may be registered through this node, if their heartbeats leave something of `store_per_second` …
    pub workers: usize,
    /// … and from one address.
    pub workers_per_client: usize,
    /// The longest timeout of such a worker: as long may one that is gone cost writes.
    pub worker_timeout: Duration,
    /// Step-downs over HTTP are at least this far apart.
    pub step_down_pause: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: 1024,
            streams: 768,
            body_bytes: 64 * 1024,
            head: Duration::from_secs(10),
            body: Duration::from_secs(10),
            answer: Duration::from_secs(15),
            write: Duration::from_secs(20),
            keep_alive: Duration::from_secs(15),
            store_per_second: 25.0,
            store_burst: 100.0,
            fresh: Duration::from_secs(5),
            fresh_per_request: Duration::from_millis(250),
            workers: 256,
            workers_per_client: 64,
            worker_timeout: Duration::from_secs(600),
            step_down_pause: Duration::from_secs(10),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn only_loopback_is_served_without_a_token() {
        for open in ["0.0.0.0:7420", "192.168.1.7:80", "[::]:7420", "[fe80::1]:1", "[::ffff:10.0.0.1]:1"] {
            let error = Options::new(at(open), None).expect_err(open).to_string();
            assert!(error.contains("--http-token-file") && error.contains(open), "{error}");
            assert!(Options::new(at(open), Token::new("0123456789abcdef").ok()).is_ok());
        }
        for fine in ["127.0.0.1:0", "127.9.9.9:1", "[::1]:7420", "[::ffff:127.0.0.1]:1"] {
            assert!(Options::new(at(fine), None).is_ok(), "{fine}");
        }
    }

    #[test]
    fn a_token_is_long_enough_never_shown_and_compared_whole() {
        for bad in ["", "short", "has a space in it", "0123456789abcde\u{e9}", &"x".repeat(1025)] {
            assert_eq!(Token::new(bad).expect_err(bad), OptionsError::Token);
        }
        let token = Token::new(" MARKED-0123456789\n").expect("valid");
        assert!(!format!("{token:?}").contains("MARKED"));
        assert!(token.is(b"MARKED-0123456789"));
        for near in ["MARKED-0123456788", "MARKED-012345678", "MARKED-01234567890", "marked-0123456789", ""] {
            assert!(!token.is(near.as_bytes()), "{near}");
        }
    }

    #[test]
    fn hosts_are_addresses_localhost_and_what_was_given() {
        let options =
            Options::new(at("127.0.0.1:7420"), None).expect("valid").host("Node.example").expect("valid");
        for fine in [
            "127.0.0.1",
            "127.0.0.1:7420",
            "localhost:1",
            "LOCALHOST",
            "[::1]:7420",
            "node.example:80",
            "10.0.0.1",
        ] {
            assert!(options.knows_host(fine), "{fine}");
        }
        for bad in [
            "",
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "[::1",
            "[::1]x",
            "a:b",
            "node.example:x",
            "localhost:80:80",
        ] {
            assert!(!options.knows_host(bad), "{bad}");
        }
        assert!(Options::new(at("127.0.0.1:1"), None).expect("valid").host("a b").is_err());
    }
}
