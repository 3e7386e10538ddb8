//! Who runs a job: an active worker that says it runs checks, is not draining, has what the schedule needs and has room for one
//! more. Among those, the least busy. If there is none, the job carries a named reason.

use parking_lot::RwLock;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use tenure::id::{Label, WorkerId};
use tenure::job::Needs;
use tenure::job::{Assign, Candidate, JobRecord, LeastLoaded};

/// The kind of the jobs that run checks.
pub const CHECKS_KIND: &str = "poll";

/// What an agent says about itself: the field `poll` of its worker's payload. A worker without it gets no checks to run.
///
/// The leader reads it from the worker's object, once a minute by default. The registry's snapshot carries only what every node
/// needs, and payloads are not part of that.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct AgentFacts {
    /// The partition it is in.
    pub partition: Option<Label>,
    /// The domain it is responsible for.
    pub domain: Option<Label>,
    /// What it can do.
    pub capabilities: BTreeSet<Label>,
    /// The most jobs it runs at once.
    pub slots: u64,
    /// It takes nothing new.
    pub draining: bool,
}

impl Default for AgentFacts {
    fn default() -> AgentFacts {
        AgentFacts {
            partition: None,
            domain: None,
            capabilities: BTreeSet::new(),
            slots: 16,
            draining: false,
        }
    }
}

impl AgentFacts {
    /// Reads the payload of a worker; `None` if it is not an agent or the payload makes no sense.
    pub fn from_payload(payload: &Value) -> Option<AgentFacts> {
        let said = WireFacts::deserialize(payload.get("poll")?).ok()?;
        let Needs { partition, domain, capabilities } = said.labels.read()?;
        Some(AgentFacts { partition, domain, capabilities, slots: said.slots, draining: said.draining })
    }

    /// The payload of a worker with these facts.
    pub fn to_payload(&self) -> Value {
        let name = |id: &Option<Label>| id.as_ref().map(|id| id.to_string());
        let capabilities: Vec<&str> = self.capabilities.iter().map(Label::as_str).collect();
        json!({"poll": {
            "partition": name(&self.partition), "domain": name(&self.domain), "capabilities": capabilities,
            "slots": self.slots, "draining": self.draining,
        }})
    }
}

/// Why no worker runs a job. The job keeps the [name](NoWorker::as_str) as its reason.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NoWorker {
    /// No active worker says it runs checks.
    NoWorker,
    /// All of them are draining.
    AllDraining,
    /// None is in the partition.
    WrongPartition,
    /// None of those in the partition is in the domain.
    WrongDomain,
    /// None of the remaining workers has all the capabilities.
    NoCapability,
    /// All workers that could run it are full.
    AllFull,
    /// The job's needs cannot be read.
    Unreadable,
}

impl NoWorker {
    /// The name kept with the job.
    pub fn as_str(self) -> &'static str {
        match self {
            NoWorker::NoWorker => "no_worker",
            NoWorker::AllDraining => "all_draining",
            NoWorker::WrongPartition => "wrong_partition",
            NoWorker::WrongDomain => "wrong_domain",
            NoWorker::NoCapability => "no_capability",
            NoWorker::AllFull => "all_full",
            NoWorker::Unreadable => "unreadable",
        }
    }

    /// Looks up a reason by its name.
    pub fn named(name: &str) -> Option<NoWorker> {
        let all = [
            NoWorker::NoWorker,
            NoWorker::AllDraining,
            NoWorker::WrongPartition,
            NoWorker::WrongDomain,
            NoWorker::NoCapability,
            NoWorker::AllFull,
            NoWorker::Unreadable,
        ];
        all.into_iter().find(|why| why.as_str() == name)
    }

    /// A sentence for people; it includes the job's needs if they are known.
    pub fn sentence(self, needs: Option<&Needs>) -> String {
        let id = |id: Option<&Label>| id.map_or_else(|| "it needs".to_owned(), Label::to_string);
        match self {
            NoWorker::NoWorker => "no active worker runs checks; start one with `tenure agent`".to_owned(),
            NoWorker::AllDraining => "every agent is draining and takes no new jobs".to_owned(),
            NoWorker::WrongPartition => {
                let partition = id(needs.and_then(|needs| needs.partition.as_ref()));
                format!("no agent is in the partition {partition}")
            }
            NoWorker::WrongDomain => {
                let domain = id(needs.and_then(|needs| needs.domain.as_ref()));
                format!("no agent in its partition is in the domain {domain}")
            }
            NoWorker::NoCapability => {
                let all = needs.iter().flat_map(|needs| &needs.capabilities).map(Label::as_str);
                let all: Vec<&str> = all.collect();
                let which = if all.is_empty() { String::new() } else { format!(": {}", all.join(", ")) };
                format!("no agent in its partition and domain has all the capabilities it needs{which}")
            }
            NoWorker::AllFull => "every agent that could run it is full".to_owned(),
            NoWorker::Unreadable => "its requirements cannot be read: another version wrote them".to_owned(),
        }
    }
}

