//! For those who check the code against the proof: each step of a node's coordinator, as it is made (feature `explore`).

use std::fmt;
use std::sync::Arc;
use tenure_core::{Coordinator, Effect, Input, Time, View};

/// One step, right after it was made and before anything of it is carried out.
#[derive(Debug)]
pub struct CoreStep<'a> {
    /// What the proof said about the node before.
    pub before: View,
    /// When, by the node's clock.
    pub now: Time,
    /// What the coordinator was told.
    pub input: &'a Input,
    /// What it wants done.
    pub effects: &'a [Effect],
    /// The coordinator afterwards.
    pub core: &'a Coordinator,
}

/// Is shown every step.
#[derive(Clone)]
pub struct Watcher(Arc<dyn Fn(&CoreStep<'_>) + Send + Sync>);

impl Watcher {
    /// Calls this with every step. It runs between two steps of the node, so it must be quick.
    pub fn new(watch: impl Fn(&CoreStep<'_>) + Send + Sync + 'static) -> Watcher {
        Watcher(Arc::new(watch))
    }

    pub(crate) fn see(&self, step: &CoreStep<'_>) {
        (self.0)(step);
    }
}

impl fmt::Debug for Watcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watcher")
    }
}
