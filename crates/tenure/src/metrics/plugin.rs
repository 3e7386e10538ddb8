//! Figures that plugins add to those of their node.

use super::Counters;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// How a figure behaves over time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FigureKind {
    /// It only ever grows. A scrape appends `_total` to its name.
    Counter,
    /// It goes up and down.
    Gauge,
}

/// A figure of a plugin, at one moment.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PluginFigure {
    /// Its name as in a scrape, without `_total`. Different plugins must use different names.
    pub name: &'static str,
    /// One line of explanation.
    pub help: &'static str,
    /// Whether it is a counter or a gauge.
    pub kind: FigureKind,
    /// The present value; a whole number for a counter.
    pub value: f64,
}

impl PluginFigure {
    /// The name as a scrape shows it.
    pub fn shown_name(&self) -> String {
        match self.kind {
            FigureKind::Counter => format!("{}_total", self.name),
            FigureKind::Gauge => self.name.to_owned(),
        }
    }
}

type Source = Arc<dyn Fn() -> Vec<PluginFigure> + Send + Sync>;

/// Who adds figures, by name.
#[derive(Default)]
pub(super) struct Sources(Mutex<BTreeMap<String, Source>>);

impl std::fmt::Debug for Sources {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sources = self.0.lock();
        f.debug_set().entries(sources.keys()).finish()
    }
}

impl Sources {
    pub(super) fn read(&self) -> Vec<PluginFigure> {
        let sources: Vec<Source> = self.0.lock().values().cloned().collect();
        sources.iter().flat_map(|source| source()).collect()
    }
}

/// Where a plugin adds its figures to those of its node: they appear in the node's registry and in its
/// [`Metrics`](super::Metrics), under `pluginFigures`. Clones are interchangeable.
#[derive(Clone, Debug)]
pub struct PluginFigures(pub(crate) Arc<Counters>);

impl PluginFigures {
    /// Sets the function that returns this plugin's figures; it replaces an earlier one of the same name. It is called for
    /// every scrape and snapshot, must not block, and must always return the same names.
    pub fn publish(&self, plugin: &str, read: impl Fn() -> Vec<PluginFigure> + Send + Sync + 'static) {
        let mut sources = self.0.sources.0.lock();
        sources.insert(plugin.to_owned(), Arc::new(read));
    }
}