impl fmt::Display for NoWorker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Chooses among active agents, given their facts and their load (`None`: no room in the inbox). The agent that last had the job
/// is chosen only if there is no other. Ties go to the first id.
fn choose<'a>(
    needs: &Needs,
    had_it: Option<&WorkerId>,
    agents: impl IntoIterator<Item = (&'a WorkerId, &'a AgentFacts, Option<usize>)>,
) -> Result<WorkerId, NoWorker> {
    let mut left: Vec<_> = agents.into_iter().collect();
    // Each rule applies to those that passed the rules before it; the first rule that leaves nobody is the reason.
    let mut rule = |why: NoWorker, fits: &dyn Fn(&AgentFacts) -> bool| {
        left.retain(|(_, facts, _)| fits(facts));
        if left.is_empty() { Err(why) } else { Ok(()) }
    };
    rule(NoWorker::NoWorker, &|_| true)?;
    rule(NoWorker::AllDraining, &|facts| !facts.draining)?;
    let same = |wanted: &Option<Label>, has: &Option<Label>| wanted.is_none() || wanted == has;
    rule(NoWorker::WrongPartition, &|facts| same(&needs.partition, &facts.partition))?;
    rule(NoWorker::WrongDomain, &|facts| same(&needs.domain, &facts.domain))?;
    rule(NoWorker::NoCapability, &|facts| needs.capabilities.is_subset(&facts.capabilities))?;
    let free = left.iter().filter_map(|(id, facts, jobs)| {
        let jobs = jobs.filter(|jobs| (*jobs as u64) < facts.slots)?;
        Some((had_it == Some(*id), jobs, *id))
    });
    free.min().map(|(_, _, id)| id.clone()).ok_or(NoWorker::AllFull)
}

/// The facts about all active agents. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct ActiveAgents(Arc<RwLock<Arc<BTreeMap<WorkerId, AgentFacts>>>>);

impl ActiveAgents {
    /// Replaces all facts with those of the agents active now. Returns whether anything changed, so that waiting jobs can be
    /// assigned again.
    pub(super) fn replace(&self, agents: BTreeMap<WorkerId, AgentFacts>) -> bool {
        let mut known = self.0.write();
        let news = **known != agents;
        if news {
            *known = Arc::new(agents);
        }
        news
    }

    /// The facts about the active agents.
    pub(super) fn agents(&self) -> Arc<BTreeMap<WorkerId, AgentFacts>> {
        Arc::clone(&self.0.read())
    }
}

/// [`choose`] for a dispatcher. Jobs of other kinds go to the least busy worker.
#[derive(Clone, Debug)]
pub(super) struct AgentAssign(pub(super) ActiveAgents);

/// What a job needs, or an agent has, as JSON.
#[derive(Deserialize, Default)]
#[serde(default)]
struct WireLabels {
    partition: Option<String>,
    domain: Option<String>,
    capabilities: Option<Vec<String>>,
}

impl WireLabels {
    /// `None` if one of them is not a label.
    fn read(self) -> Option<Needs> {
        let label = |text: Option<String>| text.map(|text| Label::new(&text)).transpose().ok();
        let capabilities = self.capabilities.unwrap_or_default();
        Some(Needs {
            partition: label(self.partition)?,
            domain: label(self.domain)?,
            capabilities: capabilities.iter().map(|text| Label::new(text).ok()).collect::<Option<_>>()?,
        })
    }
}

#[derive(Deserialize)]
struct WireFacts {
    #[serde(flatten)]
    labels: WireLabels,
    #[serde(default = "slots")]
    slots: u64,
    #[serde(default)]
    draining: bool,
}

fn slots() -> u64 {
    AgentFacts::default().slots
}

#[derive(Deserialize)]
struct JobNeeds {
    #[serde(default)]
    needs: WireLabels,
}

/// The needs in a job's payload.
pub(super) fn needs_of(payload: &[u8]) -> Option<Needs> {
    serde_json::from_slice::<JobNeeds>(payload).ok()?.needs.read()
}

impl Assign for AgentAssign {
    fn assign(&self, job: &JobRecord, candidates: &[Candidate]) -> Result<WorkerId, String> {
        if job.kind.as_str() != CHECKS_KIND {
            return LeastLoaded.assign(job, candidates);
        }
        let needs = needs_of(&job.payload).ok_or_else(|| NoWorker::Unreadable.to_string())?;
        let active_agents = self.0.agents();
        // The dispatcher leaves out workers whose inbox is full. Both lists are sorted by id.
        let mut rest = candidates.iter().peekable();
        let agents = active_agents.iter().map(|(id, facts)| {
            while rest.next_if(|candidate| candidate.worker.worker_id < *id).is_some() {}
            let found = rest.peek().filter(|candidate| candidate.worker.worker_id == *id);
            (id, facts, found.map(|candidate| candidate.in_flight))
        });
        choose(&needs, job.worker.as_ref(), agents).map_err(|why| why.to_string())
    }
}

#[cfg(test)]
mod tests;
