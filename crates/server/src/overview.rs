//! One document with everything a page about the cluster shows.

mod parts;

pub use parts::{
    BillView, Contention, Heartbeats, JobsView, RequestsView, SchedulesView, StoreView, WorkersView,
};
use parts::{store, workers};

use crate::cached::Aged;
use crate::headline::{Facts, Headline, LeaderFacts};
use crate::history::SeenTerm;
use crate::problem::Answer;
use crate::state::{Shared, role_name};
use crate::store_reads::{Cluster, JobFacts};
use serde::Serialize;
use std::time::Duration;
use tenure::clock::millis;
use tenure::metrics::ClusterMetrics;
use tenure_plugins::cluster_health::{HealthStatus, HealthView, Reason, ReasonCode};
use utoipa::ToSchema;

/// How long to wait for the store; without an answer, the part is left out or the last one is used.
const PATIENCE: Duration = Duration::from_millis(1500);

/// The cluster at a glance. What this node knows itself is of this moment; `nodes`, `health`, `schedules` and `jobs` are from
/// the store and a few seconds old.
#[derive(Clone, PartialEq, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Overview {
    /// What is wrong, in words, or that nothing is.
    pub headline: Headline,
    /// The namespace.
    pub namespace: String,
    /// The node that answers.
    pub node: String,
    /// Its software.
    pub software: String,
    /// Now, by its wall clock.
    pub time: String,
    /// Its role: `standby`, `candidate`, `leader`, `draining`; none while it starts or if it may not lead.
    pub role: Option<String>,
    /// Whether it may lead.
    pub eligible: bool,
    /// The highest epoch it knows; 0 if there never was a leader.
    pub epoch: u64,
    /// The leader it knows; none if nobody is known to lead.
    pub leader: Option<LeaderView>,
    /// The nodes that made themselves known; none if the store has not said yet.
    pub nodes: Option<Vec<NodeRow>>,
    /// How old `nodes` and `health` are.
    pub nodes_age_ms: Option<u64>,
    /// The workers, as this node knows them.
    pub workers: WorkersView,
    /// How the cluster is doing, as its leader judges; none if that cannot be told.
    pub health: Option<HealthView>,
    /// This node's heartbeats: renewals of a leader, looks of a standby.
    pub heartbeats: Heartbeats,
    /// The store, as this node's heartbeats find it.
    pub store: StoreView,
    /// What this node asked the store, and what that costs.
    pub requests: RequestsView,
    /// What all nodes together ask the store, and what that costs; none if the store has not said yet.
    pub bill: Option<BillView>,
    /// Heartbeats that took too long, and tasks of stale epochs.
    pub contention: Contention,
    /// The schedules; none if the store has not said yet.
    pub schedules: Option<SchedulesView>,
    /// The jobs; none if the store has not said yet.
    pub jobs: Option<JobsView>,
    /// Who led, as this process saw it, the oldest first; at most 100 terms.
    pub history: Vec<SeenTerm>,
    /// The id of the newest event; a stream may begin after it.
    pub last_event_id: Option<String>,
    /// What could not be told, and why.
    pub notes: Vec<String>,
}

/// The leader.
#[derive(Clone, PartialEq, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LeaderView {
    /// Its id.
    pub node: String,
    /// Its epoch.
    pub epoch: u64,
    /// It is the node that answers, and it may act now.
    pub is_this_node: bool,
    /// When it claimed, by its own wall clock.
    pub since: Option<String>,
    /// When the node that answers learned of it.
    pub seen_since: Option<String>,
    /// How long it may act if it does not renew; known of the node that answers only.
    pub lease_remaining_ms: Option<u64>,
    /// Its lease.
    pub lease_hold_ms: u64,
    /// How long ago the node that answers saw it renew last; none if it has not seen it.
    pub silent_ms: Option<u64>,
    /// Renewals since the claim, when the nodes were looked at.
    pub renewals: Option<u64>,
    /// Somebody asked it to step down.
    pub asked_to_step_down: Option<bool>,
}

impl LeaderView {
    /// Whether it may still act, as far as this node can tell: it has not been silent for a whole hold.
    fn may_act(&self) -> bool {
        self.is_this_node || self.silent_ms.is_none_or(|ms| ms <= self.lease_hold_ms)
    }
}

/// A node.
#[derive(Clone, PartialEq, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeRow {
    /// Its id.
    pub node: String,
    /// `leader`, `standby` or `gone`.
    pub role: String,
    /// How it is doing, by the leader's judgement.
    pub state: Option<String>,
    /// Which life of it.
    pub incarnation: Option<String>,
    /// Its software.
    pub version: Option<String>,
    /// How long ago it was last heard of, by the store's clock.
    pub last_seen_ms_ago: u64,
    /// Half of its newest hundred heartbeats took no longer, when it said so last; none if it has said nothing yet.
    pub heartbeat_p50_ms: Option<u64>,
    /// 99 % of them took no longer.
    pub heartbeat_p99_ms: Option<u64>,
    /// Dollars for 30 days at the rates of its requests.
    pub cost_per_month: Option<f64>,
}

