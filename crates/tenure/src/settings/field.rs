//! What a setting is: its names, its kind of value, its default, and how a text becomes its value.

use super::Settings;
use super::error::shown;
use super::places::Places;
use super::time::parse_time_ms;
use std::fmt;
use std::num::IntErrorKind;
use tenure_core::NodeId;
use tenure_store::{StoreUrl, URL_FORMS};

/// The longest free text, in bytes.
const TEXT_BYTES_MAX: usize = 1024;

/// The highest price of a thousand requests; more is a mistaken unit.
const PRICE_MAX_MICROS: u64 = 1_000_000_000;

/// One row of [`FIELDS`](super::FIELDS), the only place where a setting is declared.
#[derive(Clone, Debug)]
pub struct Field {
    /// Its name in files and messages (`heartbeatInterval`).
    pub name: &'static str,
    /// Its environment variable (`TENURE_HEARTBEAT_INTERVAL`).
    pub env: &'static str,
    /// Older environment variables that still work; [`env`](Field::env) wins over them.
    pub also: &'static [&'static str],
    /// Its flag on the command line (`--heartbeat-interval`).
    pub flag: &'static str,
    /// Which values it takes.
    pub kind: Kind,
    /// What it is when nobody sets it.
    pub default: Fallback,
    /// Meaning, default, relation to other settings, and what is lost in either direction.
    pub doc: &'static str,
    /// Whether it belongs to the namespace's service, and so may stand in a `globalCoordinator` block; otherwise it
    /// is the node's own.
    pub shared: bool,
    /// Where its value lives.
    pub(super) slot: Slot,
}

/// Which values a setting takes.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// A whole number of milliseconds.
    Millis {
        /// The least allowed.
        min: u64,
        /// The greatest allowed.
        max: u64,
    },
    /// A ratio with at most three decimals; the limits are in thousandths.
    Factor {
        /// The least allowed.
        min_permille: u64,
        /// The greatest allowed.
        max_permille: u64,
        /// What the limits are for, in the words of a message; may be empty.
        why: &'static str,
    },
    /// An amount of money with at most six decimals, not negative and at most 1,000.
    Price,
    /// `true` or `false`; as text also `1`, `0`, `yes` and `no`.
    Bool,
    /// Any text that is not empty, has at most 1,024 bytes and no control characters.
    Text,
    /// A text that can become part of an object key, by the rule of [`NodeId::new`].
    Id,
    /// A store's URL, by the rule of [`StoreUrl`].
    Store,
    /// One of these words.
    Choice(&'static [&'static str]),
}

/// What a setting is when nobody sets it.
#[derive(Clone, Copy, Debug)]
pub enum Fallback {
    /// This text.
    Text(&'static str),
    /// It depends on other settings or on the machine.
    Computed {
        /// How it is found, in words.
        rule: &'static str,
        /// The settings it follows.
        needs: &'static [&'static str],
        /// The computation, as [`Settings`] stand so far.
        #[doc(hidden)]
        compute: Computation,
    },
}

/// A default that follows other settings or the machine. Opaque: only the loader runs it.
#[derive(Clone, Copy, Debug)]
pub struct Computation(pub(super) fn(&Settings, &Places) -> String);

/// Reads and writes one field of [`Settings`], so that the table needs no second list beside it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) get: fn(&Settings) -> Value,
    pub(super) set: fn(&mut Settings, Value),
}

/// A value of a kind, checked by itself; rules between settings come later.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Value {
    /// Milliseconds.
    Millis(u64),
    /// A ratio in thousandths.
    Permille(u64),
    /// An amount of money in millionths.
    Micros(u64),
    /// Yes or no.
    Bool(bool),
    /// A text, an id, a URL or a choice.
    Text(String),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Millis(ms) => write!(f, "{ms}"),
            Value::Permille(permille) => f.write_str(&decimal(*permille, 3)),
            Value::Micros(micros) => f.write_str(&decimal(*micros, 6)),
            Value::Bool(yes) => write!(f, "{yes}"),
            Value::Text(text) => f.write_str(text),
        }
    }
}

/// A number of units of `10^-places`, without zeros at the end.
fn decimal(units: u64, places: usize) -> String {
    let digits = format!("{units:0width$}", width = places + 1);
    let (whole, rest) = digits.split_at(digits.len() - places);
    format!("{whole}.{rest}").trim_end_matches('0').trim_end_matches('.').to_owned()
}

impl Value {
    /// The value as a file has it.
    pub(super) fn to_toml(&self) -> String {
        match self {
            Value::Millis(_) | Value::Permille(_) | Value::Micros(_) | Value::Bool(_) => self.to_string(),
            Value::Text(text) => toml::Value::from(text.as_str()).to_string(),
        }
    }

