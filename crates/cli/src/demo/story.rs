//! The story: what is done to the cluster, what it makes of it, and whether it kept its promise.

use super::cluster::{Cluster, Said};
use crate::exit::Failure;
use crate::out::say;
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// No step takes longer; the fast preset needs a fraction of it.
const STEP_MAX: Duration = Duration::from_secs(15);

/// How long the viewer gets to see a leader lead.
const BREATHER: Duration = Duration::from_millis(1500);

/// Long enough for the fast preset's lease to be long over.
const PAUSE: Duration = Duration::from_secs(4);

pub(super) struct Story<'a> {
    cluster: &'a mut Cluster,
    began: Instant,
    leaderships: Leaderships,
}

/// Who may act until when, by the nodes' own words; the one thing that must never overlap.
#[derive(Default)]
struct Leaderships {
    /// Node → (epoch, from, until), the last of each, on the machine's boot-time clock.
    terms: Vec<Term>,
    open: BTreeMap<String, usize>,
}

struct Term {
    node: String,
    epoch: u64,
    from_ms: u64,
    until_ms: u64,
}

impl Leaderships {
    fn note(&mut self, said: &Said) {
        let (epoch, deadline_ms, now_ms) =
            (said.number("epoch"), said.number("deadlineBootMs"), said.number("bootMs"));
        match said.name() {
            "became_leader" => {
                self.open.insert(said.node.clone(), self.terms.len());
                self.terms.push(Term {
                    node: said.node.clone(),
                    epoch,
                    from_ms: now_ms,
                    until_ms: deadline_ms,
                });
            }
            "lease_renewed" => {
                if let Some(term) = self.open.get(&said.node).and_then(|index| self.terms.get_mut(*index)) {
                    term.until_ms = term.until_ms.max(deadline_ms);
                }
            }
            "lost_leadership" => {
                if let Some(term) = self.open.remove(&said.node).and_then(|index| self.terms.get_mut(index)) {
                    // A paused node says so late, and a graceful one after its work has stopped.
                    term.until_ms = term.until_ms.min(said.number("actedUntilBootMs"));
                }
            }
            _ => {}
        }
    }

    /// The last to become leader, unless it has said that it lost the lead.
    fn leader(&self) -> Option<&str> {
        let last = self.terms.len().checked_sub(1)?;
        let node = &self.terms[last].node;
        (self.open.get(node) == Some(&last)).then_some(node)
    }

    fn overlaps(&self) -> Option<String> {
        for (index, a) in self.terms.iter().enumerate() {
            for b in &self.terms[index + 1..] {
                if a.node != b.node && a.from_ms < b.until_ms && b.from_ms < a.until_ms {
                    return Some(format!(
                        "{} (epoch {}) and {} (epoch {}) led at once",
                        a.node, a.epoch, b.node, b.epoch
                    ));
                }
                if a.epoch == b.epoch {
                    return Some(format!("epoch {} was led by {} and by {}", a.epoch, a.node, b.node));
                }
            }
        }
        None
    }
}

