//! Where things are on the store.

use tenure_core::{DocumentName, Namespace, NodeId, PluginName, WorkerId};

/// The keys of one namespace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Keys {
    root: String,
}

impl Keys {
    /// The namespaces' shared elections are below this.
    pub(crate) const GLOBAL_ROOT: &str = "plg_coordinator_global/";
    /// Elections of their own are below this, by namespace.
    pub(crate) const PLUGIN_ROOT: &str = "plg_coordinator/";

    /// The keys of a shared election.
    pub fn global(namespace: &Namespace) -> Keys {
        Keys { root: format!("{}{namespace}", Keys::GLOBAL_ROOT) }
    }

    /// The keys of a plugin's own election, by its name.
    pub fn per_plugin(namespace: &Namespace, plugin: &PluginName) -> Keys {
        Keys { root: format!("{}{namespace}/{plugin}", Keys::PLUGIN_ROOT) }
    }

    /// Everything of the namespace is below this.
    pub fn root(&self) -> &str {
        &self.root
    }

    /// The seat.
    pub fn seat(&self) -> String {
        format!("{}/seat.json", self.root)
    }

    /// The folder of presences, ending in `/`.
    pub fn nodes(&self) -> String {
        format!("{}/nodes/", self.root)
    }

    /// A node's presence.
    pub fn node(&self, node: &NodeId) -> String {
        format!("{}/nodes/{node}.json", self.root)
    }

    /// Whose presence a key is; `None` for anything that is not one.
    pub fn node_of(&self, key: &str) -> Option<NodeId> {
        let name = key.strip_prefix(&self.nodes())?.strip_suffix(".json")?;
        NodeId::new(name).ok()
    }

    /// The folder of workers, ending in `/`.
    pub fn workers(&self) -> String {
        format!("{}/workers/", self.root)
    }

    /// A worker's object.
    pub fn worker(&self, worker: &WorkerId) -> String {
        format!("{}/workers/{worker}.json", self.root)
    }

    /// Whose object a key is; `None` for anything that is not a worker's.
    pub fn worker_of(&self, key: &str) -> Option<WorkerId> {
        let name = key.strip_prefix(&*self.root)?.strip_prefix("/workers/")?.strip_suffix(".json")?;
        WorkerId::new(name).ok()
    }

    /// A shard of the ledger of tasks.
    pub fn ledger(&self, shard: usize) -> String {
        format!("{}/tasks/ledger-{shard}.json", self.root)
    }

    /// The folder of inboxes, ending in `/`.
    pub fn inboxes(&self) -> String {
        format!("{}/tasks/inbox/", self.root)
    }

    /// A worker's inbox.
    pub fn inbox(&self, worker: &WorkerId) -> String {
        format!("{}/tasks/inbox/{worker}.json", self.root)
    }

    /// Whose inbox a key is; `None` for anything that is not one.
    pub fn inbox_of(&self, key: &str) -> Option<WorkerId> {
        let name = key.strip_prefix(&*self.root)?.strip_prefix("/tasks/inbox/")?.strip_suffix(".json")?;
        WorkerId::new(name).ok()
    }

    /// The folder of finished tasks that were put away, ending in `/`.
    pub fn done(&self) -> String {
        format!("{}/tasks/done/", self.root)
    }

    /// A document of the leader's that is not the protocol's own.
    pub fn document(&self, name: &DocumentName) -> String {
        format!("{}/{name}.json", self.root)
    }

    /// What the leader publishes about the workers.
    pub fn snapshot(&self) -> String {
        format!("{}/snapshot.json", self.root)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_the_documented_ones() {
        let keys = Keys::global(&Namespace::new("production").expect("valid"));
        assert_eq!(keys.seat(), "plg_coordinator_global/production/seat.json");
        let node = NodeId::new("pod-a").expect("valid");
        assert_eq!(keys.node(&node), "plg_coordinator_global/production/nodes/pod-a.json");
        assert_eq!(keys.node_of(&keys.node(&node)), Some(node));
        let worker = WorkerId::new("q1-worker-1").expect("valid");
        assert_eq!(keys.worker(&worker), "plg_coordinator_global/production/workers/q1-worker-1.json");
        assert_eq!(keys.worker_of(&keys.worker(&worker)), Some(worker));
        assert_eq!(keys.worker_of("plg_coordinator_global/production/workers/a/b.json"), None);
        assert_eq!(keys.snapshot(), "plg_coordinator_global/production/snapshot.json");
        assert_eq!(keys.ledger(2), "plg_coordinator_global/production/tasks/ledger-2.json");
        let worker = WorkerId::new("w1").expect("valid");
        assert_eq!(keys.inbox(&worker), "plg_coordinator_global/production/tasks/inbox/w1.json");
        assert_eq!(keys.inbox_of(&keys.inbox(&worker)), Some(worker));
        assert_eq!(keys.inbox_of(&keys.ledger(2)), None);
        let own = Keys::per_plugin(
            &Namespace::new("production").expect("valid"),
            &PluginName::new("queue").expect("valid"),
        );
        assert_eq!(own.seat(), "plg_coordinator/production/queue/seat.json");
        for foreign in [
            "plg_coordinator_global/production/nodes/a/b.json",
            "x",
            "plg_coordinator_global/production/nodes/.json",
        ] {
            assert_eq!(keys.node_of(foreign), None, "{foreign}");
        }
    }
}
