//! The process: lists, has the cluster assessed, publishes, announces. It decides nothing itself.

use super::assessment::{Assessment, AssessmentConfig, Facts, LeaderFacts, Listed, Listing};
use super::document::{HealthDocument, HealthStatus, Transition, transitions};
use super::probe::{Probe, run_all};
use super::workers::workers_health;
use super::{Channels, HealthEvent, HealthOptions};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::Duration;
use tenure::clock::Clock;
use tenure::document::{Annex, Document, News, Presence, PresenceEntry};
use tenure::process::ProcessContext;
use tenure::store::{Condition, Read, Version, Write};
use tenure::{LeadershipEnded, NodeId};

/// Most presences looked at.
const LIST_MAX: usize = 10_000;

/// Attempts to publish one document before moving on to the next look.
const PUBLISH_TRIES: u32 = 3;

/// One term of the process.
pub(super) struct HealthProcess {
    annex: Annex,
    document: Option<Document>,
    clock: Arc<dyn Clock>,
    context: ProcessContext,
    config: AssessmentConfig,
    options: HealthOptions,
    probes: Vec<Arc<dyn Probe>>,
    channels: Channels,
    /// Identifies the writes of this run of the process.
    writer: String,
    writes: u64,
    assessment: Option<Assessment>,
    /// The last known version of `health.json`; `None` if it does not exist.
    version: Option<Version>,
    /// The last known content of `health.json`.
    published: Option<HealthDocument>,
    published_ms: u64,
    /// `health.json` must be read before anything else.
    unsettled: bool,
    /// A later version wrote `health.json`; leave it alone.
    blocked: bool,
    extra: Map<String, Value>,
    incarnation: Option<String>,
    /// Nodes that lost the seat by falling silent before this leader took it.
    deposed: Vec<PresenceEntry>,
    asked: bool,
    said: Option<String>,
}

impl HealthProcess {
    pub(super) fn new(
        annex: &Annex,
        options: &HealthOptions,
        probes: &[Arc<dyn Probe>],
        channels: &Channels,
        context: ProcessContext,
    ) -> HealthProcess {
        let clock = annex.clock();
        // An epoch has one holder, and a holder runs one instance of this at a time.
        let writer = format!("{:x}-{:x}-{}", context.epoch(), clock.now_ms(), context.attempt());
        HealthProcess {
            document: annex.document("health").ok(),
            annex: annex.clone(),
            clock,
            config: options.assessment(annex.settings()),
            options: options.clone(),
            probes: probes.to_vec(),
            channels: channels.clone(),
            context,
            writer,
            writes: 0,
            assessment: None,
            version: None,
            published: None,
            published_ms: 0,
            unsettled: true,
            blocked: false,
            extra: Map::new(),
            incarnation: None,
            deposed: Vec::new(),
            asked: false,
            said: None,
        }
    }

    /// Runs until it is told to stop.
    pub(super) async fn run(mut self) -> Result<(), LeadershipEnded> {
        let (stop, channels) = (self.context.cancellation(), self.channels.clone());
        let ended = tokio::select! {
            biased;
            () = stop.cancelled() => Ok(()),
            ended = self.keep() => ended,
        };
        channels.published.send_replace(None);
        ended
    }

    async fn keep(&mut self) -> Result<(), LeadershipEnded> {
        let interval_ms = u64::try_from(self.options.interval.as_millis()).unwrap_or(u64::MAX / 4).max(1);
        let mut due_ms = self.clock.now_ms();
        loop {
            self.context.check()?;
            // Judging without knowing what was already announced would announce it twice.
            if self.unsettled {
                self.settle().await;
            }
            if self.assessment.is_some() && !self.blocked {
                let late_ms = self.clock.now_ms().saturating_sub(due_ms);
                self.look(late_ms).await;
                self.publish().await?;
            }
            let now_ms = self.clock.now_ms();
            // After an unanswered request, retry soon. A look that took longer than the interval shifts the next one.
            due_ms = if self.unsettled {
                now_ms + interval_ms.min(5000)
            } else {
                (due_ms + interval_ms).max(now_ms)
            };
            tokio::time::sleep(Duration::from_millis(due_ms - now_ms)).await;
        }
    }

