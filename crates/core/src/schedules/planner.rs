//! The planner: which due times become jobs now. Pure, and forgetful on purpose.
//!
//! The ledger knows what was created, not the planner: the next leader plans the same from the same schedules, and the
//! ledger refuses what exists. At worst, a planner that knows nothing of the past asks for a job that exists, which is
//! counted and costs nothing. The wall clock may jump. If it goes back, nothing is due that was not due before; if it goes
//! forward, the due times in between were missed.
//!
//! Not promised: a watermark that a wrong clock has put into the future stays there, and the schedule creates nothing until then
//! ([`SeriesView::ahead_ms`] shows it). The way out is a schedule with another name.

use super::{DueTimes, Planned, ScheduleTerms};
use crate::id::{JobId, ScheduleId, SeriesId};

use crate::mutants::Mutant;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Missed due times are counted up to this many at once.
const COUNTED_MAX: u64 = 10_000;

/// How many looks at the ledger's jobs may miss a created job before it no longer counts as open.
const UNSEEN_MAX: u8 = 3;

/// A due time that should become a job.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Due {
    pub schedule: ScheduleId,
    /// The due time. It names the job and is its watermark.
    pub due_ms: u64,
    /// How long ago it should have begun.
    pub late_ms: u64,
}

/// Due times of a schedule that passed and never become a job.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Missed {
    pub schedule: ScheduleId,
    /// How many, as far as they were counted.
    pub count: u64,
    /// The last of them.
    pub last_ms: u64,
}

/// The ledger's answer about a planned job.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum JobAnswer {
    Created,
    Existed,
    /// Nothing was written; the planner plans the job again.
    Refused,
}

/// Counters of a planner.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct PlanCounts {
    pub created: u64,
    /// Jobs that existed already.
    pub duplicates: u64,
    /// Due times that passed and, by the misfire policy, never become a job.
    pub missed: u64,
    /// Due times that passed while the schedule had its maximum of open jobs. The misfire policy decides about them later.
    pub blocked: u64,
    /// How late the last job was created.
    pub due_lag_ms: u64,
    pub due_lag_max_ms: u64,
}

/// The present state of a schedule.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct SeriesView {
    /// The newest due time known to have become a job; 0 if none is known.
    pub watermark_ms: u64,
    /// Jobs of the schedule that are not finished.
    pub open: u64,
    /// How far the watermark is ahead of the clock; nothing is created until the clock catches up.
    pub ahead_ms: u64,
    /// When the next job begins, if the clock does not jump.
    pub next_ms: Option<u64>,
    /// Why nothing is created although something is due (`schedule_full`); `None` if nothing is blocked.
    pub blocked: Option<&'static str>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct Series {
    watermark_ms: u64,
    /// Due times up to here have been decided.
    judged_ms: u64,
    /// Due times up to here were counted as blocked.
    blocked_ms: u64,
    blocked: bool,
    open: BTreeSet<JobId>,
    /// When to plan the schedule again, going by time alone.
    next_ms: Option<u64>,
    /// Created jobs that have not shown up among the ledger's jobs yet, with the number of looks that missed them.
    unseen: BTreeMap<JobId, u8>,
}

impl Series {
    fn open(&self) -> u64 {
        self.open.len() as u64 + self.unseen.len() as u64
    }
}

#[derive(Default)]
struct Decision {
    create: Vec<u64>,
    /// Due times up to here are decided.
    judged_ms: u64,
    /// The newest due time that has to wait until an open job finishes.
    waits_ms: Option<u64>,
}

/// Decides which due times become jobs.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Planner<S> {
    schedules: BTreeMap<ScheduleId, S>,
    series: BTreeMap<ScheduleId, Series>,
    counts: PlanCounts,
    /// Not taken yet.
    missed: Vec<Missed>,
    /// When to plan each schedule that has a next time.
    queue: BTreeSet<(u64, ScheduleId)>,
    /// Schedules that changed: they are part of the next plan, whatever the time.
    touched: BTreeSet<ScheduleId>,
    planned_ms: u64,
}

impl<S> Default for Planner<S> {
    fn default() -> Planner<S> {
        Planner {
            schedules: BTreeMap::new(),
            series: BTreeMap::new(),
            counts: PlanCounts::default(),
            missed: Vec::new(),
            queue: BTreeSet::new(),
            touched: BTreeSet::new(),
            planned_ms: 0,
        }
    }
}

