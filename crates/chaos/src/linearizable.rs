//! Is the history of the seat linearizable?
//!
//! The seat is one register with conditional writes. Every write carries a nonce of its own, so every version is written
//! once, and a conditional write names the version it replaces. That makes the check linear instead of exponential, and
//! still complete (it finds an order if and only if there is one):
//!
//! 1. *The order of effective writes is forced.* A version is current for one contiguous time, ended by the one write
//!    that named it. So the effective writes form one chain from "absent"; two that name the same version are a lost
//!    update. A write of unknown outcome is effective if anybody ever saw its nonce. One that nobody saw cannot have
//!    been replaced either (to name its version one must have seen it), so it can only be the very last, and can only
//!    matter by explaining why a later condition failed. Of several such writes the one sent first explains most.
//! 2. *What remains are points in time* `t1 ≤ t2 ≤ …`, one per write of the chain: inside the write's own interval; a
//!    read of version `i` in `[a, b]` asks for `ti ≤ b` and `t(i+1) ≥ a`. These are lower and upper bounds; if they can
//!    be met at all, they are met by the least solution, every write as early as its bounds allow.
//! 3. *A refused write* in `[a, b]` that named version `e` needs a moment when `e` was not current: `te ≥ a` or
//!    `t(e+1) ≤ b`. If the least solution breaks the second, every solution does, so the first is forced: raise the
//!    bound, compute the least solution anew. Each refusal is forced at most once, so this ends; a bound that cannot be
//!    met then is a proof that there is no order.
//!
//! A test compares this with an exhaustive search over random small histories.
//!
//! Times are when the proxy passed a request on to the store and when it had the whole answer, so every interval contains the
//! store's own: the check can miss a fault, but never blames the innocent. The times between node and proxy are not used: these
//! intervals are shorter and fewer outcomes are unknown, so the check sees more. What a node made of a lost answer shows in its
//! events.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The contents of one version of the seat.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Content {
    pub epoch: u64,
    pub node: String,
    pub incarnation: String,
    /// `held` or `vacant`.
    pub state: String,
    /// New for every write.
    pub nonce: String,
}

/// An operation and its result. Versions are entity tags without quotes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub enum Action {
    /// There was nothing: a read or a replacement was answered with 404.
    SawNothing,
    /// A read answered with an object.
    Saw {
        /// The object's version.
        version: String,
        content: Content,
    },
    /// A conditional read answered with "unchanged".
    SawUnchanged {
        /// The version it named.
        version: String,
    },
    Write {
        /// The version it replaces; `None`: there must be nothing.
        replaces: Option<String>,
        content: Content,
        outcome: Outcome,
    },
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    /// It took effect under this version.
    Won(String),
    /// The condition did not hold.
    Lost,
    /// No answer, or one that says nothing.
    Unknown,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Operation {
    pub node: String,
    /// A time before it could reach the store.
    pub invoke_us: u64,
    /// When its answer arrived; a write of unknown outcome may take effect at any time.
    pub return_us: u64,
    #[serde(flatten)]
    pub action: Action,
}

/// One effective write, in the order of versions.
#[derive(Clone, Debug)]
pub struct Effective<'a> {
    pub operation: &'a Operation,
    pub content: &'a Content,
    pub version: &'a str,
}

/// Finds the order of all effective writes, or says why there is none.
pub fn linearize(history: &[Operation]) -> Result<Vec<Effective<'_>>, String> {
    let facts = Facts::gather(history)?;
    let chain = facts.chain()?;
    facts.order(&chain)?;
    Ok(chain)
}

/// What must hold along the chain of writes, besides its existence: epochs never go down, and each has one holder.
pub fn check_epochs(chain: &[Effective<'_>]) -> Result<(), String> {
    for pair in chain.windows(2) {
        let (a, b) = (pair[0].content, pair[1].content);
        if b.epoch < a.epoch {
            return Err(format!("the seat's epoch went down: {a:?} and then {b:?}"));
        }
        let same_holder = (&a.node, &a.incarnation) == (&b.node, &b.incarnation);
        if b.epoch == a.epoch && !same_holder {
            return Err(format!("one epoch, two holders on the store: {a:?} and then {b:?}"));
        }
        if b.epoch == a.epoch && a.state == "vacant" {
            return Err(format!("a vacated epoch was written again: {a:?} and then {b:?}"));
        }
    }
    Ok(())
}

/// A conditional write and its result.
#[derive(Clone, Copy)]
struct Attempt<'a> {
    operation: &'a Operation,
    replaces: Option<&'a str>,
    content: &'a Content,
    outcome: &'a Outcome,
}

