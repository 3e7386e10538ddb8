//! The process: lists, has the cluster assessed, publishes, announces. It decides nothing itself.

use super::assessment::{Assessment, AssessmentConfig, Facts, LeaderFacts, Listed, Listing};
use super::document::{
    HealthDocument, HealthStatus, Reason, ReasonCode, Transition, health_name, transitions,
};
use super::probe::{Probe, run_all};
use super::workers::workers_health;
use super::{Channels, ClusterHealth, HealthEvent, HealthOptions};
use crate::schedules::RunnerView;
use crate::terms;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tenure::clock::Clock;
use tenure::clock::millis;
use tenure::document::{Presence, PresenceEntry};
use tenure::event::PluginEvent;
use tenure::id::ScheduleId;
use tenure::plugin::NodeHandle;
use tenure::process::ProcessContext;
use tenure::{FencedDocument, LeadershipEnded, NodeId};
use tokio::sync::watch;

/// Most presences looked at.
const LIST_MAX: usize = 10_000;

/// The longest pause before a document that could not be read or written is tried again.
const RETRY_MAX_MS: u64 = 5000;

/// One term of the process.
pub(super) struct HealthProcess {
    node: NodeHandle,
    clock: Arc<dyn Clock>,
    context: ProcessContext,
    config: AssessmentConfig,
    options: HealthOptions,
    probes: Vec<Arc<dyn Probe>>,
    schedules: Option<watch::Receiver<RunnerView>>,
    channels: Channels,
    /// What was announced: what the last leader published, then what this one did.
    told: Option<HealthDocument>,
    published_ms: u64,
    incarnation: Option<String>,
    /// Nodes that lost the seat by falling silent before this leader took it.
    deposed: Option<Vec<PresenceEntry>>,
    said: Option<String>,
}

impl HealthProcess {
    pub(super) fn new(health: &ClusterHealth, context: ProcessContext) -> HealthProcess {
        let ClusterHealth { node, options, probes, schedules, channels } = health.clone();
        HealthProcess {
            clock: node.clock(),
            config: options.assessment(node.settings()),
            node,
            options,
            probes,
            schedules,
            channels,
            context,
            told: None,
            published_ms: 0,
            incarnation: None,
            deposed: None,
            said: None,
        }
    }

    /// Runs until it is told to stop.
    pub(super) async fn run(mut self) -> Result<(), LeadershipEnded> {
        let (stop, channels) = (self.context.cancellation(), self.channels.clone());
        let (node, context) = (self.node.clone(), self.context.clone());
        // Beside the process, which must not wait for it: it outlives the term, and holds no guard.
        tokio::spawn(terms::last_words(node.clone(), node.events(), context.epoch()));
        let kept = async {
            terms::keep(&node, &context).await;
            std::future::pending().await
        };
        let ended = tokio::select! {
            biased;
            () = stop.cancelled() => Ok(()),
            ended = self.work() => ended,
            ended = kept => ended,
        };
        channels.published.send_replace(None);
        ended
    }

    async fn work(&mut self) -> Result<(), LeadershipEnded> {
        let interval_ms = millis(self.options.interval).clamp(1, u64::MAX / 4);
        let retry_ms = interval_ms.min(RETRY_MAX_MS);
        // Judging without knowing what was already announced would announce it twice.
        let mut document = self.open(Duration::from_millis(retry_ms)).await?;
        self.told = document.get().cloned();
        let (epoch, me) = (self.context.epoch(), self.node.id().as_str());
        let mut assessment = Assessment::new(self.config.clone(), epoch, me, self.told.as_ref());
        let mut due_ms = self.clock.now_ms();
        loop {
            self.context.check()?;
            let late_ms = self.clock.now_ms().saturating_sub(due_ms);
            self.look(&mut assessment, late_ms).await;
            let leader_facts = self.leader_facts().await;
            let news = assessment.assess(self.clock.now_ms(), leader_facts);
            let published = self.publish(&mut document, news).await?;
            let now_ms = self.clock.now_ms();
            // A look that took longer than the interval shifts the next one.
            due_ms = if published { (due_ms + interval_ms).max(now_ms) } else { now_ms + retry_ms };
            tokio::time::sleep(Duration::from_millis(due_ms - now_ms)).await;
        }
    }

    /// Takes `health.json` over. It is derived, so one that cannot be read is replaced.
    async fn open(&self, pause: Duration) -> Result<FencedDocument<HealthDocument>, LeadershipEnded> {
        let (documents, name) = (self.node.documents(), health_name());
        loop {
            match FencedDocument::open_or_replace(&documents, &name, self.context.guard()).await {
                Ok(document) => return Ok(document),
                Err(error) if error.is_fenced() => return Err(self.ended()),
                // Said by the documents; a newer version's is left alone.
                Err(_) => tokio::time::sleep(pause).await,
            }
        }
    }

    fn ended(&self) -> LeadershipEnded {
        LeadershipEnded { epoch: self.context.epoch() }
    }

    fn say(&mut self, sentence: String) {
        if self.said.as_ref() != Some(&sentence) {
            tracing::warn!(target: "tenure", namespace = self.node.namespace().as_str(), epoch = self.context.epoch(), "{sentence}");
            self.said = Some(sentence);
        }
    }

