//! The explorer: every state that a few nodes of the production core can reach, breadth first.
//!
//! Time advances in ticks. At every moment it tries everything that may happen next: a write lands, is refused, lands without an
//! answer or long after its sender gave up; a read is answered or not; a wake-up comes; a process crashes, comes back, stands
//! still; time advances. Times are relative to now and ids are renumbered, so a recurring state is recognised and the search ends
//! when there is nothing new.
//!
//! The limits are part of the claim: bounded numbers of epochs, faults, crashes and pauses per run; presences and lists are
//! answered at once; work stops as soon as it is told to or ends by its deadline; clocks keep the given rates.

mod canon;
mod live;
mod moves;
mod state;

use crate::checks::Violation;
use crate::run::with_mutant;
use crate::transition::Followed;
use canon::canonical;
use live::Liveness;
use state::State;
use std::collections::{HashSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};
use tenure_core::Mutant;

/// What to explore, and how far.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The number of nodes.
    pub nodes: usize,
    /// No claims beyond this epoch.
    pub epochs: u64,
    /// Most outcomes that are lost, late or refused by echo.
    pub faults: u8,
    /// Most crashes, each followed by a new life.
    pub crashes: u8,
    /// How often a node may stand still.
    pub pauses: u8,
    /// How often the leader may be asked to step down.
    pub step_downs: u8,
    /// Clock rates in thousandths, one per node: as far apart as the settings tolerate.
    pub rates: [u64; 3],
    /// Whether to check steps and states against the clauses of the proof.
    pub clauses: bool,
    /// Whether every step must be one of the proof's model.
    pub replay: bool,
    /// How soon a node must lead, in true time, from every state once faults end; `None` skips the check.
    pub live_ms: Option<u64>,
    /// Most states to visit.
    pub states: u64,
    /// The longest time to search.
    pub time: Duration,
}

impl Limits {
    /// This many nodes, these budgets of faults, crashes, pauses and step-downs, and two epochs.
    fn new(nodes: usize, [faults, crashes, pauses, step_downs]: [u8; 4]) -> Limits {
        Limits {
            nodes,
            epochs: 2,
            faults,
            crashes,
            pauses,
            step_downs,
            rates: [1000, 2000, 1000],
            clauses: true,
            replay: true,
            live_ms: Some(state::live_ms()),
            states: u64::MAX,
            time: Duration::from_secs(3600),
        }
    }

    /// Searches small enough for every test run; each combines the faults differently.
    pub fn small(nodes: usize) -> Vec<Limits> {
        let budgets: &[[u8; 4]] = match nodes {
            2 => &[[2, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [1, 0, 0, 1]],
            _ => &[[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]],
        };
        budgets.iter().map(|budget| Limits::new(nodes, *budget)).collect()
    }

    /// Searches that take minutes and gigabytes.
    pub fn large(nodes: usize) -> Vec<Limits> {
        let budgets: &[[u8; 4]] = match nodes {
            2 => &[[1, 0, 1, 0], [0, 1, 0, 1], [1, 1, 0, 0], [3, 0, 0, 0]],
            _ => &[[2, 0, 0, 0], [0, 1, 0, 1], [1, 0, 0, 1]],
        };
        let limit = |budget: &[u8; 4]| Limits { states: 12_000_000, ..Limits::new(nodes, *budget) };
        budgets.iter().map(limit).collect()
    }
}

/// The result of a search.
#[derive(Clone, Debug)]
pub struct Found {
    /// States visited.
    pub states: u64,
    /// Steps tried from them.
    pub transitions: u64,
    /// Steps from the start to the farthest state.
    pub depth: u64,
    /// Nothing was left to visit.
    pub complete: bool,
    /// Steps of nodes compared with the proof's model.
    pub followed: Followed,
    /// The longest time until a node led, from any state, once faults had ended; in ms of true time.
    pub longest_ms: u64,
    /// The first violation, with the steps that lead to it.
    pub violation: Option<(Violation, Vec<String>)>,
    /// How long the search took.
    pub took: Duration,
}

/// Explores the production core, or a broken variant of it.
pub fn explore(limits: &Limits, mutant: Option<Mutant>) -> Found {
    with_mutant(mutant, || explore_all(limits))
}

fn explore_all(limits: &Limits) -> Found {
    let started = Instant::now();
    let mut found = Found {
        states: 0,
        transitions: 0,
        depth: 0,
        complete: false,
        followed: Followed::default(),
        longest_ms: 0,
        violation: None,
        took: Duration::ZERO,
    };
    let mut liveness = Liveness::default();
    let mut visited: HashSet<u128> = HashSet::new();
    // The way back, to show how a violation came about: parent and step.
    let mut ways: Vec<(u32, u16)> = Vec::new();
    let mut frontier: VecDeque<(State, u64, u32)> = VecDeque::new();
    let mut first = State::start(limits);
    visited.insert(canonical(&mut first));
    ways.push((u32::MAX, 0));
    frontier.push_back((first, 0, 0));
    found.complete = true;
    while let Some((state, depth, way)) = frontier.pop_front() {
        found.states += 1;
        found.depth = found.depth.max(depth);
        if found.states >= limits.states
            || (found.states.is_multiple_of(1024) && started.elapsed() > limits.time)
        {
            found.complete = false;
            break;
        }
        if let Some(violation) = limits.live_ms.and_then(|ms| liveness.check(&state, limits, ms)) {
            found.violation = Some((violation, retrace(limits, &ways, way)));
            found.took = started.elapsed();
            found.complete = false;
            return found;
        }
        for (index, step) in state.moves(limits).into_iter().enumerate() {
            found.transitions += 1;
            let mut next = state.clone();
            let done = catch_unwind(AssertUnwindSafe(|| next.make(&step, limits)));
            found.followed.add(&std::mem::take(&mut next.followed));
            let violation = match done {
                Ok(()) => next.violation.take(),
                Err(panic) => Some(state::assertion(panic)),
            };
            if let Some(violation) = violation {
                let mut steps = retrace(limits, &ways, way);
                steps.push(format!("{step:?}"));
                found.violation = Some((violation, steps));
                found.took = started.elapsed();
                found.complete = false;
                return found;
            }
            if next.beyond(limits) {
                continue;
            }
            if visited.insert(canonical(&mut next)) {
                ways.push((way, index as u16));
                frontier.push_back((next, depth + 1, (ways.len() - 1) as u32));
            }
        }
    }
    found.longest_ms = liveness.longest_ms;
    found.took = started.elapsed();
    found
}

/// The steps that lead to a state, replayed from the start.
fn retrace(limits: &Limits, ways: &[(u32, u16)], mut way: u32) -> Vec<String> {
    let mut indices = Vec::new();
    while way != 0 {
        let (parent, index) = ways[way as usize];
        indices.push(index);
        way = parent;
    }
    let mut state = State::start(limits);
    let mut steps = Vec::new();
    for index in indices.into_iter().rev() {
        // States on the frontier were rewritten before their moves were listed, so rewrite this one too.
        canonical(&mut state);
        let Some(step) = state.moves(limits).into_iter().nth(usize::from(index)) else { break };
        steps.push(format!("{step:?}"));
        state.make(&step, limits);
    }
    steps
}