struct Facts<'a> {
    history: &'a [Operation],
    attempts: Vec<Attempt<'a>>,
    /// For each nonce, the version under which it was seen.
    seen: BTreeMap<&'a str, &'a str>,
}

impl<'a> Facts<'a> {
    fn gather(history: &'a [Operation]) -> Result<Facts<'a>, String> {
        let (mut seen, mut by_version) = (BTreeMap::new(), BTreeMap::new());
        for operation in history {
            let (version, content) = match &operation.action {
                Action::Saw { version, content } => (version, content),
                Action::Write { outcome: Outcome::Won(version), content, .. } => (version, content),
                Action::SawNothing | Action::SawUnchanged { .. } | Action::Write { .. } => continue,
            };
            let nonce = content.nonce.as_str();
            let other_version = seen.insert(nonce, version.as_str()).filter(|other| other != version);
            let other_nonce = by_version.insert(version.as_str(), nonce).filter(|other| *other != nonce);
            if other_version.is_some() || other_nonce.is_some() {
                return Err(format!(
                    "version {version} and nonce {nonce} do not belong to one write: {operation:?}"
                ));
            }
        }
        let mut facts = Facts { history, attempts: Vec::new(), seen };
        facts.attempts = facts.attempts_once()?;
        Ok(facts)
    }

    /// Every write once. A write may be sent again, word for word, after a refusal caused only by spelling (the quotes around an
    /// entity tag). Then the last one counts, and the others say nothing.
    fn attempts_once(&self) -> Result<Vec<Attempt<'a>>, String> {
        let mut last: BTreeMap<&str, Attempt<'a>> = BTreeMap::new();
        for operation in self.history {
            let Action::Write { replaces, content, outcome } = &operation.action else { continue };
            let attempt = Attempt { operation, replaces: replaces.as_deref(), content, outcome };
            let Some(before) = last.insert(&content.nonce, attempt) else { continue };
            let respelled = *before.outcome == Outcome::Lost
                && before.replaces == attempt.replaces
                && before.operation.node == operation.node;
            if !respelled {
                return Err(format!("a nonce was used twice: {:?} and {operation:?}", before.operation));
            }
        }
        Ok(last.into_values().collect())
    }

    fn version(&self, attempt: &Attempt<'a>) -> Option<&'a str> {
        match attempt.outcome {
            Outcome::Won(version) => Some(version),
            Outcome::Lost | Outcome::Unknown => self.seen.get(attempt.content.nonce.as_str()).copied(),
        }
    }

    /// The effective writes, in the only order they can have.
    fn chain(&self) -> Result<Vec<Effective<'a>>, String> {
        let mut next: BTreeMap<Option<&str>, Effective<'a>> = BTreeMap::new();
        let mut written = BTreeSet::new();
        for attempt in &self.attempts {
            let Some(version) = self.version(attempt) else { continue };
            if *attempt.outcome == Outcome::Lost {
                return Err(format!("a refused write took effect: {:?}", attempt.operation));
            }
            written.insert(version);
            let (operation, content) = (attempt.operation, attempt.content);
            let effective = Effective { operation, content, version };
            if let Some(other) = next.insert(attempt.replaces, effective) {
                return Err(format!(
                    "a lost update: {:?} and {operation:?} replaced one version",
                    other.operation
                ));
            }
        }
        let named = self.history.iter().filter_map(|operation| match &operation.action {
            Action::Saw { version, .. } | Action::SawUnchanged { version } => Some((version, operation)),
            Action::SawNothing | Action::Write { .. } => None,
        });
        for (version, operation) in named {
            if !written.contains(version.as_str()) {
                return Err(format!("a version that nobody wrote: {operation:?}"));
            }
        }
        let mut chain: Vec<Effective<'a>> = Vec::new();
        loop {
            let replaced = chain.last().map(|write| write.version);
            let Some(write) = next.remove(&replaced) else { break };
            chain.push(write);
        }
        match next.into_values().next() {
            Some(stray) => Err(format!("it replaced a version that never was: {:?}", stray.operation)),
            None => Ok(chain),
        }
    }

