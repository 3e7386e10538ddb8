//! What follows when a command has ended: it is started again, or `tenure` ends with a code. Pure.

use crate::exit::LOST;
use clap::ValueEnum;

/// When a command that ended by itself is started again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum RestartWhen {
    // Not in the help, which these would make twice as long.
    //
    // Whatever its exit code: it is to run for as long as this node leads. The default, because a leader without its work is
    // worse than none; what is to be done once says `--once`.
    Always,
    // If its exit code is not 0; with 0 it is done, and so is this node.
    OnFailure,
    // Not at all: this node leaves with the command's exit code.
    Never,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Policy {
    pub(crate) restart: RestartWhen,
    /// At most one run, even if leadership is lost during it and comes back.
    pub(crate) once: bool,
}

/// Why a command has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Why {
    /// By itself, or by somebody else's signal.
    Itself,
    /// This node was told to stop.
    Asked,
    /// Its leadership was over or about to be.
    Lost,
    /// It never ran: by the time it could have been started, too little was left of the lease.
    TooLate,
}

impl Why {
    /// In words, for the log.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Why::Itself => "by itself",
            Why::Asked => "told to stop",
            Why::Lost => "stopped: leadership ended",
            Why::TooLate => "not started: too little was left of the lease",
        }
    }
}

/// How a run of the command ended. Nothing of it is left.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Ended {
    pub(crate) why: Why,
    /// Its exit code, 128 and a signal's number, or why there is none.
    pub(crate) code: Result<u8, String>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    /// The supervisor hears this; it starts the command again after a pause, or with the next leadership.
    Again(Result<(), String>),
    /// Leave in order, with this exit code.
    Leave(u8),
}

impl Policy {
    pub(crate) fn after(self, ended: &Ended) -> Next {
        let failure = match &ended.code {
            Ok(0) => Ok(()),
            Ok(code) => Err(format!("exit code {code}")),
            Err(problem) => Err(problem.clone()),
        };
        let own = *ended.code.as_ref().unwrap_or(&1);
        let ends_with_it = self.once || self.restart == RestartWhen::Never;
        match ended.why {
            Why::Itself if ends_with_it => Next::Leave(own),
            Why::Itself => match (self.restart, own) {
                (RestartWhen::OnFailure, 0) => Next::Leave(0),
                (RestartWhen::Always | RestartWhen::OnFailure | RestartWhen::Never, _) => {
                    Next::Again(failure)
                }
            },
            // A service that was told to stop has stopped; a job that was told to stop was not done.
            Why::Asked => Next::Leave(if ends_with_it { own } else { 0 }),
            Why::Lost if self.once => Next::Leave(LOST),
            // What did not run at all may still run once.
            Why::Lost | Why::TooLate => Next::Again(Err(ended.why.as_str().to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(restart: RestartWhen, why: Why, code: u8) -> Next {
        Policy { restart, once: false }.after(&Ended { why, code: Ok(code) })
    }

    fn failed(words: &str) -> Next {
        Next::Again(Err(words.to_owned()))
    }

    #[test]
    fn each_strategy_does_what_it_says() {
        use RestartWhen::{Always, Never, OnFailure};
        assert_eq!(after(Always, Why::Itself, 0), Next::Again(Ok(())));
        assert_eq!(after(Always, Why::Itself, 3), failed("exit code 3"));
        assert_eq!(after(OnFailure, Why::Itself, 0), Next::Leave(0));
        assert_eq!(after(OnFailure, Why::Itself, 137), failed("exit code 137"));
        assert_eq!(after(Never, Why::Itself, 0), Next::Leave(0));
        assert_eq!(after(Never, Why::Itself, 3), Next::Leave(3));
    }

    #[test]
    fn lost_leadership_is_no_end_unless_it_was_to_run_once() {
        for restart in [RestartWhen::Always, RestartWhen::OnFailure, RestartWhen::Never] {
            // Also with code 0: a command that ends in order when told to has not done its work.
            assert_eq!(after(restart, Why::Lost, 0), failed("stopped: leadership ended"));
        }
        let once = Policy { restart: RestartWhen::Never, once: true };
        assert_eq!(once.after(&Ended { why: Why::Lost, code: Ok(0) }), Next::Leave(LOST));
        assert_eq!(once.after(&Ended { why: Why::Itself, code: Ok(0) }), Next::Leave(0));
        let too_late = Ended { why: Why::TooLate, code: Err("none".to_owned()) };
        assert_eq!(once.after(&too_late), failed("not started: too little was left of the lease"));
    }

    #[test]
    fn a_stopped_service_is_fine_and_a_stopped_job_is_not_done() {
        assert_eq!(after(RestartWhen::Always, Why::Asked, 143), Next::Leave(0));
        assert_eq!(after(RestartWhen::OnFailure, Why::Asked, 143), Next::Leave(0));
        assert_eq!(after(RestartWhen::Never, Why::Asked, 143), Next::Leave(143));
    }

    #[test]
    fn a_command_whose_end_nobody_saw_has_failed() {
        let ended = Ended { why: Why::Itself, code: Err("the keeper died".to_owned()) };
        assert_eq!(Policy { restart: RestartWhen::Never, once: false }.after(&ended), Next::Leave(1));
        assert_eq!(
            Policy { restart: RestartWhen::Always, once: false }.after(&ended),
            failed("the keeper died")
        );
    }
}
