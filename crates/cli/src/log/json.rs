//! The log for machines: one flat JSON object a line, each with `namespace`, `node` and `epoch`.

use super::context::{EPOCH, LogContext, NAMESPACE, NODE};
use serde_json::{Map, Value};
use std::fmt;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

pub(super) struct Json;

impl<S, N> FormatEvent<S, N> for Json
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut line = Line(Map::new());
        line.0.insert("timestamp".to_owned(), format!("{:.6}", jiff::Timestamp::now()).into());
        line.0.insert("level".to_owned(), event.metadata().level().as_str().into());
        event.record(&mut line);
        line.0.insert("target".to_owned(), event.metadata().target().into());
        if let Some(context) = LogContext::get() {
            line.or(NAMESPACE, || context.namespace.as_str().into());
            line.or(NODE, || context.node.as_str().into());
            line.or(EPOCH, || context.epoch().into());
            if let Some(worker) = &context.worker {
                line.or("worker", || worker.as_str().into());
            }
        }
        writeln!(writer, "{}", crate::out::json(&Value::Object(line.0).to_string()))
    }
}

struct Line(Map<String, Value>);

impl Line {
    fn or(&mut self, name: &str, value: impl FnOnce() -> Value) {
        if !self.0.contains_key(name) {
            self.0.insert(name.to_owned(), value());
        }
    }

    fn set(&mut self, field: &Field, value: impl Into<Value>) {
        self.0.insert(field.name().to_owned(), value.into());
    }
}

impl Visit for Line {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.set(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.set(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.set(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.set(field, value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.set(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.set(field, format!("{value:?}"));
    }
}
