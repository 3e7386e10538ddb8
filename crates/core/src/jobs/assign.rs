//! Who does a job that names no worker.

use super::model::{JobRecord, JobState};
use super::serves::Serves;
use crate::id::{Label, WorkerId};
use crate::mutants::Mutant;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How busy a worker is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Load {
    /// This many attempts are out at it.
    Out(usize),
    /// Its inbox has no room for a job of any size.
    NoRoom,
    /// It takes nothing more.
    Draining,
}

/// Chooses workers. It is told about every worker before it is asked, so that a choice among a thousand workers costs no
/// search through their inboxes. Production has one implementation, [`Candidates`]; tests choose as they like.
pub trait Assign {
    /// What it goes by besides what workers say.
    type Facts;

    fn learn(&mut self, facts: Self::Facts);

    /// Whether a worker is given something only once its inbox says what it serves.
    fn goes_by_inboxes(&self) -> bool;

    /// What a worker serves, if it has said so, and how busy it is; `None` if it is not active.
    fn worker(&mut self, worker: &WorkerId, now: Option<(Option<&Arc<Serves>>, Load)>);

    /// The worker for this job, or why there is none, which the job then shows as its reason. Asked again when something has
    /// happened, but not after every change if many jobs wait.
    fn assign(&mut self, job: &JobRecord) -> Result<WorkerId, NoWorker>;
}

/// Why no worker gets a job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NoWorker {
    /// A sentence for people.
    pub reason: String,
    /// A worker that would take it is there, and will take it later.
    pub later: bool,
}

impl JobRecord {
    /// Whether it waits because no active worker may ever take it, and not because those that may are busy.
    pub fn finds_nobody(&self) -> bool {
        // As each rule begins.
        self.state == JobState::Queued && self.reason.starts_with("no ")
    }
}

/// The active workers, by what they serve. The least busy of those that serve a job gets it; among equals, the first by id. The
/// worker that had it last is chosen only if there is nobody else: it did not claim the job, fell silent, or failed.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Candidates {
    workers: BTreeMap<WorkerId, (Arc<Serves>, Load)>,
    /// Many workers serve the same: these are told apart by their load alone.
    free: BTreeMap<Arc<Serves>, BTreeSet<(usize, WorkerId)>>,
}

impl Candidates {
    /// How many workers take jobs, now or once they are less busy.
    pub fn takers(&self) -> usize {
        self.workers.values().filter(|(_, load)| *load != Load::Draining).count()
    }

    fn remove(&mut self, worker: &WorkerId) {
        let Some((serves, Load::Out(out))) = self.workers.remove(worker) else { return };
        if let Some(free) = self.free.get_mut(&serves) {
            free.remove(&(out, worker.clone()));
            if free.is_empty() {
                self.free.remove(&serves);
            }
        }
    }

    /// Why nobody has room: the first rule that leaves no worker.
    fn explain(&self, job: &JobRecord) -> NoWorker {
        let mut left: Vec<&(Arc<Serves>, Load)> = self.workers.values().collect();
        for (fits, says) in RULES {
            left.retain(|(served, _)| fits(job, served));
            if left.is_empty() {
                return NoWorker { reason: says(job), later: false };
            }
        }
        let draining = left.iter().all(|(_, load)| *load == Load::Draining);
        let why = if draining { "draining" } else { "busy" };
        NoWorker { reason: format!("every worker that could run it is {why}"), later: !draining }
    }
}

/// What a worker must have for a job, and what is said if nobody has it.
type Rule = (fn(&JobRecord, &Serves) -> bool, fn(&JobRecord) -> String);

