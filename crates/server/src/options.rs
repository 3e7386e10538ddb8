//! How the server serves: where, for whom, and how much.

use crate::access::Access;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use subtle::ConstantTimeEq;

/// Where `tenure run` serves by default. It serves by default because a node that cannot be queried is a node nobody looks at,
/// and on loopback because other addresses need a token.
pub const DEFAULT_LISTEN: &str = "127.0.0.1:7420";

/// Shorter tokens can be guessed.
const TOKEN_MIN_CHARS: usize = 16;

/// Longer tokens do not fit into a header with everything else.
const TOKEN_MAX_CHARS: usize = 1024;

/// A bearer token. Never shown; compared in constant time.
#[derive(Clone)]
pub struct Token(Box<[u8]>);

impl Token {
    /// Accepts 16 to 1,024 visible ASCII characters; white space around them is removed. The error never repeats the text.
    pub fn new(text: &str) -> Result<Token, OptionsError> {
        let text = text.trim();
        let visible = text.bytes().all(|byte| byte.is_ascii_graphic());
        if !visible || !(TOKEN_MIN_CHARS..=TOKEN_MAX_CHARS).contains(&text.len()) {
            return Err(OptionsError::Token);
        }
        Ok(Token(text.as_bytes().into()))
    }

    /// Whether the tokens are equal. Takes constant time; only the length can leak.
    pub(crate) fn is(&self, other: &[u8]) -> bool {
        self.0.ct_eq(other).into()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(masked)")
    }
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OptionsError {
    /// Other machines could reach the server, and no token keeps them out.
    #[error(
        "listening on {0} needs a token, because it is not a loopback address and others could reach it: use \
         --http-token-file FILE or TENURE_HTTP_TOKEN, or listen on {DEFAULT_LISTEN}"
    )]
    Open(SocketAddr),
    /// The token is too short, too long, or has other characters.
    #[error(
        "a bearer token must have {TOKEN_MIN_CHARS} to {TOKEN_MAX_CHARS} visible ASCII characters and no spaces"
    )]
    Token,
    #[error("{0:?} is not a host name: use letters, digits, '-' and '.', without a port")]
    Host(String),
}

#[derive(Clone, Debug)]
pub struct Options {
    pub(crate) listen: SocketAddr,
    pub(crate) access: Access,
    pub(crate) hosts: Vec<String>,
    pub(crate) limits: Limits,
}

impl Options {
    /// Listens on this address, and lets anybody with the token read and make changes. On a loopback address, everybody on the
    /// machine may read. Without a token, nothing can be changed, and only loopback is served.
    pub fn new(listen: SocketAddr, token: Option<Token>) -> Result<Options, OptionsError> {
        let loopback = is_loopback(listen.ip());
        if token.is_none() && !loopback {
            return Err(OptionsError::Open(listen));
        }
        let access = Access { change: token, read: None, loopback };
        Ok(Options { listen, access, hosts: Vec::new(), limits: Limits::default() })
    }

    /// Adds a token that may only read, for scrapers and dashboards. With one set, reading needs a token on loopback too.
    pub fn read_token(mut self, token: Token) -> Options {
        self.access.read = Some(token);
        self
    }

    /// Answers to this name too, besides `localhost` and addresses. Names must be listed, so that another site cannot point its
    /// own name here.
    pub fn host(mut self, name: &str) -> Result<Options, OptionsError> {
        let fine = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
        if name.is_empty() || name.len() > 253 || !name.chars().all(fine) {
            return Err(OptionsError::Host(name.chars().take(64).collect()));
        }
        self.hosts.push(name.to_ascii_lowercase());
        Ok(self)
    }

    pub fn limits(mut self, limits: Limits) -> Options {
        self.limits = limits;
        self
    }

    pub fn listen(&self) -> SocketAddr {
        self.listen
    }

    /// Whether a `Host` header names this server: any address, `localhost`, or a configured name.
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
        // An address cannot be made to point elsewhere; a name can.
        name.parse::<IpAddr>().is_ok()
            || name.eq_ignore_ascii_case("localhost")
            || self.hosts.iter().any(|known| known.eq_ignore_ascii_case(name))
    }
}

fn is_port(text: &str) -> bool {
    text.strip_prefix(':').is_some_and(|port| port.bytes().all(|b| b.is_ascii_digit()))
}

/// `127.0.0.0/8`, also written as IPv6, and `::1`.
fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

/// What clients may use. Each limit has a test.
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub struct Limits {
    /// Most connections, and never more than the process may open; a further one replaces an idle one.
    pub connections: usize,
    /// Most event streams among them.
    pub streams: usize,
    /// The largest body, in bytes.
    pub body_bytes: usize,
    /// The time limit for the head of a request; also the longest a connection may be idle.
    pub head: Duration,
    /// The time limit for the body of a request.
    pub body: Duration,
    /// The time limit for an answer that does not wait on purpose.
    pub answer: Duration,
    /// How long a client may take nothing of its answer.
    pub write: Duration,
    /// How often to send a comment on an event stream, so that each side notices when the other is gone.
    pub keep_alive: Duration,
    /// Store requests per second that clients may cause, besides the cached documents …
    pub store_per_second: f64,
    /// … and in one burst after a pause.
    pub store_burst: f64,
    /// How old a document from the store must be before it is read again …
    pub fresh: Duration,
    /// … and how much older for every request that reading it took.
    pub fresh_per_request: Duration,
    /// Most workers registered through this node, as long as their heartbeats fit into `store_per_second` …
    pub workers: usize,
    /// … and from one address.
    pub workers_per_client: usize,
    /// Most locks held or wanted through this node …
    pub locks: usize,
    /// … and from one address.
    pub locks_per_client: usize,
    /// The longest timeout of such a worker or lock: one whose client is gone may cause writes for that long.
    pub worker_timeout: Duration,
    /// The shortest time between two step-downs over HTTP.
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
            store_per_second: 75.0,
            store_burst: 100.0,
            fresh: Duration::from_secs(5),
            fresh_per_request: Duration::from_millis(250),
            workers: 256,
            workers_per_client: 64,
            locks: 32,
            locks_per_client: 16,
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