/// What comes from the store may have this age.
pub(crate) async fn overview(state: &Shared, most: Duration) -> Overview {
    let (mut notes, reads) = (Vec::new(), &state.store_reads);
    let (cluster, schedules, jobs, figures) = futures::join!(
        tokio::time::timeout(PATIENCE, reads.cluster(most)),
        tokio::time::timeout(PATIENCE, reads.schedules(most)),
        tokio::time::timeout(PATIENCE, reads.jobs(most)),
        tokio::time::timeout(PATIENCE, reads.figures(most)),
    );
    let cluster = newest("nodes", cluster, reads.last_cluster(), &mut notes);
    let schedules = newest("schedules", schedules, reads.last_schedules(), &mut notes);
    let jobs = newest("jobs", jobs, reads.last_jobs(), &mut notes);
    let figures = newest("bill", figures, reads.last_figures(), &mut notes);
    let health = cluster.as_ref().and_then(|cluster| match &cluster.value.health {
        Ok(health) => Some(health.clone()),
        Err(problem) => {
            notes.push(format!("health: {}", problem.detail));
            None
        }
    });
    let (metrics, settings) = (state.node.metrics(), state.node.settings());
    let history = state.event_buffer.history();
    let leader = leader(state, cluster.as_ref());
    let health = match leader.as_ref().is_some_and(LeaderView::may_act) || metrics.epoch == 0 {
        true => health,
        false => health.map(without_leader),
    };
    let known = metrics.note.is_none();
    Overview {
        headline: headline(state, leader.as_ref(), health.as_ref(), jobs.as_ref()),
        namespace: metrics.namespace.clone(),
        node: metrics.node.clone(),
        software: format!("tenure {}", env!("CARGO_PKG_VERSION")),
        time: format!("{:.3}", jiff::Timestamp::now()),
        role: metrics.role.clone(),
        eligible: settings.eligible,
        epoch: metrics.epoch,
        leader,
        nodes: cluster
            .as_ref()
            .map(|cluster| nodes(&cluster.value, figures.as_ref().map(|found| &*found.value))),
        nodes_age_ms: cluster.as_ref().map(|cluster| millis(cluster.age)),
        workers: workers(state),
        health,
        heartbeats: Heartbeats {
            interval_ms: millis(settings.heartbeat_interval),
            count: metrics.heartbeats,
            p50_ms: known.then_some(metrics.heartbeat_latency_p50),
            p99_ms: known.then_some(metrics.heartbeat_latency_p99),
            samples_ms: state.node.heartbeats().into_iter().map(millis).collect(),
        },
        store: store(state, history.store_trouble),
        bill: figures.as_ref().map(BillView::new),
        requests: RequestsView {
            lease: metrics.requests.lease,
            bulk: metrics.requests.bulk,
            per_second: metrics.requests_per_second,
            writes_per_second: metrics.writes_per_second,
            reads_per_second: metrics.reads_per_second,
            cost_per_month: metrics.cost_per_month,
            measured_ms: metrics.measured_ms,
        },
        contention: Contention {
            enabled: settings.contention_detection_enabled,
            threshold_ms: millis(settings.heartbeat_interval) * settings.contention_threshold_permille / 1000,
            events: metrics.contention_events,
            epoch_drift_events: metrics.epoch_drift_events,
        },
        schedules: schedules.map(|found| SchedulesView {
            total: found.value.facts.total as u64,
            enabled: found.value.facts.enabled as u64,
            refused: found.value.facts.refused as u64,
            failing: found.value.facts.failing as u64,
            next: found.value.facts.next_ms,
            age_ms: millis(found.age),
        }),
        jobs: jobs.as_ref().map(JobsView::new),
        history: history.terms.into(),
        last_event_id: state.event_buffer.newest_id(),
        notes,
    }
}

fn headline(
    state: &Shared,
    leader: Option<&LeaderView>,
    health: Option<&HealthView>,
    jobs: Option<&Aged<JobFacts>>,
) -> Headline {
    let (epoch, store_trouble) = {
        let known = state.leadership.borrow();
        (known.epoch, known.store_trouble)
    };
    Headline::of(&Facts {
        node: state.node.id().as_str(),
        eligible: state.node.settings().eligible,
        epoch,
        leader: leader.map(|leader| LeaderFacts {
            node: &leader.node,
            is_this_node: leader.is_this_node,
            hold_ms: leader.lease_hold_ms,
            remaining_ms: leader.lease_remaining_ms,
            asked_to_step_down: leader.asked_to_step_down == Some(true),
        }),
        unchanged_ms: state.node.leader_silent().map(millis),
        claims_in_ms: state.node.claims_in().map(millis),
        store_trouble,
        health,
        stranded: jobs.map_or((0, ""), |found| (found.value.stranded.0, &found.value.stranded.1)),
    })
}