/// In the order in which they are told.
const RULES: [Rule; 7] = [
    (|_, _| true, |_| "no active worker takes jobs".to_owned()),
    (
        |job, served| served.takes_queue(&job.queue),
        |job| format!("no active worker serves queue {}", job.queue),
    ),
    (
        |job, served| served.takes_kind(&job.kind),
        |job| format!("no worker of its queue runs jobs of kind {}", job.kind),
    ),
    (
        |job, served| has(&job.needs.partition, &served.labels.partition),
        |job| format!("no suitable worker is in partition {}", text(&job.needs.partition)),
    ),
    (
        |job, served| has(&job.needs.domain, &served.labels.domain),
        |job| format!("no suitable worker is in domain {}", text(&job.needs.domain)),
    ),
    (
        |job, served| job.needs.capabilities.is_subset(&served.labels.capabilities),
        |job| {
            let all: Vec<&str> = job.needs.capabilities.iter().map(Label::as_str).collect();
            let noun = if all.len() == 1 { "capability" } else { "capabilities" };
            format!("no suitable worker has {noun} {}", all.join(", "))
        },
    ),
    (
        |job, served| job.commands.iter().all(|command| served.allows(command)),
        |job| {
            let all: Vec<String> = job.commands.iter().map(|command| command.join(" ")).collect();
            format!("no suitable worker allows {}", all.join(" and "))
        },
    ),
];

fn has(needed: &Option<Label>, there: &Option<Label>) -> bool {
    needed.is_none() || needed == there
}

fn text(label: &Option<Label>) -> &str {
    label.as_ref().map_or("", Label::as_str)
}

/// Whether a worker that serves this takes this job.
pub(super) fn serves(served: &Serves, job: &JobRecord) -> bool {
    RULES.iter().all(|(fits, _)| fits(job, served)) || Mutant::JobServesIgnored.on()
}

impl Assign for Candidates {
    type Facts = ();

    fn learn(&mut self, (): ()) {}

    fn goes_by_inboxes(&self) -> bool {
        true
    }

    fn worker(&mut self, worker: &WorkerId, now: Option<(Option<&Arc<Serves>>, Load)>) {
        self.remove(worker);
        let Some((Some(served), load)) = now else { return };
        if let Load::Out(out) = load
            && out < served.slots as usize
        {
            self.free.entry(Arc::clone(served)).or_default().insert((out, worker.clone()));
        }
        self.workers.insert(worker.clone(), (Arc::clone(served), load));
    }

