//! The machines of the core, one file each: what their requests ask of the store, and what their outputs mean in the world.

pub(crate) mod claimer;
pub(crate) mod dispatcher;
pub(crate) mod election;
pub(crate) mod once;
pub(crate) mod registration;
pub(crate) mod scheduler;
pub(crate) mod submitter;
pub(crate) mod supervision;
pub(crate) mod sweep;

use crate::queue::{Happening, Run};
use crate::shell::Who;
use crate::world::World;
use tenure_core::{Coordinator, Input, Supervision, SupervisionCommand};

impl World {
    /// Something that runs changes at this time, if its process still lives then.
    pub(crate) fn run_later(&mut self, at: u64, who: Who, what: Run) {
        let life = self.life(who);
        self.schedule(at, who, Happening::Run { life, what });
    }

    /// Something that runs on a node or a worker changes. What runs on a computer that stands still does so afterwards.
    pub(crate) fn run_changes(&mut self, who: Who, what: Run) {
        let (life, computer) = (self.life(who), self.computer_mut(who));
        if computer.paused {
            return computer.held.push((who, life, what));
        }
        match what {
            Run::WorkStopped(epoch) => self.command::<Coordinator>(who, Input::ProcessesStopped { epoch }),
            Run::ProcessReady { process, instance } => {
                self.command::<Supervision>(who, SupervisionCommand::Ready { process, instance });
            }
            Run::ProcessEnded { process, instance, outcome } => {
                self.process_ended(who, process, instance, outcome)
            }
            Run::ProcessFails { process, instance, outcome } => {
                self.process_fails(who, process, instance, outcome)
            }
            Run::StandAside { hold_ms } => self.stand_aside(who, hold_ms),
            Run::StoodAside => self.stood_aside(who),
            Run::OnceEnded { number } => self.once_ended(who, number),
            Run::OnceNext => {
                if let Who::Node(node) = who {
                    self.begin_once(node);
                }
            }
            Run::JobEnded { job, token, kind } => self.job_ended(who, job, token, kind),
        }
    }
}
