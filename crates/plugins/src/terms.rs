//! Terms of leaders, the last thousand: `terms.json`.
//!
//! ```
//! use tenure::process::Supervisor;
//! use tenure::{Node, Settings};
//! use tenure_plugins::cluster_health::ClusterHealth;
//! use tenure_plugins::terms::TermsView;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let settings = Settings::builder().store("memory:").node("pod-a").startup_jitter_max(std::time::Duration::ZERO).build()?;
//! let node = Node::start(settings).await?;
//! // Whoever leads keeps the list, beside the health of the cluster.
//! let processes = Supervisor::new([ClusterHealth::new(&node).process()]).run(&node)?;
//! processes.running("ClusterHealth").await;
//! let view = TermsView::read(&node.documents(), &node.handle().namespace()).await?;
//! assert_eq!((view.terms[0].term.epoch, view.terms[0].leads), (1, true));
//! node.shutdown().await;
//! # Ok(()) }
//! ```
//!
//! A new leader adds what the seat says of its own term and of the one before it: two reads and one write, once. Who lost the
//! seat without giving it up, and is still there, adds why. Nobody asks a guard for that, and nobody needs to: each term has a row of its
//! own, the document is written on condition that nobody was faster, and a row only ever learns more.
//!
//! Not promised: that every term is there. Whoever leads for less than a second may leave none, nor does a leader of a program that
//! does not run ClusterHealth. Terms are written down by the wall clocks of those who led.

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;
use tenure::admin::{SeatTerms, Term, TermEnd};
use tenure::document::Documents;
use tenure::event::{EventKind, LostReason};
use tenure::id::{DocumentName, Namespace};
use tenure::plugin::NodeHandle;
use tenure::process::ProcessContext;
use tenure::store::Lanes;
use tenure::{Error, Event};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

/// Most terms kept. With the longest possible ids and names the document stays below 1 MiB.
pub const TERMS_MAX: usize = 1000;

/// The time limit of a read; the store's own is shorter as a rule.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// The pause before the document is tried again; it doubles each time …
const RETRY_FIRST: Duration = Duration::from_secs(1);

/// … up to this.
const RETRY_MAX: Duration = Duration::from_secs(300);

/// How often a former leader tries to say why its term ended: for some four minutes.
const LAST_WORDS_MAX: u32 = 8;

/// `terms.json`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
struct TermsDocument {
    /// The newest first.
    terms: Vec<Term>,
}

fn name() -> DocumentName {
    DocumentName::new("terms").expect("a valid name")
}

impl TermsDocument {
    /// The document in order, without terms of later epochs: they are of a seat that is gone, or forged.
    fn up_to(found: Option<&TermsDocument>, epoch: u64) -> TermsDocument {
        let mut document = found.cloned().unwrap_or_default();
        document.terms.retain(|term| term.epoch <= epoch);
        document.sort();
        document
    }

    /// One row for each epoch, the newest first.
    fn sort(&mut self) {
        self.terms.sort_by_key(|term| Reverse(term.epoch));
        self.terms.dedup_by_key(|term| term.epoch);
    }

    /// Takes in what is known of a term.
    fn learn(&mut self, term: &Term) {
        let life = |known: &Term| known.incarnation.clone().or_else(|| term.incarnation.clone());
        // A seat that was restored from a copy repeats epochs: what stands there now counts.
        let same = |known: &&mut Term| {
            (known.epoch, &known.leader) == (term.epoch, &term.leader)
                && (term.incarnation.is_none() || term.incarnation == life(known))
        };
        match self.terms.iter_mut().find(same) {
            Some(known) => known.learn(term),
            None => {
                self.terms.retain(|known| known.epoch != term.epoch);
                self.terms.push(term.clone());
                self.sort();
            }
        }
    }

    /// Takes in what the seat says. Every term below it is over, whether anybody knows why or not.
    fn learn_from(&mut self, seat: &SeatTerms) {
        seat.former.iter().for_each(|former| self.learn(former));
        self.learn(&seat.current);
        for term in self.terms.iter_mut().filter(|term| term.epoch < seat.current.epoch) {
            term.ended.get_or_insert(TermEnd::Unknown);
        }
        self.terms.truncate(TERMS_MAX);
    }
}

// ---- writing ----

/// Keeps the list for one term: adds it, tries again if the store refuses, and returns. Takes as long as it takes, and delays
/// nobody.
pub(crate) async fn keep(node: &NodeHandle, context: &ProcessContext) {
    // One, so that trouble is said once.
    let documents = node.documents();
    let mut pause = RETRY_FIRST;
    // Once fenced, the process is about to be stopped anyway.
    while let Err(error) = take_over(&documents, context).await
        && !error.is_fenced()
    {
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(RETRY_MAX);
    }
}

async fn take_over(documents: &Documents, context: &ProcessContext) -> Result<(), Error> {
    let Some(seat) = documents.seat_terms().await? else { return Ok(()) };
    let epoch = context.epoch();
    if seat.current.epoch != epoch {
        // Somebody else's by now, or changed by hand.
        return Ok(());
    }
    let add = |found: Option<&TermsDocument>, _| {
        // It was read while this leader led, so no later epoch had begun, and nobody else wrote of this one.
        context.check()?;
        let mut document = TermsDocument::up_to(found, epoch - 1);
        document.learn_from(&seat);
        Ok::<_, Error>((found != Some(&document)).then_some(document))
    };
    documents.update(&name(), add).await.map(drop)
}

