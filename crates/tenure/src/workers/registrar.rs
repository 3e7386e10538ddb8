//! Registers workers with a node that somebody else holds.

use super::spec::{WorkerError, WorkerSpec};
use super::worker::{Worker, WorkerHost};

/// Registers workers with a node, for callers that cannot hold the node itself. Does not keep the node alive; a worker
/// outlives its node until somebody ends it.
#[derive(Clone, Debug)]
pub struct Registrar(pub(crate) WorkerHost);

impl Registrar {
    /// Like [`Node::register_worker`](crate::Node::register_worker). Must be called on a tokio runtime.
    pub fn register_worker(&self, spec: &WorkerSpec) -> Result<Worker, WorkerError> {
        self.0.register(spec)
    }
}
