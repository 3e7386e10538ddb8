//! The log on stderr: a calm line for people, JSON for machines.

mod context;
mod json;
mod otlp;

use crate::out;
use clap::ValueEnum;
use std::fmt::{self, Write as _};
use std::io::IsTerminal;
use tenure::Settings;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Forms of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum LogForm {
    Human,
    Json,
    Off,
}

/// Starts logging to stderr. The level comes from `TENURE_LOG` (`info` if not set), or a list of `target=level`.
pub(crate) fn start(form: LogForm) {
    let (otlp, trouble) = match otlp::layer() {
        Ok(layer) => (layer, None),
        Err(trouble) => (None, Some(trouble)),
    };
    let asked = std::env::var("TENURE_LOG").ok().and_then(|asked| asked.parse().ok());
    let targets = asked.unwrap_or_else(|| Targets::new().with_default(Level::INFO));
    let filter = || targets.clone();
    let registry = tracing_subscriber::registry();
    let registry = registry.with(context::epoch_layer()).with(otlp.map(|otlp| otlp.with_filter(filter())));
    // It would report a log that cannot be written by a panic, on the very task that holds the lease.
    let words = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).log_internal_errors(false);
    match form {
        LogForm::Human => {
            let words = words.with_ansi(std::io::stderr().is_terminal()).event_format(Human);
            registry.with(words.with_filter(filter())).init();
        }
        LogForm::Json => registry.with(words.event_format(json::Json).with_filter(filter())).init(),
        LogForm::Off => registry.init(),
    }
    if let Some(trouble) = trouble {
        tracing::warn!("{trouble}");
    }
}

/// Says for whom this process speaks: its lines for machines have namespace, node and epoch from now on. The first lines are what
/// is to be said about the settings.
pub(crate) fn speak_for(settings: &Settings, warnings: &[String]) {
    speak(None, settings, warnings);
}

/// The same for the process of a worker, which is not the node of its pod.
pub(crate) fn speak_for_worker(worker: &str, settings: &Settings, warnings: &[String]) {
    speak(Some(worker), settings, warnings);
}

fn speak(worker: Option<&str>, settings: &Settings, warnings: &[String]) {
    context::LogContext::set(worker, settings);
    for warning in warnings {
        tracing::warn!("{warning}");
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
        let worker = context::LogContext::get().and_then(|context| context.worker.as_deref());
        match worker {
            Some(worker) => write!(writer, "worker {}: ", out::line(worker))?,
            None if fields.node.is_empty() => {}
            None => write!(writer, "{}: ", out::line(&fields.node))?,
        }
        writeln!(writer, "{}", out::line(&fields.line()))
    }
}

/// The message, the node it speaks for, and whatever else was said.
#[derive(Default)]
struct Fields {
    message: String,
    node: String,
    rest: Vec<(&'static str, String)>,
}

impl Fields {
    /// Those that are for programs alone, or the same in every line, are left out.
    fn add(&mut self, name: &'static str, value: String) {
        if !["event", "namespace", "epoch", "fields"].contains(&name) {
            self.rest.push((name, value));
        }
    }

    /// The sentence, and what it does not say already.
    fn line(&self) -> String {
        let mut line = self.message.clone();
        let is_part = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
        let words: Vec<&str> =
            self.message.split(|c| !is_part(c)).map(|word| word.trim_end_matches('.')).collect();
        for (name, value) in &self.rest {
            let said = words.contains(&value.as_str());
            if !said && (!value.contains(' ') || !self.message.contains(value)) {
                // Writing to a String cannot fail.
                let _ = write!(line, " {name}={value}");
            }
        }
        line
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            "node" => self.node = format!("{value:?}"),
            name => self.add(name, format!("{value:?}")),
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "node" => value.clone_into(&mut self.node),
            name => self.add(name, value.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_everything_once() {
        let line = |message: &str, rest: &[(&'static str, &str)]| {
            let rest = rest.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
            Fields { message: message.to_owned(), node: String::new(), rest }.line()
        };
        assert_eq!(line("process polls started", &[("process", "polls")]), "process polls started");
        assert_eq!(line("worker w1 is gone", &[("worker", "w1")]), "worker w1 is gone");
        assert_eq!(line("worker w12 is gone", &[("worker", "w1")]), "worker w12 is gone worker=w1");
        assert_eq!(
            line("workers: 1 active, 0 inactive", &[("active", "1"), ("inactive", "0")]),
            "workers: 1 active, 0 inactive"
        );
        assert_eq!(line("in 1000 ms", &[("attempt", "1")]), "in 1000 ms attempt=1");
        assert_eq!(
            line("handed over because: it failed too often", &[("cause", "it failed too often")]),
            "handed over because: it failed too often"
        );
        assert_eq!(line("read the seat", &[("leader", "pod-a")]), "read the seat leader=pod-a");
    }
}