impl<S: Planned> Planner<S> {
    /// Adds a schedule or replaces an earlier version of it.
    pub fn put(&mut self, schedule: S) {
        self.series.entry(schedule.id().clone()).or_default();
        self.touched.insert(schedule.id().clone());
        self.schedules.insert(schedule.id().clone(), schedule);
    }

    /// Forgets a schedule. Its jobs carry on; its watermarks stay in the ledger.
    pub fn remove(&mut self, id: &ScheduleId) {
        self.schedules.remove(id);
        self.requeue(id, None);
        self.series.remove(id);
    }

    pub fn schedules(&self) -> &BTreeMap<ScheduleId, S> {
        &self.schedules
    }

    pub fn counts(&self) -> PlanCounts {
        self.counts
    }

    /// The due times that were found missed since this was last asked.
    pub fn take_missed(&mut self) -> Vec<Missed> {
        std::mem::take(&mut self.missed)
    }

    /// Takes the state of all jobs in the ledger: schedule, job, watermark, and whether the job is open. Needed once, and
    /// whenever [notes](Planner::note) were missed.
    pub fn observe<'t>(&mut self, jobs: impl IntoIterator<Item = (&'t SeriesId, &'t JobId, u64, bool)>) {
        for series in self.series.values_mut() {
            series.open.clear();
            series.unseen.values_mut().for_each(|looks| *looks += 1);
        }
        for (series, job, watermark_ms, open) in jobs {
            let Some(series) = self.series.get_mut(&series.schedule()) else { continue };
            series.unseen.remove(job);
            series.watermark_ms = series.watermark_ms.max(watermark_ms);
            if open && !Mutant::PlanOpenForgotten.on() {
                series.open.insert(job.clone());
            }
        }
        for series in self.series.values_mut() {
            series.unseen.retain(|_, looks| *looks < UNSEEN_MAX);
        }
        self.touched.extend(self.schedules.keys().cloned());
    }

    /// Takes a change of one job: whether it is open now.
    pub fn note(&mut self, schedule: &ScheduleId, job: &JobId, open: bool) {
        let Some(series) = self.series.get_mut(schedule) else { return };
        let unseen = series.unseen.remove(job).is_some();
        let changed = match open {
            true => series.open.insert(job.clone()) != unseen,
            false => series.open.remove(job) || unseen,
        };
        if changed {
            self.touched.insert(schedule.clone());
        }
    }

    pub fn answered(&mut self, due: &Due, answer: JobAnswer) {
        let Some(series) = self.series.get_mut(&due.schedule) else { return };
        self.touched.insert(due.schedule.clone());
        match answer {
            JobAnswer::Created => {
                self.counts.created += 1;
                self.counts.due_lag_ms = due.late_ms;
                self.counts.due_lag_max_ms = self.counts.due_lag_max_ms.max(due.late_ms);
                series.watermark_ms = series.watermark_ms.max(due.due_ms);
                if let Ok(job) = due.schedule.job(due.due_ms) {
                    series.unseen.insert(job, 0);
                }
            }
            JobAnswer::Existed => {
                self.counts.duplicates += 1;
                series.watermark_ms = series.watermark_ms.max(due.due_ms);
            }
            JobAnswer::Refused => {}
        }
    }

    /// Takes room for a requested job that is about to be created; `false` if there is none.
    pub fn reserve(&mut self, schedule: &ScheduleId, job: JobId) -> bool {
        let room = self.has_room(schedule) || Mutant::PlanRequestsUnlimited.on();
        let series = self.series.get_mut(schedule).filter(|_| room);
        series.map(|series| series.unseen.insert(job, 0)).is_some()
    }

    /// That job was not created: its room is free again.
    pub fn release(&mut self, schedule: &ScheduleId, job: &JobId) {
        if let Some(series) = self.series.get_mut(schedule) {
            series.unseen.remove(job);
            self.plan_again(schedule);
        }
    }

    /// Makes this schedule part of the next plan, whatever the time.
    pub fn plan_again(&mut self, schedule: &ScheduleId) {
        self.touched.insert(schedule.clone());
    }

    /// Whether one more job of this schedule may be open.
    pub fn has_room(&self, id: &ScheduleId) -> bool {
        let (schedule, series) = (self.schedules.get(id), self.series.get(id));
        schedule.zip(series).is_some_and(|(schedule, series)| series.open() < schedule.terms().open_max)
    }

    /// The due times that become jobs now. Plan again at once if any of them turned out to exist: it did not need its room.
    ///
    /// Higher priorities come first, then older due times. The due times of one schedule are always in time order and must
    /// be submitted in it: the ledger accepts nothing older after something newer.
    pub fn plan(&mut self, now_ms: u64) -> Vec<Due> {
        let mut dues = Vec::new();
        if now_ms < self.planned_ms {
            // The clock was set back, so everything computed from it is void.
            self.touched.extend(self.schedules.keys().cloned());
        }
        self.planned_ms = now_ms;
        let mut ids = std::mem::take(&mut self.touched);
        ids.extend(self.queue.iter().take_while(|(at_ms, _)| *at_ms <= now_ms).map(|(_, id)| id.clone()));
        for id in &ids {
            let schedule = self.schedules.get(id).filter(|schedule| schedule.terms().enabled);
            let next_ms = schedule.and_then(|schedule| self.next_of(schedule, now_ms));
            self.requeue(id, next_ms);
            let schedule = self.schedules.get(id).filter(|schedule| schedule.terms().enabled);
            let (Some(schedule), Some(series)) = (schedule, self.series.get_mut(id)) else { continue };
            let (terms, times) = (schedule.terms(), schedule.times());
            let floor_ms = floor_ms(&terms, series);
            let decision = decide(schedule, &terms, floor_ms, series.open(), now_ms);
            // If only the schedule's start precedes these due times, others may have created them: they are not ours to call
            // missed.
            if decision.judged_ms > floor_ms {
                if floor_ms > terms.since_ms {
                    let (schedule, last_ms) = (id.clone(), decision.judged_ms);
                    let count = times.count(floor_ms, last_ms, COUNTED_MAX);
                    self.counts.missed += count;
                    self.missed.push(Missed { schedule, count, last_ms });
                }
                series.judged_ms = decision.judged_ms;
            }
            series.blocked = decision.waits_ms.is_some();
            if let Some(waits_ms) = decision.waits_ms {
                let created_ms = decision.create.last().copied().unwrap_or(0);
                let from_ms = floor_ms.max(series.blocked_ms).max(series.judged_ms).max(created_ms);
                self.counts.blocked += times.count(from_ms, waits_ms, COUNTED_MAX);
                series.blocked_ms = series.blocked_ms.max(waits_ms);
            }
            dues.extend(decision.create.into_iter().map(|due_ms| Due {
                schedule: id.clone(),
                due_ms,
                late_ms: now_ms.saturating_sub(times.begins_ms(id.as_str(), due_ms)),
            }));
        }
        let priority =
            |due: &Due| self.schedules.get(&due.schedule).map_or(0, |schedule| schedule.terms().priority);
        dues.sort_by_cached_key(|due| (Reverse(priority(due)), due.due_ms, due.schedule.clone()));
        dues
    }

    /// When to plan next if nothing else happens; `None` if nothing will become due.
    pub fn next_ms(&self, now_ms: u64) -> Option<u64> {
        let touched = self.touched.iter().filter_map(|id| self.schedules.get(id));
        let touched = touched.filter(|schedule| schedule.terms().enabled);
        let touched = touched.filter_map(|schedule| self.next_of(schedule, now_ms));
        let queued = self.queue.iter().map(|(at_ms, _)| *at_ms).find(|at_ms| *at_ms > now_ms);
        touched.chain(queued).min()
    }

    fn requeue(&mut self, id: &ScheduleId, next_ms: Option<u64>) {
        let Some(series) = self.series.get_mut(id) else { return };
        let before_ms = std::mem::replace(&mut series.next_ms, next_ms);
        if before_ms == next_ms {
            return;
        }
        if let Some(at_ms) = before_ms {
            self.queue.remove(&(at_ms, id.clone()));
        }
        if let Some(at_ms) = next_ms {
            self.queue.insert((at_ms, id.clone()));
        }
    }

    fn next_of(&self, schedule: &S, now_ms: u64) -> Option<u64> {
        let (id, times) = (schedule.id(), schedule.times());
        let floor_ms = floor_ms(&schedule.terms(), self.series.get(id)?);
        let begins_ms = |due_ms| times.begins_ms(id.as_str(), due_ms);
        let newest = times.newest(floor_ms, now_ms, 1).pop().map(begins_ms);
        match newest.filter(|begins_ms| *begins_ms > now_ms) {
            Some(begins_ms) => Some(begins_ms),
            None => times.next(floor_ms.max(now_ms)).map(begins_ms),
        }
    }

    /// The state of a schedule; `None` if it is unknown.
    pub fn view(&self, id: &ScheduleId, now_ms: u64) -> Option<SeriesView> {
        let (schedule, series) = (self.schedules.get(id)?, self.series.get(id)?);
        let next_ms = if schedule.terms().enabled { self.next_of(schedule, now_ms) } else { None };
        Some(SeriesView {
            watermark_ms: series.watermark_ms,
            open: series.open(),
            ahead_ms: series.watermark_ms.saturating_sub(now_ms),
            next_ms,
            blocked: series.blocked.then_some("schedule_full"),
        })
    }

    pub fn is_open(&self, schedule: &ScheduleId, job: &JobId) -> bool {
        let series = self.series.get(schedule);
        series.is_some_and(|series| series.open.contains(job) || series.unseen.contains_key(job))
    }

    /// Open jobs of all schedules.
    pub fn open(&self) -> u64 {
        self.series.values().map(Series::open).sum()
    }

    pub fn ids(&self) -> BTreeSet<ScheduleId> {
        self.schedules.keys().cloned().collect()
    }
}