impl Story<'_> {
    pub(super) fn new(cluster: &mut Cluster) -> Story<'_> {
        Story { cluster, began: Instant::now(), leaderships: Leaderships::default() }
    }

    pub(super) async fn tell(mut self) -> Result<(), Failure> {
        say!(
            "Three nodes, one store, nothing else. Preset `fast`: a leader may act for one second after a renewal."
        );
        say!();
        for node in ["pod-a", "pod-b", "pod-c"] {
            self.cluster.start(node)?;
        }
        self.say("", "pod-a, pod-b and pod-c start at the same moment");
        let first = self.leader(&[]).await?;
        self.say(&first, "leads: it is the first by name");
        self.watch(BREATHER).await;
        let first = self.present(first).await?;

        self.cluster.signal(&first, Signal::KILL)?;
        let struck = Instant::now();
        self.say(&first, "is killed (kill -9), without a chance to clean up");
        let second = self.leader(&[&first]).await?;
        self.say(&second, &format!("leads, {} after the crash", seconds(struck.elapsed())));
        self.cluster.gone(&first).await?;
        self.cluster.start(&first)?;
        self.say(&first, "is started again");
        self.until(&first, "joined").await?;
        self.say(&first, &format!("stands by: {second} stays leader, though {first} comes first by name"));
        self.watch(BREATHER).await;
        let second = self.present(second).await?;

        self.cluster.freeze(&second).await?;
        let struck = Instant::now();
        self.say(
            &second,
            &format!(
                "is frozen (kill -STOP) for {}: it still thinks it leads, but cannot act",
                seconds(PAUSE)
            ),
        );
        let third = self.leader(&[&second]).await?;
        self.say(
            &third,
            &format!(
                "leads, {} after the freeze: by then the lease of {second} was over",
                seconds(struck.elapsed())
            ),
        );
        self.watch(PAUSE.saturating_sub(struck.elapsed())).await;
        self.cluster.signal(&second, Signal::CONT)?;
        self.say(&second, "wakes up");
        self.until(&second, "lost_leadership").await?;
        self.say(&second, "first notices that its lease is over, and stands by");
        self.watch(BREATHER).await;
        let third = self.present(third).await?;

        self.cluster.signal(&third, Signal::TERM)?;
        let struck = Instant::now();
        self.say(&third, "is told to stop (SIGTERM): it stops its work, then vacates the seat");
        let last = self.leader(&[&third]).await?;
        self.say(
            &last,
            &format!("leads, {} after the signal: a vacant seat is free at once", seconds(struck.elapsed())),
        );
        self.cluster.gone(&third).await?;
        self.watch(BREATHER).await;
        self.conclude()
    }

    fn conclude(self) -> Result<(), Failure> {
        say!();
        say!("Epoch  leader  led for   as reported by the nodes themselves");
        for term in &self.leaderships.terms {
            say!(
                "{:>5}  {:<6}  {:>5.1} s",
                term.epoch,
                term.node,
                (term.until_ms - term.from_ms) as f64 / 1000.0
            );
        }
        if let Some(overlap) = self.leaderships.overlaps() {
            return Err(Failure::other(format!("this should never happen: {overlap}")));
        }
        say!();
        say!("One leader per epoch, never two at once: checked against every lease the nodes say they held.");
        say!("Now your turn: `tenure run` in three terminals, then kill one.");
        Ok(())
    }

    fn say(&self, node: &str, sentence: &str) {
        say!("{:>6.1} s  {node:<6} {sentence}", self.began.elapsed().as_secs_f64());
    }

    /// Waits for somebody to lead who is not among those left out.
    async fn leader(&mut self, but: &[&str]) -> Result<String, Failure> {
        self.wait(|said| said.name() == "became_leader" && !but.contains(&said.node.as_str()), "a new leader")
            .await
    }

    /// Who leads now: on a machine that is busy with something else, a lease of one second may end before it is renewed.
    async fn present(&mut self, expected: String) -> Result<String, Failure> {
        let leader = match self.leaderships.leader() {
            Some(leader) => leader.to_owned(),
            None => self.leader(&[]).await?,
        };
        if leader != expected {
            self.say(
                &leader,
                &format!("leads now: {expected} could not renew its lease in time, this machine is busy"),
            );
        }
        Ok(leader)
    }

    async fn until(&mut self, node: &str, event: &str) -> Result<String, Failure> {
        self.wait(|said| said.node == node && said.name() == event, event).await
    }

    async fn wait(&mut self, wanted: impl Fn(&Said) -> bool, what: &str) -> Result<String, Failure> {
        let deadline = tokio::time::Instant::now() + STEP_MAX;
        loop {
            let said = tokio::time::timeout_at(deadline, self.cluster.next()).await;
            let Ok(Some(said)) = said else {
                return Err(Failure::other(format!(
                    "timed out after {} waiting for {what}",
                    seconds(STEP_MAX)
                )));
            };
            self.leaderships.note(&said);
            if wanted(&said) {
                return Ok(said.node);
            }
        }
    }

    /// Lets time pass, listening.
    async fn watch(&mut self, time: Duration) {
        let until = tokio::time::Instant::now() + time;
        while let Ok(Some(said)) = tokio::time::timeout_at(until, self.cluster.next()).await {
            self.leaderships.note(&said);
        }
    }
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}
