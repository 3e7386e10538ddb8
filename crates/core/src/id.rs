//! Identities: who a node is, which life of it this is, and which write is whose.

use std::fmt;
use std::sync::Arc;

/// The longest id, in bytes. Ids become object keys and log fields.
const ID_MAX_BYTES: usize = 128;

/// The name of a node (`pod-a`), unique in its namespace. Validated, because it becomes part of an object key.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(Arc<str>);

/// Why a text is not an id.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IdError {
    /// The offending text, cut to a length that can be printed.
    pub value: String,
    /// The rule it breaks.
    pub rule: &'static str,
}

impl fmt::Display for IdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not an id: it {}", self.value, self.rule)
    }
}

impl std::error::Error for IdError {}

impl NodeId {
    /// Accepts letters, digits, `-`, `_` and `.`; starts with a letter or digit; 1 to 128 bytes; no `..`.
    ///
    /// ```
    /// use tenure_core::NodeId;
    /// assert!(NodeId::new("pod-a").is_ok());
    /// assert!(NodeId::new("../pod-a").is_err());
    /// assert!(NodeId::new("a/b").unwrap_err().to_string().contains("a/b"));
    /// ```
    pub fn new(text: &str) -> Result<NodeId, IdError> {
        check_id(text).map_err(|rule| IdError { value: text.chars().take(64).collect(), rule })?;
        Ok(NodeId(Arc::from(text)))
    }

    /// The text of the id.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn check_id(text: &str) -> Result<(), &'static str> {
    if text.is_empty() {
        return Err("must not be empty");
    }
    if text.len() > ID_MAX_BYTES {
        return Err("must be at most 128 bytes long");
    }
    if !text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.')) {
        return Err("may contain only letters, digits, '-', '_' and '.'");
    }
    if !text.as_bytes()[0].is_ascii_alphanumeric() {
        return Err("must start with a letter or a digit");
    }
    if text.contains("..") {
        return Err("must not contain '..'");
    }
    Ok(())
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One life of a node: a random number drawn at every start of the process.
///
/// A node that crashed and came back has the same id and another incarnation, so it never takes its former self's
/// seat for its own.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Incarnation(pub u64);

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

/// A mark that no two writes share: which incarnation wrote it, and which of its writes it was.
///
/// Stores derive versions from content, so a body that repeats would bring an old version back to life; and a lost
/// answer can be told from a lost race only by finding one's own mark.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Nonce {
    /// The writer's incarnation.
    pub incarnation: Incarnation,
    /// Counts the writer's writes.
    pub sequence: u64,
}

impl fmt::Debug for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}-{}", self.incarnation, self.sequence)
    }
}

/// Who holds (or last held) the seat.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Holder {
    /// The node.
    pub node: NodeId,
    /// Which life of it.
    pub incarnation: Incarnation,
}

impl fmt::Debug for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{:?}", self.node, self.incarnation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_meant_can_be_read() {
        let holder = Holder { node: NodeId::new("pod-a").expect("valid"), incarnation: Incarnation(0xab) };
        assert_eq!(format!("{holder:?}"), "pod-a/ab");
        assert_eq!(holder.incarnation.to_string(), "00000000000000ab");
        let error = NodeId::new("a/b").expect_err("a slash");
        assert!(error.to_string().starts_with("\"a/b\" is not an id: it "), "{error}");
    }

    #[test]
    fn ids_that_could_leave_their_folder_are_refused() {
        let long = "x".repeat(1 << 20);
        for bad in ["", ".", "..", "a/b", "/a", "a..b", "-a", "a b", "ä", "a\n", "a\0", long.as_str()] {
            let error = NodeId::new(bad).expect_err(bad);
            assert!(error.value.len() <= 64, "the message stays readable");
        }
        for good in ["a", "pod-a", "10.0.0.1", "Node_7", &"x".repeat(128)] {
            assert!(NodeId::new(good).is_ok(), "{good}");
        }
    }
}