fn floor_ms(terms: &ScheduleTerms, series: &Series) -> u64 {
    terms.since_ms.max(series.watermark_ms).max(series.judged_ms)
}

/// Considers the due times after `floor_ms` whose time to begin has come. Keeps those not later than the threshold, and of
/// the others the newest ones, by the misfire policy. Creates the oldest of these first, as far as there is room.
///
/// A due time without room is neither queued nor dropped: the misfire policy judges it once there is room. That needs no
/// memory, so every leader does the same; and it is what a reader expects of "missed".
fn decide<S: Planned>(
    schedule: &S,
    terms: &ScheduleTerms,
    floor_ms: u64,
    open: u64,
    now_ms: u64,
) -> Decision {
    let (times, kept) = (schedule.times(), terms.misfire.kept());
    let kept = if kept > 0 && Mutant::PlanEveryMissed.on() { usize::MAX / 4 } else { kept };
    let begins_ms = |due_ms: u64| times.begins_ms(schedule.id().as_str(), due_ms);
    // Due times that can still be in time if they begin without jitter. Jitter is less than an interval, so one more may be
    // waiting.
    let longest_ms = times.jitter_max_ms();
    let reach_ms =
        now_ms.saturating_sub(terms.misfire_threshold_ms.saturating_add(longest_ms)).saturating_sub(1);
    let fresh = times.count(reach_ms.max(floor_ms), now_ms, COUNTED_MAX);
    let wanted = usize::try_from(fresh).unwrap_or(usize::MAX).saturating_add(kept).saturating_add(2);
    let mut due = times.newest(floor_ms, now_ms, wanted);
    due.retain(|due_ms| begins_ms(*due_ms) <= now_ms);
    let late = |due_ms: &u64| now_ms - begins_ms(*due_ms) > terms.misfire_threshold_ms;
    let missed = due.iter().filter(|due_ms| late(due_ms)).count();
    let dropped = missed.saturating_sub(kept);
    let newest_dropped_ms = dropped.checked_sub(1).and_then(|last| due.get(last).copied());
    let mut create = due.split_off(dropped);
    let room = usize::try_from(terms.open_max.saturating_sub(open)).unwrap_or(usize::MAX);
    let waiting = create.split_off(room.min(create.len()));
    // What is dropped now would be dropped later too: the newest due times only get newer.
    let judged_ms = newest_dropped_ms.unwrap_or(0);
    Decision { judged_ms, waits_ms: waiting.last().copied(), create }
}