    fn say(&mut self, sentence: String) {
        if self.said.as_ref() != Some(&sentence) {
            tracing::warn!(target: "tenure", namespace = self.annex.namespace(), epoch = self.context.epoch(), "{sentence}");
            self.said = Some(sentence);
        }
    }

    // ---- looking ----

    async fn look(&mut self, late_ms: u64) {
        if !self.asked
            && let Ok(deposed) = self.annex.deposed().await
        {
            (self.deposed, self.asked) = (deposed, true);
        }
        let sent_ms = self.clock.now_ms();
        let list = match self.annex.presences(LIST_MAX).await {
            Ok(found) => {
                let present = self.annex.lanes().bulk.now();
                let listed = |mark: PresenceEntry| Listed {
                    age_ms: present.map(|present| present.0.saturating_sub(mark.modified.0)),
                    deposed: self
                        .deposed
                        .iter()
                        .any(|gone| gone.node == mark.node && mark.modified <= gone.modified),
                    node: mark.node.to_string(),
                    mark: mark.modified.0,
                };
                Some((found.entries.into_iter().map(listed).collect(), found.complete))
            }
            Err(trouble) => {
                self.say(format!("health: the nodes cannot be listed: {trouble}"));
                None
            }
        };
        let now_ms = self.clock.now_ms();
        let Some(assessment) = &mut self.assessment else { return };
        for name in assessment.take_list(Listing { sent_ms, now_ms, late_ms, list }) {
            let Ok(node) = NodeId::new(&name) else { continue };
            // One at a time: there are few, and there is no hurry.
            let found = self.annex.presence(&node).await;
            let facts = found.ok().flatten().map(|presence| facts(&presence));
            assessment.read(self.clock.now_ms(), &name, facts);
        }
        if self.incarnation.is_none()
            && let Ok(Some(mine)) = self.annex.presence(self.annex.node()).await
        {
            self.incarnation = Some(mine.incarnation);
        }
    }

    async fn leader_facts(&self) -> LeaderFacts {
        let metrics = self.annex.metrics();
        let facts = Facts {
            incarnation: self.incarnation.clone().unwrap_or_default(),
            version: concat!("tenure ", env!("CARGO_PKG_VERSION")).to_owned(),
            contention: metrics.contention_events,
            fallback: metrics.plugins_in_fallback,
            conflict: self.annex.node_conflict(),
        };
        let probes = run_all(&self.probes, self.options.probe_timeout).await;
        let before = self.published.as_ref().map(|document| &document.workers);
        let workers = workers_health(&self.annex.workers().borrow(), &self.annex.worker_lives(), before);
        LeaderFacts { facts, p99_ms: metrics.heartbeat_latency_p99, workers, probes }
    }

    // ---- publishing ----

    /// Finds out what `health.json` holds.
    async fn settle(&mut self) {
        let Some(document) = self.document.clone() else { return };
        match document.read(None).await {
            Read::Found(object) => match HealthDocument::parse(&object.body) {
                Ok(found) => self.found(object.version, found),
                Err(unreadable) if unreadable.newer => {
                    (self.blocked, self.assessment) = (true, None);
                    self.say(format!("health.json is left alone: {}", unreadable.detail));
                }
                // The document is derived, and nobody else may write it.
                Err(unreadable) => {
                    self.say(format!("health.json is replaced: {}", unreadable.detail));
                    self.inherit(Some(object.version), None);
                }
            },
            // This leader's first write has not landed, or somebody removed the object: keep what is known.
            Read::Absent | Read::Unchanged if self.assessment.is_some() => {
                (self.version, self.unsettled) = (None, false);
            }
            Read::Absent | Read::Unchanged => self.inherit(None, None),
            Read::Unavailable(trouble) | Read::Denied(trouble) => {
                self.say(format!("health.json cannot be read: {trouble}"));
            }
        }
    }

    fn found(&mut self, version: Version, found: HealthDocument) {
        if found.nonce.strip_prefix(&self.writer).is_some_and(|rest| rest.starts_with('.')) {
            // This node's own write, whose answer was lost.
            (self.version, self.unsettled) = (Some(version), false);
            self.tell(found);
        } else if found.epoch > self.context.epoch() {
            // Written by a newer leader: this node is about to learn that it no longer leads.
        } else if self.published.as_ref().is_some_and(|known| known.nonce == found.nonce)
            && self.assessment.is_some()
        {
            (self.version, self.unsettled) = (Some(version), false);
        } else {
            self.inherit(Some(version), Some(found));
        }
    }