    /// The value as an object on the store has it.
    pub fn to_json(&self) -> serde_json::Value {
        match self {
            Value::Millis(ms) => (*ms).into(),
            Value::Permille(permille) if permille % 1000 == 0 => (permille / 1000).into(),
            // Bounded by the kind, so far below where a float would lose thousandths.
            Value::Permille(permille) => (*permille as f64 / 1000.0).into(),
            Value::Micros(micros) => (*micros as f64 / 1e6).into(),
            Value::Bool(yes) => (*yes).into(),
            Value::Text(text) => text.as_str().into(),
        }
    }
}

/// A value as a layer brought it. Files know types, the environment and flags only text.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Raw {
    Text(String),
    /// A string in a file: of no use where a number is wanted, unlike the text of a flag.
    Quoted(String),
    Int(i64),
    /// An integer beyond `i64`, by sign; every limit is far below it.
    Huge(String),
    Float(f64),
    Bool(bool),
    /// A list, table, date or null, named for the message.
    Other(&'static str),
}

impl Raw {
    /// As messages may repeat it.
    pub(super) fn shown(&self) -> String {
        match self {
            Raw::Text(text) | Raw::Huge(text) => shown(text),
            Raw::Quoted(text) if text.is_empty() => "\"\"".to_owned(),
            Raw::Quoted(text) => shown(text),
            Raw::Int(int) => int.to_string(),
            Raw::Float(float) => float.to_string(),
            Raw::Bool(yes) => yes.to_string(),
            Raw::Other(what) => (*what).to_owned(),
        }
    }

    fn type_name(&self) -> &'static str {
        match self {
            Raw::Text(_) | Raw::Quoted(_) => "a text",
            Raw::Int(_) | Raw::Huge(_) => "a whole number",
            Raw::Float(_) => "a fraction",
            Raw::Bool(_) => "true or false",
            Raw::Other(what) => what,
        }
    }
}

/// Why a value was refused: the rule, and the value where it must be shown otherwise than as it came.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) rule: String,
    pub(super) safe_value: Option<String>,
}

impl From<String> for Refusal {
    fn from(rule: String) -> Refusal {
        Refusal { rule, safe_value: None }
    }
}

