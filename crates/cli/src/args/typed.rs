//! What holds for every command line: whatever is typed, the answer is a command, a help page or an explanation.
//!
//! Compiled for tests and with the feature `fuzzing` only.

use super::*;
use clap::error::ErrorKind;

/// Words, one a line, as a fuzzer has them. Whether they are a command.
pub(crate) fn words(input: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(input) else { return false };
    let line: Vec<String> = std::iter::once("tenure").chain(text.lines()).map(str::to_owned).collect();
    check(&line)
}

/// Panics where a promise is broken; whether the line is a command.
pub(super) fn check(line: &[String]) -> bool {
    let cli = match Cli::try_parse_from(line) {
        Ok(cli) => cli,
        Err(error) => {
            let asked = matches!(
                error.kind(),
                ErrorKind::DisplayHelp
                    | ErrorKind::DisplayVersion
                    | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
            );
            assert!(!error.render().to_string().trim().is_empty());
            assert!(asked || error.exit_code() == 2, "{line:?}: {error}");
            return false;
        }
    };
    if let Verb::Run(args) = &cli.command {
        args.workers.iter().for_each(|text| drop(crate::worker::parse(text)));
    }
    if let Verb::Schedule(ScheduleArgs { action: ScheduleAction::Add(args) }) = &cli.command {
        // Whatever the flags say, it is a schedule or an explanation.
        if let Err(explained) = crate::schedules::schedule_of(args) {
            assert!(!explained.is_empty() && !explained.contains('\u{1b}'), "{explained:?}");
        }
    }
    // Only flags: a file or a variable of whoever runs the tests must not decide.
    if let Some(settings) = settings(&cli.command) {
        let mut loader = Settings::loader();
        for (name, value) in &settings.given {
            loader = loader.flag(name, value.as_str());
        }
        if let Err(error) = loader.load() {
            assert!(!error.problems.is_empty(), "{line:?}");
            assert!(!error.to_string().contains('\u{1b}'), "{line:?}: {error:?}");
        }
    }
    true
}

/// The settings of a command, where it has any.
fn settings(verb: &Verb) -> Option<&SettingsArgs> {
    match verb {
        Verb::Run(args) => Some(&args.settings),
        Verb::Exec(args) => Some(&args.kept.settings),
        Verb::Lock(LockArgs { action: Some(LockAction::Ls(args)), .. }) => Some(&args.settings),
        Verb::Lock(args) => Some(&args.kept.settings),
        Verb::Once(args) => Some(&args.kept.settings),
        Verb::Status(args) => Some(&args.settings),
        Verb::History(args) => Some(&args.settings),
        Verb::Watch(args) => Some(&args.settings),
        Verb::Token(args) => Some(&args.settings),
        Verb::Health(args) => Some(&args.settings),
        Verb::Leader(args) => Some(&args.settings),
        Verb::StepDown(args) => Some(&args.settings),
        Verb::Namespaces(args) => Some(&args.settings),
        Verb::Node(NodeArgs { action: NodeAction::Forget(args) }) => Some(&args.settings),
        Verb::Worker(WorkerArgs { action: WorkerAction::Run(args) }) => Some(&args.settings),
        Verb::Workers(args) => Some(&args.settings),
        Verb::Agent(args) => Some(&args.settings),
        Verb::Apply(args) => Some(&args.settings),
        Verb::Schedule(ScheduleArgs { action }) => Some(match action {
            ScheduleAction::Add(args) => &args.settings,
            ScheduleAction::List(args) => &args.settings,
            ScheduleAction::RunNow(args) => &args.settings,
            ScheduleAction::Export(args) => &args.settings,
            ScheduleAction::Show(args)
            | ScheduleAction::Pause(args)
            | ScheduleAction::Resume(args)
            | ScheduleAction::Rm(args) => &args.settings,
        }),
        Verb::Job(JobArgs { action }) => Some(match action {
            JobAction::Ls(args) => &args.settings,
            JobAction::History(args) => &args.settings,
            JobAction::Logs(args) => &args.settings,
            JobAction::Submit(args) => &args.settings,
            JobAction::Retry(args) => &args.settings,
            JobAction::Show(args) | JobAction::Cancel(args) | JobAction::Rm(args) => &args.settings,
        }),
        Verb::Queue(QueueArgs { action }) => Some(match action {
            QueueAction::Ls(args) => &args.settings,
            QueueAction::Set(args) => &args.settings,
            QueueAction::Show(args) | QueueAction::Pause(args) | QueueAction::Resume(args) => &args.settings,
        }),
        Verb::Metrics(args) => Some(&args.settings),
        Verb::Cost(args) => Some(&args.settings),
        Verb::Doctor(args) => Some(&args.settings),
        Verb::Config(ConfigArgs { action }) => match action {
            ConfigAction::Check { settings } | ConfigAction::Show { settings, .. } => Some(settings),
            ConfigAction::Default => None,
        },
        Verb::Events(_)
        | Verb::Demo(_)
        | Verb::Completions { .. }
        | Verb::Man { .. }
        | Verb::Reference { .. }
        | Verb::Keeper(_)
        | Verb::Bound(_) => None,
    }
}
