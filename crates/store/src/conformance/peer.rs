//! The same races between two machines, which find each other through the store.

use super::bench::{Bench, Stop};
use super::races::increment;
use bytes::Bytes;
use futures::future::join_all;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Objects that both try to create.
const CREATES: usize = 30;

/// Writers of each machine that increment the counter, and how often each does.
const WRITERS: usize = 2;
const INCREMENTS: usize = 10;

const LOOK: Duration = Duration::from_millis(50);

pub(super) struct Peers<'a> {
    pub(super) bench: Bench<'a>,
    /// This machine.
    pub(super) me: &'a str,
    /// How long to wait for the other one, each time.
    pub(super) patience: Duration,
}

impl Peers<'_> {
    pub(super) async fn race(&self) -> Result<(), Stop> {
        let other = self.meet().await?;
        for round in 0..CREATES {
            self.create(round, &other).await?;
        }
        self.count(&other).await?;
        // Whoever comes last in the alphabet cleans up, once nobody looks any more.
        self.tell("end", "").await?;
        if *self.me > *other {
            self.told("end", &other).await?;
            self.bench.clean_up().await;
        }
        Ok(())
    }

    async fn tell(&self, what: &str, text: &str) -> Result<(), Stop> {
        let key = self.bench.key(&format!("{what}/{}", self.me));
        self.bench.create(self.bench.first(), &key, &Bytes::copy_from_slice(text.as_bytes())).await.map(drop)
    }

    /// What the other one has told, once it has.
    async fn told(&self, what: &str, other: &str) -> Result<Bytes, Stop> {
        let (key, end) = (self.bench.key(&format!("{what}/{other}")), Instant::now() + self.patience);
        loop {
            if let Some(object) = self.bench.read(self.bench.first(), &key).await? {
                return Ok(object.body);
            }
            if Instant::now() > end {
                return Err(Stop::Skip("the other machine fell silent".to_owned()));
            }
            sleep(LOOK).await;
        }
    }

    async fn meet(&self) -> Result<String, Stop> {
        self.tell("here", "").await?;
        let (root, end) = (self.bench.key("here/"), Instant::now() + self.patience);
        loop {
            let (entries, _) = self.bench.list(self.bench.first(), &root, 10).await?;
            let names: Vec<&str> = entries.iter().filter_map(|entry| entry.key.strip_prefix(&root)).collect();
            if names.len() > 2 {
                return Err(Stop::Skip("this name was used before; choose another".to_owned()));
            }
            if let Some(other) = names.iter().find(|name| **name != self.me) {
                return Ok((*other).to_owned());
            }
            if Instant::now() > end {
                // Nothing of it must be found by a later run under this name.
                self.bench.clean_up().await;
                return Err(Stop::Skip(format!(
                    "no other machine came within {} s",
                    self.patience.as_secs()
                )));
            }
            sleep(LOOK).await;
        }
    }

    /// Both try to create one object, and tell each other who did.
    async fn create(&self, round: usize, other: &str) -> Result<(), Stop> {
        let key = self.bench.key(&format!("create/{round}"));
        let mine = self.bench.body(self.me);
        let won = self.bench.put(self.bench.first(), &key, &mine, &crate::Condition::Absent).await?.is_some();
        let (won_text, what) = (if won { "won" } else { "lost" }, format!("created-{round}"));
        self.tell(&what, won_text).await?;
        match (won, &*self.told(&what, other).await?) {
            (true, b"lost") | (false, b"won") => Ok(()),
            (true, _) => {
                Stop::fail(format!("round {round}: both machines were told that they had created one object"))
            }
            (false, _) => {
                Stop::fail(format!("round {round}: neither of two machines could create an object"))
            }
        }
    }

    async fn count(&self, other: &str) -> Result<(), Stop> {
        let (bench, key) = (&self.bench, self.bench.key("counter"));
        // Whoever is first; that is no race here.
        bench.put(bench.first(), &key, &Bytes::from_static(b"start"), &crate::Condition::Absent).await?;
        let names: Vec<String> = (0..WRITERS).map(|writer| format!("{}-{writer}", self.me)).collect();
        let writers = names.iter().map(|name| increment(bench, bench.first(), &key, name, INCREMENTS));
        for result in join_all(writers).await {
            result?;
        }
        self.tell("counted", "").await?;
        self.told("counted", other).await?;
        let Some(object) = bench.read(bench.first(), &key).await? else {
            return Stop::fail("the counter is gone");
        };
        let text = String::from_utf8_lossy(&object.body).into_owned();
        let (all, wanted) = (text.lines().skip(1).collect::<Vec<_>>(), 2 * WRITERS * INCREMENTS);
        let distinct: BTreeSet<&&str> = all.iter().collect();
        if all.len() != wanted || distinct.len() != wanted {
            return Stop::fail(format!(
                "two machines were confirmed {wanted} updates, and {} are there, {} of them different",
                all.len(),
                distinct.len()
            ));
        }
        Ok(())
    }
}
