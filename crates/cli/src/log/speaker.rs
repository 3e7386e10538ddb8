//! For whom this process speaks: namespace, node and epoch of every line, also of those that no event is behind.

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

static SPEAKER: OnceLock<Speaker> = OnceLock::new();

pub(super) struct Speaker {
    pub(super) namespace: String,
    pub(super) node: String,
    /// The worker whose process this is, if it is one's.
    pub(super) worker: Option<String>,
    epoch: AtomicU64,
}

impl Speaker {
    /// `None` until the settings are known.
    pub(super) fn get() -> Option<&'static Speaker> {
        SPEAKER.get()
    }

    pub(super) fn set(worker: Option<&str>, settings: &Settings) {
        let (namespace, node) = (settings.namespace.clone(), settings.node.to_string());
        let worker = worker.map(str::to_owned);
        // A process has one node.
        let _ = SPEAKER.set(Speaker { namespace, node, worker, epoch: AtomicU64::new(0) });
    }

    /// The epoch that was last spoken of.
    pub(super) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Relaxed)
    }
}

/// Hears which epoch is spoken of, whatever of it is written. Comes before those who write.
pub(super) fn heard<S>() -> impl Layer<S>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    Heard.with_filter(filter_fn(|data| data.target() == "tenure" && *data.level() <= Level::INFO))
}

struct Heard;

impl<S: Subscriber> Layer<S> for Heard {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if let Some(speaker) = Speaker::get() {
            let mut found = Found(None);
            event.record(&mut found);
            if let Some(epoch) = found.0 {
                speaker.epoch.store(epoch, Ordering::Relaxed);
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