    // ---- looking ----

    async fn look(&mut self, assessment: &mut Assessment, late_ms: u64) {
        if self.deposed.is_none() {
            self.deposed = self.node.documents().deposed().await.ok();
        }
        let sent_ms = self.clock.now_ms();
        let list = match self.node.documents().presences(LIST_MAX).await {
            Ok(found) => {
                let present = self.node.lanes().bulk.now();
                let listed = |presence: PresenceEntry| Listed {
                    age_ms: present.map(|present| present.0.saturating_sub(presence.modified.0)),
                    deposed: self
                        .deposed
                        .iter()
                        .flatten()
                        .any(|gone| gone.node == presence.node && presence.modified <= gone.modified),
                    node: presence.node.to_string(),
                    modified: presence.modified.0,
                };
                Some((found.entries.into_iter().map(listed).collect(), found.complete))
            }
            Err(trouble) => {
                self.say(format!("health: the nodes cannot be listed: {trouble}"));
                None
            }
        };
        let now_ms = self.clock.now_ms();
        for name in assessment.take_list(Listing { sent_ms, now_ms, late_ms, list }) {
            let Ok(node) = NodeId::new(&name) else { continue };
            // One at a time: there are few, and there is no hurry.
            let found = self.node.documents().presence(&node).await;
            let facts = found.ok().flatten().map(|presence| facts(&presence));
            assessment.read(self.clock.now_ms(), &name, facts);
        }
        if self.incarnation.is_none()
            && let Ok(Some(mine)) = self.node.documents().presence(self.node.id()).await
        {
            self.incarnation = Some(mine.incarnation);
        }
    }

    async fn leader_facts(&self) -> LeaderFacts {
        let metrics = self.node.metrics();
        let facts = Facts {
            incarnation: self.incarnation.clone().unwrap_or_default(),
            version: concat!("tenure ", env!("CARGO_PKG_VERSION")).to_owned(),
            contention: metrics.contention_events,
            fallback: metrics.plugins_in_fallback,
            conflict: self.node.has_conflict(),
        };
        let probes = run_all(&self.probes, self.options.probe_timeout).await;
        let before = self.told.as_ref().map(|document| &document.workers);
        let workers = workers_health(&self.node.workers().borrow(), &self.node.seen_workers(), before);
        let schedules = self.schedules.as_ref().map_or(Vec::new(), |view| schedule_reasons(&view.borrow()));
        LeaderFacts { facts, p99_ms: metrics.heartbeat_latency_p99, workers, probes, schedules }
    }

    // ---- publishing ----

    /// Publishes the document if it is worth it, and announces what changed. Returns whether there is nothing left to do.
    async fn publish(
        &mut self,
        document: &mut FencedDocument<HealthDocument>,
        news: HealthDocument,
    ) -> Result<bool, LeadershipEnded> {
        // Half an interval early counts as on time: the next look would be half an interval late.
        let half_ms = u64::try_from(self.options.interval.as_millis() / 2).unwrap_or(0);
        let age_ms = self.clock.now_ms().saturating_sub(self.published_ms) + half_ms;
        let is_fresh = age_ms < self.config.refresh_ms;
        if is_fresh && self.told.as_ref().is_some_and(|told| news.differs_only_in_details(told)) {
            return Ok(true);
        }
        match document.put(self.context.guard(), news.clone()).await {
            Ok(()) => {
                self.said = None;
                self.tell(news);
                Ok(true)
            }
            Err(error) if error.is_fenced() => Err(self.ended()),
            Err(_) => {
                // It may stand there all the same, so the next one is written whatever it says.
                self.published_ms = 0;
                Ok(false)
            }
        }
    }

    /// The document is published, so its changes may be announced.
    fn tell(&mut self, document: HealthDocument) {
        let epoch = self.context.epoch();
        for transition in transitions(self.told.as_ref(), &document) {
            self.node.emit(epoch, plugin_event(&transition));
            let namespace = Arc::from(self.node.namespace().as_str());
            // An error means that nobody listens, so nobody misses it.
            let _ = self.channels.events.send(HealthEvent { namespace, epoch, transition });
        }
        self.published_ms = self.clock.now_ms();
        self.channels.published.send_replace(Some(document.clone()));
        self.told = Some(document);
    }
}

/// Most schedules named, for each thing that can be wrong; the others are counted.
const SCHEDULES_NAMED: usize = 8;

fn schedule_reasons(view: &RunnerView) -> Vec<Reason> {
    let of = |code: ReasonCode, all: &BTreeMap<ScheduleId, String>| {
        let named = all.iter().take(SCHEDULES_NAMED);
        let mut found: Vec<Reason> =
            named.map(|(id, detail)| Reason::new(code, Some(id.as_str()), detail)).collect();
        if all.len() > SCHEDULES_NAMED {
            found.push(Reason::new(code, None, &format!("{} more", all.len() - SCHEDULES_NAMED)));
        }
        found
    };
    [of(ReasonCode::ScheduleWaiting, &view.waiting), of(ReasonCode::ScheduleFailing, &view.failing)].concat()
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
fn plugin_event(transition: &Transition) -> PluginEvent {
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
    PluginEvent { name, sentence, alarming, fields }
}
