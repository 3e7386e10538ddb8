//! Which agents there are, and what they say about themselves.

use super::super::assign::AgentFacts;
use super::super::stored::Schedules;
use super::{StoreAnswer, Term};
use serde_json::Value;
use std::sync::Arc;
use tenure::id::WorkerId;
use tenure::store::Read;
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// Most agents read at the same time, and in one look.
const AGENTS_AT_ONCE: usize = 16;
const AGENTS_PER_LOOK: usize = 512;

impl Term<'_> {
    /// Takes the active workers from the registry, and reads what they say about themselves.
    pub(super) fn read_facts(&mut self) {
        let list = Arc::clone(&self.inner.workers.borrow().list);
        let active: Vec<&WorkerId> =
            list.iter().filter(|info| info.active).map(|info| &info.worker_id).collect();
        // A worker that comes back may be a different process.
        self.agents.retain(|id, _| active.binary_search(&id).is_ok());
        self.update_active_agents();
        if self.reads.len() > 1 {
            return;
        }
        let (now, age) = (Instant::now(), self.inner.options.agent_interval);
        let old = |id: &&WorkerId| self.agents.get(*id).is_none_or(|(_, since)| now - *since >= age);
        let wanted: Vec<WorkerId> = active.into_iter().filter(old).take(AGENTS_PER_LOOK).cloned().collect();
        let turns = Arc::new(Semaphore::new(AGENTS_AT_ONCE.min(self.inner.schedules.store.at_once())));
        for id in wanted {
            let (schedules, turns) = (self.inner.schedules.clone(), Arc::clone(&turns));
            self.reads.spawn(async move {
                // The semaphore is never closed.
                let _turn = turns.acquire().await;
                let facts = read_agent(&schedules, &id).await;
                StoreAnswer::Agent(id, facts)
            });
        }
    }

    pub(super) fn update_active_agents(&mut self) {
        // A worker's own facts are read only now and then; its inbox shows sooner that it is draining.
        let closed = self.dispatcher.draining();
        let agents = self.agents.iter().filter_map(|(id, (facts, _))| {
            let facts = facts.clone()?;
            let draining = facts.draining || closed.contains(id);
            Some((id.clone(), AgentFacts { draining, ..facts }))
        });
        self.reassign |= self.active_agents.replace(agents.collect());
    }
}

/// What a worker says about itself as an agent; `None` if it is not one.
async fn read_agent(schedules: &Schedules, worker: &WorkerId) -> Result<Option<AgentFacts>, String> {
    let key = format!("{}/workers/{worker}.json", schedules.prefix());
    let Read::Found(object) = schedules.get_object(&key).await? else {
        return Ok(None);
    };
    let value: Option<Value> = serde_json::from_slice(&object.body).ok();
    Ok(value.and_then(|value| AgentFacts::from_payload(value.get("payload")?)))
}