    /// Finds the points in time, or proves that there are none.
    fn order(&self, chain: &[Effective<'a>]) -> Result<(), String> {
        let mut points = Points::new(chain, self.tail(chain));
        let place: BTreeMap<&str, usize> =
            chain.iter().enumerate().map(|(index, write)| (write.version, index + 1)).collect();
        let mut refusals = Vec::new();
        for operation in self.history {
            let seen = match &operation.action {
                Action::SawNothing => Some(0),
                Action::Saw { version, .. } | Action::SawUnchanged { version } => {
                    place.get(version.as_str()).copied()
                }
                Action::Write { .. } => None,
            };
            if let Some(index) = seen {
                points.current_during(index, operation);
            }
        }
        for attempt in self.attempts.iter().filter(|attempt| *attempt.outcome == Outcome::Lost) {
            let index = attempt.replaces.map_or(Some(0), |version| place.get(version).copied());
            // A version that never was current refuses everybody at any time.
            refusals.extend(index.map(|index| (index, attempt.operation)));
        }
        points.settle(1)?;
        refusals.sort_by_key(|(index, operation)| (*index, operation.invoke_us));
        loop {
            let held = |points: &Points<'_>, &(index, operation): &(usize, &Operation)| {
                let before = index > 0 && points.at(index) >= operation.invoke_us;
                before || points.at(index + 1) <= operation.return_us
            };
            let Some(broken) = refusals.iter().find(|refusal| !held(&points, refusal)) else { return Ok(()) };
            points.not_before(broken.0, broken.1)?;
        }
    }

    /// The unseen write that may be at the end of the chain: of all that would fit, the one sent first.
    fn tail(&self, chain: &[Effective<'a>]) -> Option<u64> {
        let last = chain.last().map(|write| write.version);
        let fits = |attempt: &&Attempt<'a>| {
            *attempt.outcome == Outcome::Unknown
                && self.version(attempt).is_none()
                && attempt.replaces == last
        };
        self.attempts.iter().filter(fits).map(|attempt| attempt.operation.invoke_us).min()
    }
}

/// When each version became current: the least solution of the bounds so far. Version 0 is "nothing", which was there from the
/// start.
struct Points<'a> {
    least: Vec<u64>,
    lower: Vec<(u64, Option<&'a Operation>)>,
    upper: Vec<(u64, Option<&'a Operation>)>,
}

impl<'a> Points<'a> {
    fn new(chain: &[Effective<'a>], tail: Option<u64>) -> Points<'a> {
        let (mut lower, mut upper) = (vec![(0, None)], vec![(0, None)]);
        for write in chain {
            let operation = write.operation;
            let known = matches!(&operation.action, Action::Write { outcome: Outcome::Won(_), .. });
            lower.push((operation.invoke_us, Some(operation)));
            upper.push((if known { operation.return_us } else { u64::MAX }, Some(operation)));
        }
        // What follows the last version: a write nobody saw, or nothing.
        lower.push((tail.unwrap_or(u64::MAX), None));
        upper.push((u64::MAX, None));
        Points { least: vec![0; lower.len()], lower, upper }
    }

    fn at(&self, index: usize) -> u64 {
        self.least[index]
    }

    fn current_during(&mut self, index: usize, operation: &'a Operation) {
        if operation.invoke_us > self.lower[index + 1].0 {
            self.lower[index + 1] = (operation.invoke_us, Some(operation));
        }
        if operation.return_us < self.upper[index].0 {
            self.upper[index] = (operation.return_us, Some(operation));
        }
    }

    fn not_before(&mut self, index: usize, operation: &'a Operation) -> Result<(), String> {
        if index == 0 {
            return Err(format!("refused, though there was nothing yet: {operation:?}"));
        }
        self.lower[index] = (self.lower[index].0.max(operation.invoke_us), Some(operation));
        self.settle(index)
    }

    fn settle(&mut self, from: usize) -> Result<(), String> {
        for index in from..self.least.len() {
            self.least[index] = self.lower[index].0.max(self.least[index - 1]);
            if self.least[index] > self.upper[index].0 {
                let cause = self.lower[..=index].iter().rev().find(|bound| bound.0 == self.least[index]);
                return Err(format!(
                    "no order of operations explains the history: {:?} and {:?}",
                    self.upper[index].1,
                    cause.and_then(|bound| bound.1)
                ));
            }
        }
        Ok(())
    }
}
