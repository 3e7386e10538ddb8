//! `results/polls.json`: the health of the checks, as one leader leaves it to the next.

use super::{Schedules, document_name};
use crate::checks::health::Health;
use serde::{Deserialize, Serialize};
use tenure::Error;
use tenure::id::DocumentName;
use tenure::{FencedDocument, LeaderGuard};

#[derive(Serialize, Deserialize)]
struct Results {
    health: Health,
}

fn name() -> DocumentName {
    document_name("polls")
}

impl Schedules {
    /// The health of the checks, as last saved by the leader.
    pub(super) async fn read_health(&self) -> Result<Health, Error> {
        match self.folder("results")?.read::<Results>(&name()).await {
            Ok(found) => Ok(found.map(|found| found.body.health).unwrap_or_default()),
            Err(error) if error.is_unreadable() => Ok(Health::default()),
            Err(error) => Err(error),
        }
    }
}

/// Where a leader saves the health of the checks. An object that cannot be read is left alone; then nothing is saved.
pub(in crate::schedules) struct SavedHealth {
    document: Option<FencedDocument<Results>>,
    /// Why nothing is saved.
    pub(in crate::schedules) unsaved: Option<String>,
}

impl SavedHealth {
    /// Takes over what the former leader left.
    pub(in crate::schedules) async fn open(
        schedules: &Schedules,
        guard: &LeaderGuard,
    ) -> Result<(SavedHealth, Health), Error> {
        match FencedDocument::<Results>::open(&schedules.folder("results")?, &name(), guard).await {
            Ok(document) => {
                let health = document.get().map(|results| results.health.clone()).unwrap_or_default();
                Ok((SavedHealth { document: Some(document), unsaved: None }, health))
            }
            Err(error) if error.is_unreadable() => {
                Ok((SavedHealth { document: None, unsaved: Some(error.to_string()) }, Health::default()))
            }
            Err(error) => Err(error),
        }
    }

    /// Returns when the health is stored, or cannot be saved at all.
    pub(in crate::schedules) async fn save(
        &mut self,
        guard: &LeaderGuard,
        health: &Health,
    ) -> Result<(), Error> {
        let Some(document) = &mut self.document else { return Ok(()) };
        match document.put(guard, Results { health: health.clone() }).await {
            Err(error) if error.is_unreadable() => {
                *self = SavedHealth { document: None, unsaved: Some(error.to_string()) };
                Ok(())
            }
            done => done,
        }
    }
}