    /// Continues from what a former leader published. This leader's own findings are judged again, because what was announced may
    /// differ.
    fn inherit(&mut self, version: Option<Version>, found: Option<HealthDocument>) {
        let assessment = Assessment::new(
            self.config.clone(),
            self.context.epoch(),
            self.annex.node().as_str(),
            found.as_ref(),
        );
        self.extra = found.as_ref().map(|found| found.extra.clone()).unwrap_or_default();
        (self.assessment, self.version, self.published) = (Some(assessment), version, found);
        (self.unsettled, self.blocked) = (false, false);
    }

    async fn publish(&mut self) -> Result<(), LeadershipEnded> {
        let leader_facts = self.leader_facts().await;
        for _ in 0..PUBLISH_TRIES {
            if self.unsettled {
                self.settle().await;
            }
            let now_ms = self.clock.now_ms();
            let (Some(assessment), Some(document), false) =
                (&mut self.assessment, &self.document, self.unsettled || self.blocked)
            else {
                return Ok(());
            };
            let mut news = assessment.assess(now_ms, leader_facts.clone());
            // Half an interval early counts as on time: the next look would be half an interval late.
            let half_ms = u64::try_from(self.options.interval.as_millis() / 2).unwrap_or(0);
            let fresh = now_ms.saturating_sub(self.published_ms) + half_ms < self.config.refresh_ms;
            if fresh && self.published.as_ref().is_some_and(|known| news.is_old_news(known)) {
                return Ok(());
            }
            self.writes += 1;
            news.nonce = format!("{}.{}", self.writer, self.writes);
            news.extra.clone_from(&self.extra);
            let condition = self.version.clone().map_or(Condition::Absent, Condition::Matches);
            match document.write(self.context.guard(), news.to_bytes(), condition).await? {
                Write::Won(version) => {
                    self.version = Some(version);
                    self.said = None;
                    self.tell(news);
                    return Ok(());
                }
                // A refusal may be the echo of this leader's own write, and a lost answer is not a lost race: the read-back
                // decides.
                Write::Lost | Write::Unknown(_) => self.unsettled = true,
                Write::Unavailable(trouble) | Write::Denied(trouble) => {
                    self.say(format!("health.json cannot be written: {trouble}"));
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// The document is published, so its changes may be announced.
    fn tell(&mut self, document: HealthDocument) {
        let epoch = self.context.epoch();
        for transition in transitions(self.published.as_ref(), &document) {
            self.annex.tell(epoch, news(&transition));
            let namespace = Arc::from(self.annex.namespace());
            // An error means that nobody listens, so nobody misses it.
            let _ = self.channels.events.send(HealthEvent { namespace, epoch, transition });
        }
        self.published_ms = self.clock.now_ms();
        self.channels.published.send_replace(Some(document.clone()));
        self.published = Some(document);
    }
}

fn facts(presence: &Presence) -> Facts {
    let metrics = presence.metrics.as_ref();
    Facts {
        incarnation: presence.incarnation.clone(),
        version: presence.software.clone(),
        contention: metrics.map_or(0, |metrics| metrics.contention_events),
        fallback: metrics.map_or(0, |metrics| metrics.plugins_in_fallback),
        conflict: presence.conflict,
    }
}

/// The event. `node` is the announcing node, so `subject` names the node it is about.
fn news(transition: &Transition) -> News {
    let (name, alarming, sentence, fields) = match transition {
        Transition::NodeUp { node } => {
            ("node_up", false, format!("node {node} is up"), json!({"subject": node}))
        }
        Transition::NodeDown { node } => {
            ("node_down", true, format!("node {node} is down"), json!({"subject": node}))
        }
        Transition::HealthChanged { from, to, reasons } => {
            let why: Vec<String> = reasons.iter().map(ToString::to_string).collect();
            let why = if why.is_empty() { String::new() } else { format!(": {}", why.join("; ")) };
            let fields = json!({"from": from.as_str(), "to": to.as_str(), "reasons": reasons});
            let worse = matches!(to, HealthStatus::Degraded | HealthStatus::Critical);
            (
                "health_changed",
                worse,
                format!("the cluster is {} (before: {}){why}", to.as_str(), from.as_str()),
                fields,
            )
        }
    };
    News { name, sentence, alarming, fields }
}
