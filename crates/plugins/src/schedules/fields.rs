//! Reads the fields of one map and collects what is wrong.

use super::problem::{Problem, shortened};
use super::tree::{Data, Entry, Tree};
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;
use tenure::id::IdError;

/// The longest text of a field that is not a name.
const TEXT_MAX_BYTES: usize = 2048;

/// The fields of one map.
pub(super) struct Fields<'t> {
    entries: &'t [Entry],
    taken: BTreeSet<String>,
    path: String,
    line: Option<usize>,
}

impl<'t> Fields<'t> {
    /// Takes a field; a key without a value counts as absent.
    pub(super) fn take(&mut self, key: &str) -> Option<&'t Tree> {
        self.taken.insert(key.to_owned());
        let entry = self.entries.iter().find(|entry| entry.key == key)?;
        (!entry.value.is_null()).then_some(&entry.value)
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.entries.iter().any(|entry| entry.key == key && !entry.value.is_null())
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// From here on, errors call it by its name instead of its position.
    pub(super) fn rename(&mut self, name: &str) {
        self.path = name.to_owned();
    }

    fn line_of(&self, key: &str) -> Option<usize> {
        let named = self.entries.iter().find(|entry| entry.key == key).and_then(|entry| entry.line);
        named.or(self.line)
    }

    fn name(&self, key: &str) -> String {
        if key.is_empty() { self.path.clone() } else { format!("{}.{key}", self.path) }
    }
}

pub(super) struct Reader {
    /// An object of the store: times are in ms, and unknown fields are kept.
    pub(super) wire: bool,
    pub(super) problems: Vec<Problem>,
}

impl Reader {
    pub(super) fn new(wire: bool) -> Reader {
        Reader { wire, problems: Vec::new() }
    }

    pub(super) fn fault(
        &mut self,
        fields: &Fields<'_>,
        key: &str,
        value: impl Display,
        rule: impl Into<String>,
    ) {
        self.problems.push(Problem::new(fields.line_of(key), fields.name(key), value, rule));
    }

    pub(super) fn fault_at(&mut self, tree: &Tree, fields: &Fields<'_>, key: &str, rule: impl Into<String>) {
        self.problems.push(Problem::new(tree.line, fields.name(key), tree.describe(), rule));
    }

