//! Work that is done once for a key: every leader does it for the newest key, one key after the other.

use crate::checks::name;
use crate::queue::Run;
use crate::shell::{Part, PartName, Played, Who};
use crate::store::{Key, Op, Said, Value};
use crate::world::World;
use rand::RngExt;
use std::collections::BTreeMap;
use std::time::Duration;
use tenure_core::document::{DocumentAnswer, DocumentRequest};
use tenure_core::machine::Input;
use tenure_core::{
    Epoch, Incarnation, Once, OnceCommand, OnceEnd, OnceOutput, OnceRecord, OnceState, OnceTerms, RequestId,
};

/// Longer than any schedule.
const KEEP: Duration = Duration::from_secs(100_000);

/// Work for a key under one lease.
pub(crate) struct OnceRun {
    part: Part<Once>,
    epoch: Epoch,
    key: u64,
    /// The work runs.
    runs: bool,
}

/// The keys of a schedule, and the truth about them.
#[derive(Default)]
pub(crate) struct OnceKeys {
    /// `None` if nobody does anything for a key.
    pub(crate) terms: Option<OnceTerms>,
    pub(crate) newest: u64,
    /// How often work was begun for a key.
    begun: BTreeMap<u64, u32>,
}

impl OnceKeys {
    pub(crate) fn new(retry: bool) -> OnceKeys {
        OnceKeys { terms: Some(OnceTerms { keep: KEEP, retry }), ..OnceKeys::default() }
    }

    pub(crate) fn runs(&self) -> u64 {
        self.begun.values().map(|count| u64::from(*count)).sum()
    }
}

impl Played for Once {
    const NAME: PartName = PartName::Once;

    fn part(world: &mut World, who: Who) -> Option<&mut Part<Once>> {
        let Who::Node(node) = who else { return None };
        Some(&mut world.nodes[node].once.as_mut()?.part)
    }

    /// Once leadership has ended, the work is stopped and nothing more is recorded.
    fn before(world: &mut World, who: Who) -> bool {
        let Who::Node(node) = who else { return false };
        let leads = world.nodes[node].led_epoch(world.now);
        world.nodes[node].once.take_if(|once| leads != Some(once.epoch));
        world.nodes[node].once.is_some()
    }

    fn op(world: &mut World, who: Who, _: RequestId, request: &DocumentRequest<OnceRecord>) -> Option<Op> {
        let Who::Node(node) = who else { return None };
        let key = Key::Once(world.nodes[node].once.as_ref()?.key);
        Some(Op::document(key, request, |stamp, body| Value::Once(stamp, body.clone())))
    }

    fn answer(
        _: &mut World,
        _: Who,
        _: DocumentRequest<OnceRecord>,
        said: Said,
    ) -> DocumentAnswer<OnceRecord> {
        said.document(|value| value.once().map(|(stamp, record)| (stamp, record.clone())))
    }

    fn output(world: &mut World, who: Who, output: OnceOutput) {
        let Who::Node(node) = who else { return };
        let Some(once) = &mut world.nodes[node].once else { return };
        let key = once.key;
        match output {
            OnceOutput::Run => {
                once.runs = true;
                let number = once.part.number;
                world.check_once_begins(node, key);
                let at = world.now + world.rng.random_range(0..6000);
                world.run_later(at, who, Run::OnceEnded { number });
            }
            OnceOutput::Over(end) => {
                world.nodes[node].once = None;
                if let OnceEnd::Done(_) | OnceEnd::Lost(_) = end {
                    world.once.newest = world.once.newest.max(key + 1);
                }
                let at = world.now + world.rng.random_range(0..8000);
                world.run_later(at, who, Run::OnceNext);
            }
        }
    }
}

impl World {
    /// A leader does what is to be done for the newest key.
    pub(crate) fn begin_once(&mut self, node: usize) {
        let (who, life) = (Who::Node(node), self.new_life());
        let Some(terms) = self.once.terms.clone() else { return };
        let Some(epoch) = self.nodes[node].led_epoch(self.now) else { return };
        if self.nodes[node].once.as_ref().is_some_and(|once| once.epoch == epoch) {
            return;
        }
        let machine = Once::new(self.nodes[node].id.clone(), epoch, Incarnation(life), terms);
        let (part, key) = (Part::new(machine, life), self.once.newest);
        self.nodes[node].once = Some(OnceRun { part, epoch, key, runs: false });
        self.feed::<Once>(who, Input::Wake);
    }

    /// The work for a key ends by itself, if it still runs.
    pub(crate) fn once_ended(&mut self, who: Who, number: u64) {
        let Who::Node(node) = who else { return };
        let runs = |once: &OnceRun| once.part.number == number && once.runs;
        if Once::before(self, who) && self.nodes[node].once.as_ref().is_some_and(runs) {
            let code = (number % 3) as u8;
            self.command::<Once>(who, OnceCommand::Ended { code });
        }
    }

    fn check_once_begins(&mut self, node: usize, key: u64) {
        let begun = self.once.begun.entry(key).or_insert(0);
        *begun += 1;
        let (begun, retry) = (*begun, self.once.terms.as_ref().is_some_and(|terms| terms.retry));
        let done = self.store.get(&Key::Once(key)).and_then(|object| object.value.once());
        let done = done.is_some_and(|(_, record)| matches!(record.state, OnceState::Ended { .. }));
        let now = self.now;
        let at_it = |(other, one): (usize, &crate::node::Node)| {
            let runs = one.once.as_ref().is_some_and(|once| once.key == key && once.runs);
            other != node && runs && one.acts(now, false)
        };
        let others = self.nodes.iter().enumerate().filter(|one| at_it(*one)).count();
        if begun > 1 && !retry || done || others > 0 && !self.clocks_beyond_drift {
            self.violated(name::ONCE, || {
                format!(
                    "{node} begins key {key}, for the {begun}th time; done: {done}; others at it: {others}"
                )
            });
        }
    }
}
