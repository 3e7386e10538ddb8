//! Shows each step of a node's coordinator as it is made, to check the code against the proof (feature `explore`).

use std::fmt;
use std::sync::Arc;
use tenure_core::{Coordinator, Effect, Input, Time, View};

/// One step, right after it was made and before any of it is carried out.
#[derive(Debug)]
pub struct CoreStep<'a> {
    /// The proof's variables for the node before the step.
    pub before: View,
    /// When the step was made, by the node's clock.
    pub now: Time,
    /// The input of the step.
    pub input: &'a Input,
    /// The effects of the step.
    pub effects: &'a [Effect],
    /// The coordinator after the step.
    pub core: &'a Coordinator,
}

/// Receives every step of a coordinator.
#[derive(Clone)]
pub struct Watcher(Arc<dyn Fn(&CoreStep<'_>) + Send + Sync>);

impl Watcher {
    /// Calls this function with every step. It runs between two steps of the node, so it must be quick.
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