    pub(super) fn fields<'t>(&mut self, tree: &'t Tree, path: &str, what: &str) -> Option<Fields<'t>> {
        let Data::Map(entries) = &tree.data else {
            let rule = format!("must be a {what}: a map of fields");
            self.problems.push(Problem::new(tree.line, path, tree.describe(), rule));
            return None;
        };
        Some(Fields { entries, taken: BTreeSet::new(), path: path.to_owned(), line: tree.line })
    }

    /// Whether this version is supported.
    pub(super) fn version(&mut self, fields: &mut Fields<'_>, known: u64) -> bool {
        let given = fields.take("v");
        if given.and_then(Tree::as_number).is_some_and(|number| (1..=known).contains(&number)) {
            return true;
        }
        let value = given.map(Tree::describe).unwrap_or_default();
        let rule = format!("must be 1 to {known}: a newer version wrote it, or something else did");
        self.fault(fields, "v", value, rule);
        false
    }

    pub(super) fn text(&mut self, fields: &mut Fields<'_>, key: &str, must: bool) -> Option<String> {
        let Some(tree) = fields.take(key) else {
            if must {
                self.fault(fields, key, "", "must be given");
            }
            return None;
        };
        let rule = match tree.as_text() {
            None => "must be text; quote it if it looks like something else".to_owned(),
            Some("") => "must not be empty".to_owned(),
            Some(text) if text.len() > TEXT_MAX_BYTES => format!("must be at most {TEXT_MAX_BYTES} bytes"),
            Some(text) => return Some(text.to_owned()),
        };
        self.fault_at(tree, fields, key, rule);
        None
    }

    pub(super) fn texts(&mut self, fields: &mut Fields<'_>, key: &str) -> Vec<String> {
        let mut texts = Vec::new();
        for (place, tree) in self.list(fields, key).iter().enumerate() {
            match tree.as_text().filter(|text| text.len() <= TEXT_MAX_BYTES) {
                Some(text) => texts.push(text.to_owned()),
                None => {
                    let rule = format!("must be text of at most {TEXT_MAX_BYTES} bytes; quote a number");
                    self.fault_at(tree, fields, &format!("{key}[{place}]"), rule);
                }
            }
        }
        texts
    }

    pub(super) fn id<T: FromStr<Err = IdError>>(
        &mut self,
        fields: &mut Fields<'_>,
        key: &str,
        must: bool,
    ) -> Option<T> {
        let text = self.text(fields, key, must)?;
        match text.parse::<T>() {
            Ok(id) => Some(id),
            Err(error) => {
                self.fault(fields, key, format!("{:?}", shortened(&error.value)), error.rule);
                None
            }
        }
    }

    pub(super) fn host(&mut self, fields: &mut Fields<'_>) -> Option<String> {
        let host = self.text(fields, "host", true)?;
        if host.len() > 253 || host.contains(|c: char| c.is_whitespace() || c.is_control() || c == '/') {
            let rule = "must be a host name or an address, without port and path";
            self.fault(fields, "host", format!("{host:?}"), rule);
            return None;
        }
        Some(host)
    }

    pub(super) fn flag(&mut self, fields: &mut Fields<'_>, key: &str, default: bool) -> bool {
        let Some(tree) = fields.take(key) else { return default };
        tree.as_flag().unwrap_or_else(|| {
            self.fault_at(tree, fields, key, "must be true or false");
            default
        })
    }

    pub(super) fn number(
        &mut self,
        fields: &mut Fields<'_>,
        key: &str,
        range: RangeInclusive<u64>,
        default: u64,
    ) -> u64 {
        let Some(tree) = fields.take(key) else { return default };
        tree.as_number().filter(|number| range.contains(number)).unwrap_or_else(|| {
            let rule = format!("must be a whole number from {} to {}", range.start(), range.end());
            self.fault_at(tree, fields, key, rule);
            default
        })
    }

    /// A time in ms: written with a unit in a file, and as a number on the store.
    pub(super) fn duration(
        &mut self,
        fields: &mut Fields<'_>,
        key: &str,
        range: RangeInclusive<u64>,
        default: u64,
    ) -> u64 {
        if self.wire {
            return self.number(fields, key, range, default);
        }
        let Some(tree) = fields.take(key) else { return default };
        let rule = match tree.as_text().and_then(tenure::settings::parse_time_ms) {
            Some(ms) if range.contains(&ms) => return ms,
            Some(_) => format!("must be {} to {}", in_words(*range.start()), in_words(*range.end())),
            None => "must be a time with its unit: 500ms, 30s, 5m, 2h, 1d, 1h30m".to_owned(),
        };
        self.fault_at(tree, fields, key, rule);
        default
    }

    pub(super) fn list<'t>(&mut self, fields: &mut Fields<'t>, key: &str) -> &'t [Tree] {
        let Some(tree) = fields.take(key) else { return &[] };
        if let Data::List(list) = &tree.data {
            return list;
        }
        self.fault_at(tree, fields, key, "must be a list");
        &[]
    }

    /// A map that is passed on uninterpreted.
    pub(super) fn map(&mut self, fields: &mut Fields<'_>, key: &str) -> Map<String, Value> {
        let Some(tree) = fields.take(key) else { return Map::new() };
        if let Value::Object(map) = tree.to_json() {
            return map;
        }
        self.fault_at(tree, fields, key, "must be a map");
        Map::new()
    }

    /// Fields nobody asked for: kept in an object of the store, refused in a file.
    pub(super) fn rest(&mut self, fields: &Fields<'_>, what: &str) -> Map<String, Value> {
        let mut rest = Map::new();
        for entry in fields.entries.iter().filter(|entry| !fields.taken.contains(&entry.key)) {
            if self.wire {
                rest.insert(entry.key.clone(), entry.value.to_json());
            } else {
                let rule = format!("is not a field of a {what} like this");
                self.fault(fields, &entry.key, entry.value.describe(), rule);
            }
        }
        rest
    }
}

fn in_words(ms: u64) -> String {
    match ms {
        0 => "0s".to_owned(),
        _ if ms.is_multiple_of(86_400_000) => format!("{}d", ms / 86_400_000),
        _ if ms.is_multiple_of(3_600_000) => format!("{}h", ms / 3_600_000),
        _ if ms.is_multiple_of(1000) => format!("{}s", ms / 1000),
        _ => format!("{ms}ms"),
    }
}
