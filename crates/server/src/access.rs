//! Who may ask for what. Pure, so that a test can check every route against it.

use crate::dashboard::ASSETS;
use crate::options::Token;
use axum::http::Method;

/// No data (the page), or one bit for load balancers and orchestrators, which rarely have a token.
const FOR_ANYBODY: [&str; 4] = ["/", "/livez", "/readyz", "/leaderz"];

/// Answered from memory: it changes nothing, although it takes a body.
const FENCE: &str = "/v1/fence";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Need {
    Nothing,
    Read,
    Change,
}

impl Need {
    /// Anything not known to be read-only counts as a change.
    pub(crate) fn of(method: &Method, path: &str) -> Need {
        if FOR_ANYBODY.contains(&path) || path.starts_with(ASSETS) {
            return Need::Nothing;
        }
        match *method {
            Method::GET | Method::HEAD => Need::Read,
            Method::POST if path == FENCE => Need::Read,
            _ => Need::Change,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    /// There is no token, or this server does not know it.
    UnknownToken,
    /// The token may only read.
    ReadOnlyToken,
    /// The server has no token for changes, so it makes none.
    NoChanges,
}

/// The server's tokens, and whether it answers reads without one.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    pub(crate) change: Option<Token>,
    pub(crate) read: Option<Token>,
    pub(crate) loopback: bool,
}

impl Access {
    /// On loopback everybody may read, unless there is a read token.
    pub(crate) fn reads_are_open(&self) -> bool {
        self.loopback && self.read.is_none()
    }

    pub(crate) fn check(&self, need: Need, given: &[u8]) -> Result<(), Refusal> {
        let is = |token: &Option<Token>| token.as_ref().is_some_and(|token| token.is(given));
        let (changes, reads) = (is(&self.change), is(&self.read));
        match need {
            Need::Nothing => Ok(()),
            Need::Read if self.reads_are_open() || reads || changes => Ok(()),
            Need::Change if changes => Ok(()),
            Need::Change if self.change.is_none() => Err(Refusal::NoChanges),
            Need::Change if reads => Err(Refusal::ReadOnlyToken),
            Need::Read | Need::Change => Err(Refusal::UnknownToken),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_that_is_no_question_needs_the_token_for_changes() {
        let mut changes = 0;
        for name in crate::openapi::route_names() {
            let (method, path) = name.split_once(' ').expect("a method and a path");
            let need = Need::of(&method.parse().expect("a method"), path);
            let wanted = match (method, path) {
                (_, "/" | "/assets/{name}" | "/livez" | "/readyz" | "/leaderz") => Need::Nothing,
                ("GET", _) | ("POST", "/v1/fence") => Need::Read,
                _ => Need::Change,
            };
            assert_eq!(need, wanted, "{name}");
            changes += usize::from(need == Need::Change);
        }
        assert_eq!(changes, 21, "every route that changes something");
        for strange in ["PATCH", "OPTIONS", "CONNECT", "TRACE", "get", "BREW"] {
            assert_eq!(
                Need::of(&strange.parse().expect("a method"), "/v1/leader"),
                Need::Change,
                "{strange}"
            );
        }
    }

    #[test]
    fn who_may_do_what() {
        let token = |text| Some(Token::new(text).expect("valid"));
        let (change, read) = ("change-0123456789", "reader-0123456789");
        let (ok, unknown) = (Ok(()), Err(Refusal::UnknownToken));
        // Columns: loopback, change token, read token; then who may read (no token, read token, change token); then who may
        // change.
        let table = [
            (true, false, false, [ok, ok, ok], [Err(Refusal::NoChanges); 3]),
            (true, true, false, [ok, ok, ok], [unknown, unknown, ok]),
            (true, true, true, [unknown, ok, ok], [unknown, Err(Refusal::ReadOnlyToken), ok]),
            (false, true, false, [unknown, unknown, ok], [unknown, unknown, ok]),
            (false, true, true, [unknown, ok, ok], [unknown, Err(Refusal::ReadOnlyToken), ok]),
        ];
        for (loopback, has_change, has_read, reads, changes) in table {
            let access = Access {
                change: token(change).filter(|_| has_change),
                read: token(read).filter(|_| has_read),
                loopback,
            };
            for (number, given) in ["", read, change].into_iter().enumerate() {
                let place = format!("{loopback} {has_change} {has_read} {given:?}");
                assert_eq!(access.check(Need::Read, given.as_bytes()), reads[number], "read {place}");
                assert_eq!(access.check(Need::Change, given.as_bytes()), changes[number], "change {place}");
                assert_eq!(access.check(Need::Nothing, given.as_bytes()), ok);
            }
        }
    }
}
