//! What every line of the log names: namespace, node and epoch, also where no event is behind it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use tenure::Settings;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

/// The fields that every line has.
pub(super) const NAMESPACE: &str = "namespace";
pub(super) const NODE: &str = "node";
pub(super) const EPOCH: &str = "epoch";

static LOG_CONTEXT: OnceLock<LogContext> = OnceLock::new();

pub(super) struct LogContext {
    pub(super) namespace: String,
    pub(super) node: String,
    /// The worker whose process this is, if it is one's.
    pub(super) worker: Option<String>,
    epoch: AtomicU64,
}

impl LogContext {
    /// `None` until the settings are known.
    pub(super) fn get() -> Option<&'static LogContext> {
        LOG_CONTEXT.get()
    }

    pub(super) fn set(worker: Option<&str>, settings: &Settings) {
        let (namespace, node) = (settings.namespace.clone(), settings.node.to_string());
        let worker = worker.map(str::to_owned);
        // A process has one node.
        let _ = LOG_CONTEXT.set(LogContext { namespace, node, worker, epoch: AtomicU64::new(0) });
    }

    /// The epoch of the newest event that named one.
    pub(super) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Relaxed)
    }
}

/// Remembers the epoch of the newest event, whether it is written or not. Comes before the layers that write.
pub(super) fn epoch_layer<S>() -> impl Layer<S>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    EpochLayer.with_filter(filter_fn(|data| data.target() == "tenure" && *data.level() <= Level::INFO))
}

struct EpochLayer;

impl<S: Subscriber> Layer<S> for EpochLayer {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if let Some(context) = LogContext::get() {
            let mut found = Found(None);
            event.record(&mut found);
            if let Some(epoch) = found.0 {
                context.epoch.store(epoch, Ordering::Relaxed);
            }
        }
    }
}

struct Found(Option<u64>);

impl Visit for Found {
    fn record_u64(&mut self, field: &Field, value: u64) {
        if field.name() == EPOCH {
            self.0 = Some(value);
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn std::fmt::Debug) {}
}
