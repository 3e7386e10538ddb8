//! Where objects are on the store.

use tenure_core::{JobId, Namespace, NodeId, PluginName, WorkerId, job_output_folder};

/// Which election of a namespace is meant: the one its nodes share, or one of its own that a plugin, a lock or a command has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Election {
    /// The namespace.
    pub namespace: Namespace,
    /// Whose election it is; `None` for the one that the namespace's nodes share.
    pub plugin: Option<PluginName>,
}

impl Election {
    pub(crate) fn keys(&self) -> Keys {
        match &self.plugin {
            Some(plugin) => Keys::per_plugin(&self.namespace, plugin),
            None => Keys::global(&self.namespace),
        }
    }
}

impl From<&Namespace> for Election {
    fn from(namespace: &Namespace) -> Election {
        Election { namespace: namespace.clone(), plugin: None }
    }
}

impl From<&Election> for Election {
    fn from(election: &Election) -> Election {
        election.clone()
    }
}

/// The keys of one election.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Keys {
    root: String,
}

impl Keys {
    /// Root of the namespaces' shared elections.
    pub(crate) const GLOBAL_ROOT: &str = "plg_coordinator_global/";
    /// Root of plugins' own elections, by namespace.
    pub(crate) const PLUGIN_ROOT: &str = "plg_coordinator/";

    /// The keys of a namespace's shared election.
    pub(crate) fn global(namespace: &Namespace) -> Keys {
        Keys { root: format!("{}{namespace}", Keys::GLOBAL_ROOT) }
    }

    /// The keys of a plugin's own election.
    pub(crate) fn per_plugin(namespace: &Namespace, plugin: &PluginName) -> Keys {
        Keys { root: format!("{}{namespace}/{plugin}", Keys::PLUGIN_ROOT) }
    }

    /// The keys below this prefix, which has no trailing `/`.
    pub(crate) fn below(root: &str) -> Keys {
        Keys { root: root.to_owned() }
    }

    /// Prefix of everything in the namespace, without a trailing `/`.
    pub(crate) fn root(&self) -> &str {
        &self.root
    }

    /// The key of the seat.
    pub(crate) fn seat(&self) -> String {
        format!("{}/seat.json", self.root)
    }

    /// The folder of presences, ending in `/`.
    pub(crate) fn nodes(&self) -> String {
        format!("{}/nodes/", self.root)
    }

    /// The key of a node's presence.
    pub(crate) fn node(&self, node: &NodeId) -> String {
        format!("{}/nodes/{node}.json", self.root)
    }

    /// The node whose presence this key is; `None` for any other key.
    pub(crate) fn node_of(&self, key: &str) -> Option<NodeId> {
        let name = key.strip_prefix(&self.nodes())?.strip_suffix(".json")?;
        NodeId::new(name).ok()
    }

    /// The folder of workers, ending in `/`.
    pub(crate) fn workers(&self) -> String {
        format!("{}/workers/", self.root)
    }

    /// The key of a worker's object.
    pub(crate) fn worker(&self, worker: &WorkerId) -> String {
        format!("{}/workers/{worker}.json", self.root)
    }

    /// The worker whose object this key is; `None` for any other key.
    pub(crate) fn worker_of(&self, key: &str) -> Option<WorkerId> {
        let name = key.strip_prefix(&*self.root)?.strip_prefix("/workers/")?.strip_suffix(".json")?;
        WorkerId::new(name).ok()
    }

    /// The key of a shard of the job ledger.
    pub(crate) fn ledger(&self, shard: usize) -> String {
        format!("{}/jobs/ledger-{shard}.json", self.root)
    }

    /// The key of the orders to the leader.
    pub(crate) fn orders(&self) -> String {
        format!("{}/jobs/orders.json", self.root)
    }

    /// The folder of inboxes, ending in `/`.
    pub(crate) fn inboxes(&self) -> String {
        format!("{}/jobs/inbox/", self.root)
    }

    /// The key of a worker's inbox.
    pub(crate) fn inbox(&self, worker: &WorkerId) -> String {
        format!("{}/jobs/inbox/{worker}.json", self.root)
    }

    /// The worker whose inbox this key is; `None` for any other key.
    pub(crate) fn inbox_of(&self, key: &str) -> Option<WorkerId> {
        let name = key.strip_prefix(&*self.root)?.strip_prefix("/jobs/inbox/")?.strip_suffix(".json")?;
        WorkerId::new(name).ok()
    }

    /// The key of the newest jobs of the history.
    pub(crate) fn history_head(&self) -> String {
        format!("{}/jobs/history/head.json", self.root)
    }

    /// The key of the notices that are not delivered yet.
    pub(crate) fn notices(&self) -> String {
        format!("{}/jobs/notices.json", self.root)
    }

    /// The key of a part of the history.
    pub(crate) fn history_part(&self, part: usize) -> String {
        format!("{}/jobs/history/part-{part}.json", self.root)
    }

    /// The key of an object of the history that is written once.
    pub(crate) fn kept(&self, name: &str) -> String {
        format!("{}/jobs/done/{name}.json", self.root)
    }

    /// The folder of these, ending in `/`.
    pub(crate) fn done(&self) -> String {
        format!("{}/jobs/done/", self.root)
    }

    /// One of the 256 folders of jobs' outputs, ending in `/`.
    pub(crate) fn outputs(&self, folder: u8) -> String {
        format!("{}/jobs/output/{folder:02x}/", self.root)
    }

    /// The folder of a job's outputs, ending in `/`: stores list whole folders only.
    pub(crate) fn outputs_of(&self, job: &JobId) -> String {
        format!("{}{job}/", self.outputs(job_output_folder(job)))
    }

    /// The key of the output of one attempt.
    pub(crate) fn output(&self, job: &JobId, attempt: u32) -> String {
        format!("{}{attempt}.json", self.outputs_of(job))
    }

    /// The attempt of this job whose output this key is; `None` for any other key.
    pub(crate) fn output_of(&self, job: &JobId, key: &str) -> Option<u32> {
        let attempt = key.strip_prefix(&self.outputs_of(job))?.strip_suffix(".json")?.parse().ok()?;
        (key == self.output(job, attempt)).then_some(attempt)
    }

    /// The key of the snapshot that the leader publishes about the workers.
    pub(crate) fn snapshot(&self) -> String {
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
        assert_eq!(keys.ledger(2), "plg_coordinator_global/production/jobs/ledger-2.json");
        let worker = WorkerId::new("w1").expect("valid");
        assert_eq!(keys.inbox(&worker), "plg_coordinator_global/production/jobs/inbox/w1.json");
        assert_eq!(keys.inbox_of(&keys.inbox(&worker)), Some(worker));
        assert_eq!(keys.inbox_of(&keys.ledger(2)), None);
        let job = JobId::new("report-7").expect("valid");
        let output = keys.output(&job, 2);
        assert_eq!(output, "plg_coordinator_global/production/jobs/output/19/report-7/2.json");
        assert_eq!(keys.output_of(&job, &output), Some(2));
        for foreign in ["02.json", "+2.json", "2", "2.json/x", "x.json"] {
            assert_eq!(
                keys.output_of(&job, &format!("{}{foreign}", keys.outputs_of(&job))),
                None,
                "{foreign}"
            );
        }
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
