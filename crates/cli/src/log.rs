//! The log on stderr: a calm line for people, JSON for machines.

mod otlp;

use clap::ValueEnum;
use std::fmt::{self, Write as _};
use std::io::IsTerminal;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Forms of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum LogForm {
    /// One readable line each.
    Human,
    /// One JSON object each.
    Json,
    /// Nothing.
    Off,
}

/// Starts logging to stderr. The level comes from `TENURE_LOG` (`info` if not set), in `tracing`'s filter syntax.
pub(crate) fn start(form: LogForm) {
    let (otlp, trouble) = match otlp::layer() {
        Ok(layer) => (layer, None),
        Err(trouble) => (None, Some(trouble)),
    };
    let filter = EnvFilter::try_from_env("TENURE_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let registry = tracing_subscriber::registry().with(filter).with(otlp);
    // It would report a log that cannot be written by a panic, on the very task that holds the lease.
    let words = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).log_internal_errors(false);
    match form {
        LogForm::Human => {
            registry.with(words.with_ansi(std::io::stderr().is_terminal()).event_format(Human)).init();
        }
        LogForm::Json => registry.with(words.json().flatten_event(true)).init(),
        LogForm::Off => registry.init(),
    }
    if let Some(trouble) = trouble {
        tracing::warn!("{trouble}");
    }
}

/// Whatever is under way is sent; for the end of a program.
pub(crate) fn finish() {
    otlp::finish();
}

/// `12:00:01.234 INFO  pod-a: LEADING in epoch 1`
struct Human;

impl<S, N> FormatEvent<S, N> for Human
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
        let mut fields = Fields::default();
        event.record(&mut fields);
        let now = jiff::Zoned::now();
        let level = *event.metadata().level();
        let colour = match level {
            Level::ERROR => "31",
            Level::WARN => "33",
            Level::INFO => "32",
            _ => "2",
        };
        write!(writer, "{} ", now.strftime("%H:%M:%S%.3f"))?;
        if writer.has_ansi_escapes() {
            write!(writer, "\x1b[{colour}m{level:<5}\x1b[0m ")?;
        } else {
            write!(writer, "{level:<5} ")?;
        }
        if !fields.node.is_empty() {
            write!(writer, "{}: ", fields.node)?;
        }
        writeln!(writer, "{}{}", fields.message, fields.rest)
    }
}

/// The message, the node it speaks for, and whatever else was said. What the sentence says already is left out.
#[derive(Default)]
struct Fields {
    message: String,
    node: String,
    rest: String,
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a String cannot fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            "event" | "namespace" | "epoch" | "reason" | "found" | "fields" => Ok(()),
            "node" => write!(self.node, "{value:?}"),
            name => write!(self.rest, " {name}={value:?}"),
        };
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        let _ = match field.name() {
            "event" | "namespace" | "reason" => Ok(()),
            "node" => write!(self.node, "{value}"),
            name => write!(self.rest, " {name}={value}"),
        };
    }
}
