//! Removes old outputs: a few of the 256 folders now and then, so that none is missed and no list is long.

use crate::clock::millis;
use crate::documents::{Documents, Fields};
use crate::guard::LeaderGuard;
use crate::job::Jobs;
use crate::keys::Keys;
use parking_lot::Mutex;
use std::time::Duration;
use tenure_core::document::DocumentRequest;
use tokio::task::JoinSet;
use tokio::time::Instant;

const FOLDERS: u32 = 256;

/// All folders are looked at once in a tenth of the retention, so an output is kept for a tenth longer at most.
const ROUNDS: u32 = 10;

/// Most folders that are looked at in one call: what was owed is caught up with after a quiet time or a change of leaders.
const FOLDERS_MAX: u32 = 64;

/// Most outputs that are listed in a folder, removed in a call, and removed at the same time.
const LIST_MAX: usize = 25_000;
const REMOVALS_MAX: usize = 1000;
const REMOVALS_AT_ONCE: usize = 16;

/// Which folders a leader has looked at.
pub(in crate::job) struct OutputRetention(Mutex<Round>);

struct Round {
    /// Any folder may be the first: leaders that do not lead for long do not all begin at the same.
    next: u8,
    owed: u32,
    at: Option<Instant>,
}

impl Round {
    /// The next folder, if one is due.
    fn due(&mut self) -> Option<u8> {
        (self.owed > 0).then_some(self.next)
    }

    fn done(&mut self) {
        self.next = self.next.wrapping_add(1);
        self.owed = self.owed.saturating_sub(1);
    }

    /// So many folders are due by now.
    fn owe(&mut self, now: Instant, retention: Duration) {
        let pause = (retention / (FOLDERS * ROUNDS)).max(Duration::from_millis(1));
        let Some(at) = self.at else {
            (self.owed, self.at) = (FOLDERS_MAX, Some(now));
            return;
        };
        let due = u32::try_from(millis(now - at) / millis(pause)).unwrap_or(u32::MAX);
        if due > 0 {
            self.at = Some(now);
            self.owed = self.owed.saturating_add(due).min(FOLDERS_MAX);
        }
    }
}

impl OutputRetention {
    pub(in crate::job) fn new() -> OutputRetention {
        OutputRetention(Mutex::new(Round { next: rand::random(), owed: 0, at: None }))
    }

    /// Removes outputs that are older than the retention, by the store's own times. `newest` is an object that was written just now. What
    /// fails is left to the next time.
    pub(in crate::job) async fn remove_old(
        &self,
        place: &Jobs,
        keys: &Keys,
        documents: &Documents,
        guard: &LeaderGuard,
        newest: &str,
    ) {
        let retention = place.settings.job_retention;
        self.0.lock().owe(Instant::now(), retention);
        if self.0.lock().due().is_none() {
            return;
        }
        let Ok(Some(newest)) = documents.get(newest).await else { return };
        let mut left = REMOVALS_MAX;
        while let Some(folder) = { self.0.lock().due() } {
            let Ok((entries, _)) = documents.list(&keys.outputs(folder), LIST_MAX).await else { return };
            let old = |modified: u64| newest.modified.0.saturating_sub(modified) > millis(retention);
            let mut old: Vec<String> =
                entries.into_iter().filter(|entry| old(entry.modified.0)).map(|entry| entry.key).collect();
            let is_all = old.len() <= left;
            old.truncate(left);
            left -= old.len();
            remove_all(documents, guard, old).await;
            if !is_all || guard.check().is_err() {
                return;
            }
            self.0.lock().done();
        }
    }
}

async fn remove_all(documents: &Documents, guard: &LeaderGuard, keys: Vec<String>) {
    let mut removals = JoinSet::new();
    for key in keys {
        if removals.len() >= REMOVALS_AT_ONCE {
            removals.join_next().await;
        }
        let (output, guard) = (documents.at(key, Fields::<serde_json::Value>::new()), guard.clone());
        removals.spawn(async move { output.carry(Some(&guard), DocumentRequest::Remove).await });
    }
    while removals.join_next().await.is_some() {}
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    /// How many folders a leader looks at that comes along so often.
    fn looked_at(every: Duration, calls: u32) -> Vec<u8> {
        let (mut round, mut now) = (Round { next: 250, owed: 0, at: None }, Instant::now());
        let mut looked = Vec::new();
        for _ in 0..calls {
            round.owe(now, 7 * DAY);
            while let Some(folder) = round.due() {
                looked.push(folder);
                round.done();
            }
            now += every;
        }
        looked
    }

    #[test]
    fn every_folder_is_looked_at_in_a_tenth_of_the_retention_and_no_sooner() {
        let minute = Duration::from_secs(60);
        let looked = looked_at(minute, 7 * 24 * 60 / 10);
        assert!((256..256 + 64 + 5).contains(&looked.len()), "{}", looked.len());
        assert_eq!(looked[..8], [250, 251, 252, 253, 254, 255, 0, 1]);
        let mut all = looked;
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 256);
    }

    #[test]
    fn who_seldom_comes_catches_up() {
        assert_eq!(looked_at(DAY, 4).len(), 4 * 64);
        assert_eq!(looked_at(Duration::from_secs(1), 3).len(), 64, "nothing more is due so soon");
    }
}