/// Overrides a judgement made before the leader fell silent or left.
fn without_leader(health: HealthView) -> HealthView {
    let reason = Reason { code: ReasonCode::NoLeader, subject: None, detail: "nobody leads".to_owned() };
    HealthView { status: HealthStatus::Critical, reasons: vec![reason], ..health }
}

/// What was just read, or else the last known value.
fn newest<T>(
    what: &str,
    now: Result<Answer<Aged<T>>, tokio::time::error::Elapsed>,
    last: Option<Aged<T>>,
    notes: &mut Vec<String>,
) -> Option<Aged<T>> {
    match now {
        Ok(Ok(found)) => return Some(found),
        Ok(Err(problem)) => notes.push(format!("{what}: {}", problem.detail)),
        Err(_) => notes.push(format!("{what}: no answer from the store yet")),
    }
    last
}

/// The leader as this node knows it, plus what only the seat says if that is from the same term.
pub(crate) fn leader(state: &Shared, cluster: Option<&Aged<Cluster>>) -> Option<LeaderView> {
    let (node, epoch, remaining, leads) = {
        let known = state.leadership.borrow();
        (known.leader.as_ref()?.to_string(), known.epoch, known.remaining(), known.is_leader())
    };
    let status = cluster.map(|cluster| &cluster.value.status).filter(|status| status.epoch == epoch);
    let seat = status.and_then(|status| status.leader.as_ref()).filter(|leader| leader.node == node);
    let this = leads && node == state.node.id().as_str();
    Some(LeaderView {
        is_this_node: this,
        epoch,
        since: seat.and_then(|seat| seat.since.clone()),
        seen_since: state.event_buffer.history().since(epoch).map(str::to_owned),
        lease_remaining_ms: remaining.filter(|_| this).map(millis),
        lease_hold_ms: seat
            .map_or_else(|| state.node.settings().core_config().hold_ms(), |seat| seat.lease_hold),
        silent_ms: state.node.leader_silent().map(millis),
        renewals: seat.map(|seat| seat.renewals),
        asked_to_step_down: seat.map(|seat| seat.asked_to_step_down),
        node,
    })
}

/// The nodes on the store, with the leader's judgement of each and what each says about itself.
pub(crate) fn nodes(cluster: &Cluster, figures: Option<&ClusterMetrics>) -> Vec<NodeRow> {
    let judged = cluster.health.as_ref().map(|health| health.nodes.as_slice()).unwrap_or_default();
    let row = |node: &tenure::admin::NodeStatus| {
        let judged = judged.iter().find(|judged| judged.node == node.node);
        let figures = figures.and_then(|figures| figures.nodes.iter().find(|one| one.node == node.node));
        let figures = figures.and_then(|figures| figures.metrics.as_ref());
        // Too few heartbeats for a percentile are no latency of zero.
        let beats = figures.filter(|figures| figures.note.is_none());
        NodeRow {
            node: node.node.clone(),
            role: node.role.to_owned(),
            // A judgement is only as recent as the leader's last look.
            state: match node.role {
                "gone" => Some("down".to_owned()),
                _ => judged.map(|judged| judged.state.as_str().to_owned()),
            },
            incarnation: judged.and_then(|judged| judged.incarnation.clone()),
            version: judged.and_then(|judged| judged.version.clone()),
            last_seen_ms_ago: node.last_seen_ms_ago,
            heartbeat_p50_ms: beats.map(|figures| figures.heartbeat_latency_p50),
            heartbeat_p99_ms: beats.map(|figures| figures.heartbeat_latency_p99),
            cost_per_month: figures
                .filter(|figures| figures.measured_ms > 0)
                .map(|figures| figures.cost_per_month),
        }
    };
    cluster.status.nodes.iter().map(row).collect()
}

/// A short answer about leadership, from memory alone.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Leader {
    /// The namespace.
    pub namespace: String,
    /// The leader, which may be dead and not noticed yet; none if nobody is known to lead.
    pub leader: Option<String>,
    /// The highest epoch this node knows; 0 if there never was one.
    pub epoch: u64,
    /// The node that answers.
    pub node: String,
    /// Its role.
    pub role: Option<String>,
    /// The node that answers leads, and may act now.
    pub is_leader: bool,
    /// How long it may act if it does not renew.
    pub lease_remaining_ms: Option<u64>,
}

pub(crate) fn short(state: &Shared) -> Leader {
    let known = state.leadership.borrow();
    Leader {
        namespace: state.namespace.to_string(),
        leader: known.leader.as_ref().map(ToString::to_string),
        epoch: known.epoch,
        node: state.node.id().to_string(),
        role: known.role.map(|role| role_name(role).to_owned()),
        is_leader: known.is_leader(),
        lease_remaining_ms: known.remaining().map(millis),
    }
}