    fn assign(&mut self, job: &JobRecord) -> Result<WorkerId, NoWorker> {
        let had_it = |worker: &WorkerId| job.worker.as_ref() == Some(worker);
        let groups = self.free.iter().filter(|(served, _)| serves(served, job));
        // Of each group the two first are enough: only one worker can have had it.
        let first = groups.flat_map(|(_, free)| free.iter().take(2));
        let least = first.min_by(|a, b| (had_it(&a.1), a).cmp(&(had_it(&b.1), b)));
        least.map(|(_, worker)| worker.clone()).ok_or_else(|| self.explain(job))
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{name, record};
    use super::super::serves::Labels;
    use super::*;

    fn serving(change: impl FnOnce(&mut Serves)) -> Arc<Serves> {
        let mut serves = Serves::anything(2);
        change(&mut serves);
        Arc::new(serves)
    }

    fn label(text: &str) -> Option<Label> {
        Some(name(text))
    }

    fn choice(job: &JobRecord, workers: &[(&str, &Arc<Serves>, Load)]) -> Result<String, (String, bool)> {
        let mut candidates = Candidates::default();
        for (worker, served, load) in workers {
            candidates.worker(&name(worker), Some((Some(served), *load)));
        }
        let chosen = candidates.assign(job);
        chosen.map(|worker| worker.to_string()).map_err(|why| (why.reason, why.later))
    }

    fn says(text: &str, later: bool) -> Result<String, (String, bool)> {
        Err((text.to_owned(), later))
    }

    #[test]
    fn every_rule_says_that_nobody_is_there() {
        for (_, says) in RULES {
            let reason = says(&record("t1"));
            assert!(JobRecord { reason: Arc::from(&*reason), ..record("t1") }.finds_nobody(), "{reason}");
        }
        let busy = "every worker that could run it is busy";
        assert!(!JobRecord { reason: Arc::from(busy), ..record("t1") }.finds_nobody());
    }

    #[test]
    fn sc4_the_first_rule_that_leaves_nobody_is_the_reason() {
        let needs = Labels {
            partition: label("eu"),
            domain: label("net"),
            capabilities: [name("icmp"), name("v6")].into(),
        };
        let job = JobRecord { queue: name("mail"), kind: name("send"), needs: needs.clone(), ..record("t1") };
        let fits = serving(|serves| {
            (serves.queues, serves.kinds) = ([name("mail")].into(), [name("send")].into());
            serves.labels = needs.clone();
        });
        let other = |change: fn(&mut Serves)| {
            let mut serves = (*fits).clone();
            change(&mut serves);
            Arc::new(serves)
        };
        let free = Load::Out(0);
        let is = |served: &Arc<Serves>| choice(&job, &[("a", served, free)]);
        assert_eq!(is(&fits), Ok("a".to_owned()));
        assert_eq!(choice(&job, &[]), says("no active worker takes jobs", false));
        let queue = other(|serves| serves.queues = [name("default")].into());
        assert_eq!(is(&queue), says("no active worker serves queue mail", false));
        let kind = other(|serves| serves.kinds = [name("fetch")].into());
        assert_eq!(is(&kind), says("no worker of its queue runs jobs of kind send", false));
        let partition = other(|serves| serves.labels.partition = None);
        assert_eq!(is(&partition), says("no suitable worker is in partition eu", false));
        let domain = other(|serves| serves.labels.domain = Some(name("db")));
        assert_eq!(is(&domain), says("no suitable worker is in domain net", false));
        let capability = other(|serves| serves.labels.capabilities = [name("icmp")].into());
        assert_eq!(is(&capability), says("no suitable worker has capabilities icmp, v6", false));
        let backup = JobRecord {
            commands: Arc::from([vec!["/bin/backup".to_owned(), "a".to_owned()]]),
            ..job.clone()
        };
        let by = |served: &Arc<Serves>| choice(&backup, &[("a", served, free)]);
        assert_eq!(by(&fits), says("no suitable worker allows /bin/backup a", false));
        let other_words = other(|serves| serves.commands = ["/bin/backup b".parse().expect("valid")].into());
        assert!(by(&other_words).is_err(), "that very command");
        let allowed = other(|serves| serves.commands = ["/bin/backup *".parse().expect("valid")].into());
        assert_eq!(by(&allowed), Ok("a".to_owned()));
        let busy = || says("every worker that could run it is busy", true);
        assert_eq!(choice(&job, &[("a", &fits, Load::Out(2)), ("b", &queue, free)]), busy());
        assert_eq!(choice(&job, &[("a", &fits, Load::NoRoom), ("b", &fits, Load::Draining)]), busy());
        let draining = says("every worker that could run it is draining", false);
        assert_eq!(choice(&job, &[("a", &fits, Load::Draining)]), draining);
    }

    #[test]
    fn the_least_busy_gets_it_and_who_had_it_last_only_if_there_is_nobody_else() {
        let (any, other) = (serving(|_| {}), serving(|serves| serves.slots = 9));
        let job = JobRecord { worker: Some(name("a")), ..record("t1") };
        let of = |workers: &[(&str, &Arc<Serves>, Load)]| choice(&job, workers);
        let (none, one) = (Load::Out(0), Load::Out(1));
        assert_eq!(of(&[("a", &any, none), ("b", &any, one), ("c", &any, one)]), Ok("b".to_owned()));
        assert_eq!(of(&[("a", &any, none), ("b", &any, one), ("c", &other, none)]), Ok("c".to_owned()));
        assert_eq!(of(&[("a", &any, one), ("b", &any, Load::Out(2))]), Ok("a".to_owned()));
    }

    #[test]
    fn a_worker_counts_as_it_was_told_last() {
        let (mut candidates, any) = (Candidates::default(), serving(|_| {}));
        let a = name("a");
        for load in [Load::Out(0), Load::Out(1), Load::Out(2), Load::NoRoom, Load::Out(1)] {
            candidates.worker(&a, Some((Some(&any), load)));
            assert!(candidates.free.values().map(BTreeSet::len).sum::<usize>() <= 1);
            let free = matches!(load, Load::Out(out) if out < 2);
            assert_eq!(candidates.assign(&record("t1")).is_ok(), free, "{load:?}");
        }
        candidates.worker(&a, Some((None, Load::Out(0))));
        assert!(candidates.assign(&record("t1")).is_err(), "it has not said what it serves");
        candidates.worker(&a, Some((Some(&any), Load::Out(0))));
        candidates.worker(&a, None);
        assert_eq!(candidates, Candidates::default());
    }
}
