//! Settings files: reading them, bounded, and telling their entries apart. What the entries mean is the loader's.

use super::error::shown;
use super::field::Raw;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::fmt;
use std::io::Read;
use std::path::Path;

/// The largest file read. A settings file is a few kilobytes; anything larger is not one.
const FILE_BYTES_MAX: usize = 1 << 20;

/// One entry's value. Tables keep order and duplicates: JSON parsers drop the latter without a word.
#[derive(Debug)]
pub(super) enum Node {
    Leaf(Raw),
    Table(Vec<(String, Node)>),
}

impl Node {
    /// The value as a setting may have it; no setting is a table.
    pub(super) fn into_raw(self) -> Raw {
        match self {
            Node::Leaf(raw) => raw,
            Node::Table(_) => Raw::Other("a table"),
        }
    }
}

/// The text of a file, or what is wrong with it.
pub(super) fn read(path: &Path) -> Result<String, String> {
    let unreadable = |error: std::io::Error| format!("cannot be read: {error}");
    let mut bytes = Vec::new();
    // Bounded by reading, not by asking for the size: a pipe or a device has none.
    let file = std::fs::File::open(path).map_err(unreadable)?;
    file.take(FILE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    check_size(bytes.len())?;
    String::from_utf8(bytes)
        .map_err(|error| format!("is not UTF-8 text (at byte {})", error.utf8_error().valid_up_to()))
}

fn check_size(bytes: usize) -> Result<(), String> {
    if bytes > FILE_BYTES_MAX {
        return Err(format!("is larger than {FILE_BYTES_MAX} bytes"));
    }
    Ok(())
}

/// The entries of a file's text. The path says the format; without a telling name the first character does, since no
/// TOML document begins with `{`.
pub(super) fn parse(path: &Path, text: &str) -> Result<Vec<(String, Node)>, String> {
    check_size(text.len())?;
    // Editors on Windows put it there, and neither format allows it.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let extension = path.extension().map(|extension| extension.to_ascii_lowercase());
    let json = match extension.as_ref().and_then(|extension| extension.to_str()) {
        Some("json") => true,
        Some("toml") => false,
        Some(_) | None => text.trim_start().starts_with('{'),
    };
    let node = if json { from_json(text)? } else { from_toml(text)? };
    match node {
        Node::Table(entries) => Ok(entries),
        Node::Leaf(_) => Err("must be one JSON object".to_owned()),
    }
}

fn from_json(text: &str) -> Result<Node, String> {
    serde_json::from_str(text).map_err(|error| format!("is not valid JSON: {error}"))
}

/// Uses the parser's message alone: its full text quotes the line, which may hold a secret.
fn from_toml(text: &str) -> Result<Node, String> {
    toml::from_str(text).map_err(|error| {
        let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        format!("is not valid TOML: line {line}: {}", shown(error.message()).trim_matches('"'))
    })
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Node, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a setting")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Leaf(Raw::Bool(value)))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
        Ok(Node::Leaf(Raw::Int(value)))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
        Ok(Node::Leaf(i64::try_from(value).map_or_else(|_| Raw::Huge(value.to_string()), Raw::Int)))
    }

    fn visit_i128<E>(self, value: i128) -> Result<Node, E> {
        Ok(Node::Leaf(Raw::Huge(value.to_string())))
    }

    fn visit_u128<E>(self, value: u128) -> Result<Node, E> {
        Ok(Node::Leaf(Raw::Huge(value.to_string())))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Node, E> {
        Ok(Node::Leaf(Raw::Float(value)))
    }

    fn visit_str<E>(self, value: &str) -> Result<Node, E> {
        Ok(Node::Leaf(Raw::Quoted(value.to_owned())))
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Leaf(Raw::Other("null")))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Node, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Node::Leaf(Raw::Other("a list")))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry::<String, Node>()? {
            entries.push(entry);
        }
        Ok(Node::Table(entries))
    }
}