impl Field {
    /// The setting of this name.
    pub fn named(name: &str) -> Option<&'static Field> {
        super::FIELDS.iter().find(|field| field.name == name)
    }

    /// The default in words, for reference tables.
    pub fn default_text(&self) -> &'static str {
        match self.default {
            Fallback::Text(text) => text,
            Fallback::Computed { rule, .. } => rule,
        }
    }

    /// Checks a value against the kind. Says what is wrong in terms of the setting's name.
    pub(super) fn parse(&self, raw: &Raw) -> Result<Value, Refusal> {
        match self.kind {
            Kind::Millis { min, max } => Ok(Value::Millis(self.millis(raw, min, max)?)),
            Kind::Factor { min_permille, max_permille, why } => {
                Ok(Value::Permille(self.factor(raw, min_permille, max_permille, why)?))
            }
            Kind::Price => Ok(Value::Micros(self.price(raw)?)),
            Kind::Bool => Ok(Value::Bool(self.boolean(raw)?)),
            Kind::Text => {
                let text = self.text(raw)?;
                if text.is_empty() || text.len() > TEXT_BYTES_MAX || text.chars().any(char::is_control) {
                    let rule = format!(
                        "`{}` must not be empty, longer than {TEXT_BYTES_MAX} bytes, or contain control \
                         characters",
                        self.name
                    );
                    return Err(rule.into());
                }
                Ok(Value::Text(text.to_owned()))
            }
            Kind::Id => {
                let text = self.text(raw)?;
                NodeId::new(text).map_err(|error| format!("`{}` {}", self.name, error.rule))?;
                Ok(Value::Text(text.to_owned()))
            }
            Kind::Store => self.store(self.text(raw)?),
            Kind::Choice(words) => {
                let text = self.text(raw)?;
                if !words.contains(&text) {
                    return Err(format!("`{}` must be one of {}", self.name, words.join(", ")).into());
                }
                Ok(Value::Text(text.to_owned()))
            }
        }
    }

    fn wrong_type(&self, raw: &Raw, wanted: &str) -> String {
        format!("`{}` must be {wanted}, not {}", self.name, raw.type_name())
    }

    fn millis(&self, raw: &Raw, min: u64, max: u64) -> Result<u64, String> {
        let wanted = "a time with its unit (500ms, 20s, 5m, 1h) or a whole number of milliseconds";
        let with_unit = match raw {
            Raw::Text(text) | Raw::Quoted(text) => parse_time_ms(text.trim()),
            Raw::Int(_) | Raw::Huge(_) | Raw::Float(_) | Raw::Bool(_) | Raw::Other(_) => None,
        };
        let int = match raw {
            _ if with_unit.is_some() => with_unit.and_then(|ms| i64::try_from(ms).ok()).unwrap_or(i64::MAX),
            Raw::Int(int) => *int,
            Raw::Text(text) | Raw::Huge(text) => match text.trim().parse::<i64>() {
                Ok(int) => int,
                // So far outside that the limits below say all there is to say.
                Err(error) if *error.kind() == IntErrorKind::PosOverflow => i64::MAX,
                Err(error) if *error.kind() == IntErrorKind::NegOverflow => i64::MIN,
                Err(_) => return Err(format!("`{}` must be {wanted}", self.name)),
            },
            Raw::Quoted(_) | Raw::Float(_) | Raw::Bool(_) | Raw::Other(_) => {
                return Err(self.wrong_type(raw, wanted));
            }
        };
        match u64::try_from(int) {
            Err(_) => Err(format!("`{}` cannot be negative", self.name)),
            Ok(ms) if ms < min => Err(format!("`{}` must be at least {min} ms", self.name)),
            Ok(ms) if ms > max => Err(format!("`{}` must be at most {max} ms", self.name)),
            Ok(ms) => Ok(ms),
        }
    }

    fn factor(&self, raw: &Raw, min: u64, max: u64, why: &str) -> Result<u64, String> {
        let float = self.number(raw)?;
        let (least, greatest) = (Value::Permille(min), Value::Permille(max));
        let thousandths = (float * 1000.0).round();
        // Also catches what is not a number at all.
        if !(thousandths >= min as f64 && thousandths <= max as f64) {
            return Err(format!("`{}` must be at least {least} and at most {greatest}{why}", self.name));
        }
        if (thousandths / 1000.0 - float).abs() > 1e-9 {
            return Err(format!("`{}` must have at most three decimals", self.name));
        }
        Ok(thousandths as u64)
    }

    fn price(&self, raw: &Raw) -> Result<u64, String> {
        let float = self.number(raw)?;
        let micros = (float * 1e6).round();
        if !(float >= 0.0 && micros <= PRICE_MAX_MICROS as f64) {
            return Err(format!("`{}` must be at least 0 and at most 1000", self.name));
        }
        if (micros / 1e6 - float).abs() > 1e-12 * float.max(1.0) {
            return Err(format!("`{}` must have at most six decimals", self.name));
        }
        Ok(micros as u64)
    }

    fn number(&self, raw: &Raw) -> Result<f64, String> {
        let wanted = "a number";
        match raw {
            // Far beyond every limit a rounded integer is as wrong as an exact one.
            Raw::Int(int) => Ok(*int as f64),
            Raw::Float(float) => Ok(*float),
            Raw::Text(text) | Raw::Huge(text) => {
                text.trim().parse().map_err(|_| format!("`{}` must be {wanted}", self.name))
            }
            Raw::Quoted(_) | Raw::Bool(_) | Raw::Other(_) => Err(self.wrong_type(raw, wanted)),
        }
    }

    fn boolean(&self, raw: &Raw) -> Result<bool, String> {
        match raw {
            Raw::Bool(yes) => Ok(*yes),
            Raw::Text(text) => match text.trim().to_ascii_lowercase().as_str() {
                "true" | "1" | "yes" => Ok(true),
                "false" | "0" | "no" => Ok(false),
                _ => Err(format!("`{}` must be true or false (or 1, 0, yes, no)", self.name)),
            },
            Raw::Quoted(_) | Raw::Int(_) | Raw::Huge(_) | Raw::Float(_) | Raw::Other(_) => {
                Err(self.wrong_type(raw, "true or false"))
            }
        }
    }

    fn text<'a>(&self, raw: &'a Raw) -> Result<&'a str, String> {
        match raw {
            Raw::Text(text) | Raw::Quoted(text) => Ok(text),
            Raw::Int(_) | Raw::Huge(_) | Raw::Float(_) | Raw::Bool(_) | Raw::Other(_) => {
                Err(self.wrong_type(raw, "a text"))
            }
        }
    }

    /// Whatever is wrong with a URL that holds an `@`, the message names neither it nor its parts: it is most likely a
    /// password in the wrong place. Options are cut off for the same reason.
    fn store(&self, text: &str) -> Result<Value, Refusal> {
        let error = match text.parse::<StoreUrl>() {
            Ok(url) => return Ok(Value::Text(url.to_string())),
            Err(error) => error,
        };
        let rule = if text.contains('@') {
            format!("must not contain credentials (they come from the environment); use {URL_FORMS}")
        } else {
            error.rule
        };
        let value = error.value.trim_matches('"');
        let value = value.split_once('?').map_or_else(|| value.to_owned(), |(start, _)| format!("{start}?…"));
        Err(Refusal { rule: format!("`{}`: {rule}", self.name), safe_value: Some(shown(&value)) })
    }
}
