//! A document with the line of every value, from YAML (which includes JSON) or from an object of the store.

use super::problem::{Problem, Problems, shortened};
use saphyr_parser::{Event, Parser, ScalarStyle, Span};
use serde_json::{Map, Number, Value};

/// The largest file.
const FILE_MAX_BYTES: usize = 1024 * 1024;

/// The deepest nesting.
const DEPTH_MAX: usize = 32;

/// A value and its position.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Tree {
    pub(crate) line: Option<usize>,
    pub(crate) data: Data,
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Data {
    /// Neither an array nor an object.
    Scalar(Value),
    List(Vec<Tree>),
    Map(Vec<Entry>),
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) line: Option<usize>,
    pub(crate) value: Tree,
}

impl Tree {
    fn scalar(&self) -> &Value {
        if let Data::Scalar(value) = &self.data { value } else { &Value::Null }
    }

    /// Whether a value is missing. Lists and maps are values.
    pub(crate) fn is_null(&self) -> bool {
        self.data == Data::Scalar(Value::Null)
    }

    pub(crate) fn as_text(&self) -> Option<&str> {
        self.scalar().as_str()
    }

    pub(crate) fn as_flag(&self) -> Option<bool> {
        self.scalar().as_bool()
    }

    pub(crate) fn as_number(&self) -> Option<u64> {
        self.scalar().as_u64()
    }

    /// How an error shows the value.
    pub(crate) fn describe(&self) -> String {
        match &self.data {
            Data::Scalar(Value::String(text)) => format!("{:?}", shortened(text)),
            Data::Scalar(value) => value.to_string(),
            Data::List(list) => format!("a list of {}", list.len()),
            Data::Map(map) => format!("a map of {}", map.len()),
        }
    }

    pub(crate) fn to_json(&self) -> Value {
        match &self.data {
            Data::Scalar(value) => value.clone(),
            Data::List(list) => Value::Array(list.iter().map(Tree::to_json).collect()),
            Data::Map(map) => {
                let entries = map.iter().map(|entry| (entry.key.clone(), entry.value.to_json()));
                Value::Object(entries.collect::<Map<_, _>>())
            }
        }
    }

    pub(crate) fn from_json(value: &Value) -> Tree {
        let data = match value {
            Value::Array(list) => Data::List(list.iter().map(Tree::from_json).collect()),
            Value::Object(map) => {
                let entry = |(key, value): (&String, &Value)| Entry {
                    key: key.clone(),
                    line: None,
                    value: Tree::from_json(value),
                };
                Data::Map(map.iter().map(entry).collect())
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Data::Scalar(value.clone()),
        };
        Tree { line: None, data }
    }
}

/// Reads YAML or JSON: one document, without tags, aliases or duplicate keys.
pub(crate) fn parse(text: &str) -> Result<Tree, Problems> {
    if text.len() > FILE_MAX_BYTES {
        let rule = format!("has {} bytes; at most {FILE_MAX_BYTES} are allowed", text.len());
        return Err(Problems::one(Problem::new(None, "", "", rule)));
    }
    let mut builder = Builder::default();
    // Not the parser's own loader: that one recurses without a limit. Events give the line of every fault, and without aliases no
    // document grows while it is read.
    for event in Parser::new_from_str(text) {
        let taken = match event {
            Ok((event, span)) => builder.take(event, line_of(span)),
            Err(error) => {
                Err(Problem::new(Some(error.marker().line()), "", "", format!("not YAML: {}", error.info())))
            }
        };
        if let Err(problem) = taken {
            // The rest cannot be understood, but what came before was.
            builder.problems.push(problem);
            break;
        }
    }
    Problems::check(std::mem::take(&mut builder.problems))?;
    Ok(builder.root.unwrap_or(Tree { line: Some(1), data: Data::Scalar(Value::Null) }))
}

fn line_of(span: Span) -> usize {
    span.start.line()
}

/// A collection being built.
enum Open {
    List(usize, Vec<Tree>),
    Map(usize, Vec<Entry>, Option<(String, usize)>),
}

#[derive(Default)]
struct Builder {
    stack: Vec<Open>,
    root: Option<Tree>,
    documents: usize,
    problems: Vec<Problem>,
}

impl Builder {
    fn take(&mut self, event: Event<'_>, line: usize) -> Result<(), Problem> {
        let refuse = |rule: &str| Err(Problem::new(Some(line), "", "", rule));
        match event {
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => Ok(()),
            Event::DocumentStart(_) => {
                self.documents += 1;
                if self.documents > 1 { refuse("must be one document, not several") } else { Ok(()) }
            }
            Event::Alias(_) => refuse("aliases (`*name`) are not supported: write it out"),
            Event::Scalar(_, _, _, Some(_))
            | Event::SequenceStart(_, Some(_))
            | Event::MappingStart(_, Some(_)) => refuse("tags (`!name`) are not supported"),
            Event::Scalar(text, style, _, None) => self.scalar(&text, style, line),
            Event::SequenceStart(_, None) => self.open(Open::List(line, Vec::new()), line),
            Event::MappingStart(_, None) => self.open(Open::Map(line, Vec::new(), None), line),
            Event::SequenceEnd | Event::MappingEnd => match self.stack.pop() {
                Some(Open::List(line, list)) => self.put(Tree { line: Some(line), data: Data::List(list) }),
                Some(Open::Map(line, map, _)) => self.put(Tree { line: Some(line), data: Data::Map(map) }),
                None => Ok(()),
            },
        }
    }

    fn open(&mut self, open: Open, line: usize) -> Result<(), Problem> {
        if let Some(Open::Map(_, _, None)) = self.stack.last() {
            return Err(Problem::new(Some(line), "", "", "a key must be text"));
        }
        if self.stack.len() >= DEPTH_MAX {
            let rule = format!("nested deeper than {DEPTH_MAX} levels");
            return Err(Problem::new(Some(line), "", "", rule));
        }
        self.stack.push(open);
        Ok(())
    }

    fn scalar(&mut self, text: &str, style: ScalarStyle, line: usize) -> Result<(), Problem> {
        if let Some(Open::Map(_, map, key @ None)) = self.stack.last_mut() {
            if map.iter().any(|entry| entry.key == text) {
                self.problems.push(Problem::new(Some(line), shortened(text), "", "is given twice"));
            }
            *key = Some((text.to_owned(), line));
            return Ok(());
        }
        let value = match style {
            ScalarStyle::Plain => plain(text),
            ScalarStyle::SingleQuoted
            | ScalarStyle::DoubleQuoted
            | ScalarStyle::Literal
            | ScalarStyle::Folded => Value::String(text.to_owned()),
        };
        self.put(Tree { line: Some(line), data: Data::Scalar(value) })
    }

    fn put(&mut self, tree: Tree) -> Result<(), Problem> {
        match self.stack.last_mut() {
            None => self.root = Some(tree),
            Some(Open::List(_, list)) => list.push(tree),
            Some(Open::Map(_, map, key)) => {
                let (key, line) = key.take().unwrap_or_default();
                map.push(Entry { key, line: Some(line), value: tree });
            }
        }
        Ok(())
    }
}

/// An unquoted scalar, by YAML's JSON schema.
fn plain(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "true" | "True" | "TRUE" => Value::Bool(true),
        "false" | "False" | "FALSE" => Value::Bool(false),
        _ => match serde_json::from_str::<Number>(text) {
            Ok(number) => Value::Number(number),
            Err(_) => Value::String(text.to_owned()),
        },
    }
}
