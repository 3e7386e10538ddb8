//! The scheduler of a leader. It asks nothing of the store: its jobs go to the dispatcher beside it.

use crate::caller_mistakes::CallerMistake;
use crate::machines::dispatcher::{Dispatching, job};
use crate::shell::{Part, PartName, Played, Who};
use crate::store::{Op, Said};
use crate::world::World;
use std::collections::BTreeMap;
use tenure_core::machine::{Input, Request};
use tenure_core::{
    DispatchCommand, Interval, JobAnswer, Planned, RequestId, ScheduleId, ScheduleTerms, Scheduler,
    SchedulerCommand, SchedulerOutput, SubmitAnswer, SubmitJobs,
};

pub(crate) type Scheduling = Scheduler<Round>;

/// A schedule.
#[derive(Clone, Debug)]
pub(crate) struct Round {
    pub(crate) id: ScheduleId,
    pub(crate) interval: Interval,
    pub(crate) terms: ScheduleTerms,
}

impl Planned for Round {
    type Times = Interval;

    fn id(&self) -> &ScheduleId {
        &self.id
    }

    fn terms(&self) -> ScheduleTerms {
        self.terms
    }

    fn times(&self) -> &Interval {
        &self.interval
    }
}

/// Jobs that were handed to the dispatcher and not all answered.
pub(crate) struct Submission {
    id: RequestId,
    /// By the dispatcher's token, the place of the answer.
    open: BTreeMap<u64, usize>,
    answers: Vec<JobAnswer>,
}

impl Played for Scheduling {
    const NAME: PartName = PartName::Scheduler;

    fn part(world: &mut World, who: Who) -> Option<&mut Part<Scheduling>> {
        Some(&mut world.dispatch_mut(who)?.scheduler)
    }

    fn before(world: &mut World, who: Who) -> bool {
        world.still_dispatches(who)
    }

    fn op(world: &mut World, who: Who, id: RequestId, SubmitJobs(jobs): &SubmitJobs<Round>) -> Option<Op> {
        world.check_misfire(who, jobs);
        // The broken caller: a different name for each attempt to create it, and no watermark.
        let anew = world.mistake == Some(CallerMistake::JobNamedAnew);
        let limits = world.workload.limits.clone();
        let dispatch = world.dispatch_mut(who)?;
        let (mut open, mut records) = (BTreeMap::new(), Vec::new());
        for (place, new) in jobs.iter().enumerate() {
            let (name, watermark) = match anew {
                true => (format!("{}-{}", new.id, dispatch.part.number), 0),
                false => (new.id.to_string(), new.watermark()),
            };
            dispatch.tokens += 1;
            open.insert(dispatch.tokens, place);
            records.push((dispatch.tokens, job(&name, &new.schedule.id.series(), watermark, limits.clone())));
        }
        let answers = vec![JobAnswer::Refused; jobs.len()];
        dispatch.round = Some(Submission { id, open, answers });
        world.command::<Dispatching>(who, DispatchCommand::Submit(records));
        None
    }

    fn answer(_: &mut World, _: Who, request: SubmitJobs<Round>, said: Said) -> Vec<JobAnswer> {
        if let Said::Submitted(answers) = said { answers } else { request.unanswered() }
    }

    fn output(_: &mut World, _: Who, _: SchedulerOutput) {}
}

impl World {
    /// Tells the scheduler of this node all schedules.
    pub(crate) fn put_rounds(&mut self, node: usize) {
        for schedule in self.workload.rounds.clone() {
            let put = SchedulerCommand::Put { schedule, requested: Vec::new() };
            self.command::<Scheduling>(Who::Node(node), put);
        }
    }

    /// The dispatcher has answered one job of the submission.
    pub(crate) fn job_answered(&mut self, who: Who, token: u64, answer: SubmitAnswer) {
        let Some(dispatch) = self.dispatch_mut(who) else { return };
        let Some(round) = &mut dispatch.round else { return };
        let Some(place) = round.open.remove(&token) else { return };
        round.answers[place] = match answer {
            SubmitAnswer::Created => JobAnswer::Created,
            SubmitAnswer::Exists | SubmitAnswer::BelowWatermark => JobAnswer::Existed,
            SubmitAnswer::Full | SubmitAnswer::Blocked | SubmitAnswer::Ended => JobAnswer::Refused,
        };
        if let Some(round) = dispatch.round.take_if(|round| round.open.is_empty()) {
            self.feed::<Scheduling>(who, Input::Answer(round.id, Said::Submitted(round.answers)));
        }
    }
}