/// Says why this node's term ended, if it did not give up the seat in order: then the seat says it. Ends by itself.
pub(crate) async fn last_words(node: NodeHandle, mut events: Receiver<Event>, epoch: u64) {
    let lost = loop {
        match events.recv().await {
            Ok(event) => match lost(&event, node.id().as_str()) {
                Some((term, said)) if term.epoch >= epoch => {
                    break (!said && term.epoch == epoch).then_some(term);
                }
                Some(_) | None if matches!(event.kind, EventKind::Stopped) => return,
                Some(_) | None => {}
            },
            Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => return,
        }
    };
    let Some(term) = lost else { return };
    let documents = node.documents();
    let mut pause = RETRY_FIRST;
    for _ in 0..LAST_WORDS_MAX {
        let add = |found: Option<&TermsDocument>, _| {
            let mut document = found.cloned().unwrap_or_default();
            document.learn(&term);
            Ok::<_, Error>((found != Some(&document)).then_some(document))
        };
        if documents.update(&name(), add).await.is_ok() {
            return;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(RETRY_MAX);
    }
}

/// The term that this event ends, and whether its end stands on the seat.
fn lost(event: &Event, me: &str) -> Option<(Term, bool)> {
    let EventKind::LostLeadership { reason, vacated, acted_until_boot_ms } = event.kind else { return None };
    let since_ms = event.boot_ms.saturating_sub(acted_until_boot_ms);
    let since = jiff::SignedDuration::from_millis(i64::try_from(since_ms).unwrap_or(0));
    let term = Term {
        epoch: event.epoch,
        leader: me.to_owned(),
        incarnation: None,
        from: None,
        until: event.time.checked_sub(since).ok(),
        ended: Some(TermEnd::from(reason)),
        silent_ms: None,
        by: None,
    };
    Some((term, vacated && !matches!(reason, LostReason::Panic)))
}

// ---- reading ----

/// The terms of a namespace, as anybody can read them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct TermsView {
    /// The namespace that was read.
    pub namespace: String,
    /// The epoch on the seat; 0 if there never was a leader.
    pub epoch: u64,
    /// The newest first.
    pub terms: Vec<TermRow>,
}

/// One term, as it is shown.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct TermRow {
    /// What is known of it.
    #[serde(flatten)]
    pub term: Term,
    /// Whether it goes on: its leader holds the seat, and has not been silent for longer than its lease by the store's clock.
    pub leads: bool,
    /// Why it ended, or how it is doing, in words.
    pub why: String,
    /// How many epochs between this one and the next older one left no record.
    pub unrecorded: u64,
}

impl TermsView {
    /// Reads the terms: two reads.
    pub async fn read(documents: &Documents, namespace: &Namespace) -> Result<TermsView, Error> {
        // The list first: then every term in it is one of this seat's.
        let found = documents.read::<TermsDocument>(&name()).await?;
        let seat = documents.seat_terms().await?;
        Ok(TermsView::of(namespace, found.map(|found| found.body).as_ref(), seat.as_ref()))
    }

    /// The same from outside.
    pub async fn read_from(lanes: &Lanes, namespace: &Namespace) -> Result<TermsView, Error> {
        let documents = Documents::of_namespace(Arc::clone(&lanes.bulk), namespace, READ_TIMEOUT);
        TermsView::read(&documents, namespace).await
    }

    /// The view of a namespace whose store does not exist yet.
    pub fn nothing(namespace: &Namespace) -> TermsView {
        TermsView::of(namespace, None, None)
    }

    /// What the seat says is always shown, even before the leader has written it down.
    fn of(namespace: &Namespace, found: Option<&TermsDocument>, seat: Option<&SeatTerms>) -> TermsView {
        let epoch = seat.map_or(0, |seat| seat.current.epoch);
        let mut document = TermsDocument::up_to(found, seat.map_or(u64::MAX, |_| epoch));
        if let Some(seat) = seat {
            document.learn_from(seat);
        }
        let older = document.terms.iter().skip(1).map(|term| term.epoch).chain([0]);
        let row = |(term, older): (&Term, u64)| {
            let silent = seat.filter(|seat| seat.current.epoch == term.epoch).and_then(|seat| seat.silent);
            let holds = term.epoch == epoch && term.ended.is_none();
            let why = match (holds, silent) {
                (true, None) => "leads".to_owned(),
                (true, Some(silent)) => format!("silent for {:.1} s", silent.as_secs_f64()),
                (false, _) => term.why().unwrap_or_else(|| TermEnd::Unknown.to_string()),
            };
            let unrecorded = (term.epoch - 1).saturating_sub(older);
            TermRow { term: term.clone(), leads: holds && silent.is_none(), why, unrecorded }
        };
        let mut terms: Vec<TermRow> = document.terms.iter().zip(older).map(row).collect();
        // What came before the oldest of a full list was dropped.
        if let Some(last) = terms.last_mut().filter(|_| document.terms.len() == TERMS_MAX) {
            last.unrecorded = 0;
        }
        TermsView { namespace: namespace.to_string(), epoch, terms }
    }
}
