//! Whatever is typed, the answer is a command, a help page or an explanation; never a panic.

use super::*;
use clap::CommandFactory;
use clap::error::ErrorKind;
use proptest::prelude::*;

/// Every verb, flag and value name the binary knows: random words alone would never get past the first.
fn words(command: &Command, into: &mut Vec<String>) {
    into.push(command.get_name().to_owned());
    for arg in command.get_arguments() {
        into.extend(arg.get_long().map(|long| format!("--{long}")));
        into.extend(arg.get_possible_values().iter().map(|value| value.get_name().to_owned()));
    }
    command.get_subcommands().for_each(|inner| words(inner, into));
}

fn typed() -> impl Strategy<Value = Vec<String>> {
    let mut known = Vec::new();
    words(&Cli::command(), &mut known);
    let known = prop::sample::select(known);
    let value = prop_oneof![
        any::<String>(),
        any::<i64>().prop_map(|number| number.to_string()),
        "[a-z]{1,8}:[a-z]{0,8}",
        Just("{\"a\": 1}".to_owned()),
        Just("\u{1b}[31m".to_owned()),
        Just("--".to_owned()),
    ];
    let word = prop_oneof![
        3 => known.clone(),
        2 => value.clone(),
        1 => (known, value).prop_map(|(flag, value)| format!("{flag}={value}")),
    ];
    let verb = prop::sample::select(vec![
        vec!["run"],
        vec!["exec"],
        vec!["exec", "--", "true"],
        vec!["lock"],
        vec!["status"],
        vec!["watch"],
        vec!["leader"],
        vec!["step-down"],
        vec!["worker", "run"],
        vec!["workers"],
        vec!["agent", "--id", "a"],
        vec!["apply", "-f", "-"],
        vec!["schedule", "add", "web"],
        vec!["schedule", "list"],
        vec!["schedule", "show", "web"],
        vec!["schedule", "pause", "web"],
        vec!["schedule", "run-now", "web"],
        vec!["schedule", "rm", "web"],
        vec!["jobs"],
        vec!["job", "show", "web-1"],
        vec!["metrics"],
        vec!["cost"],
        vec!["doctor"],
        vec!["config", "show"],
        vec!["config", "check"],
        vec!["demo"],
        vec!["completions"],
        vec!["reference"],
        vec![],
    ]);
    (verb, prop::collection::vec(word, 0..7)).prop_map(|(verb, words)| {
        std::iter::once("tenure").chain(verb).map(str::to_owned).chain(words).collect()
    })
}

/// The settings of a command, where it has any.
fn settings(verb: &Verb) -> Option<&SettingsArgs> {
    match verb {
        Verb::Run(args) => Some(&args.settings),
        Verb::Exec(args) => Some(&args.settings),
        Verb::Lock(args) => Some(&args.settings),
        Verb::Status(args) => Some(&args.settings),
        Verb::Watch(args) => Some(&args.settings),
        Verb::Health(args) => Some(&args.settings),
        Verb::Leader(args) => Some(&args.settings),
        Verb::StepDown(args) => Some(&args.settings),
        Verb::Worker(WorkerArgs { action: WorkerAction::Run(args) }) => Some(&args.settings),
        Verb::Workers(args) => Some(&args.settings),
        Verb::Agent(args) => Some(&args.settings),
        Verb::Apply(args) => Some(&args.settings),
        Verb::Schedule(ScheduleArgs { action }) => Some(match action {
            ScheduleAction::Add(args) => &args.settings,
            ScheduleAction::List(args) => &args.settings,
            ScheduleAction::RunNow(args) => &args.settings,
            ScheduleAction::Show(args)
            | ScheduleAction::Pause(args)
            | ScheduleAction::Resume(args)
            | ScheduleAction::Rm(args) => &args.settings,
        }),
        Verb::Jobs(args) => Some(&args.settings),
        Verb::Job(JobArgs { action: JobAction::Show(args) }) => Some(&args.settings),
        Verb::Metrics(args) => Some(&args.settings),
        Verb::Cost(args) => Some(&args.settings),
        Verb::Doctor(args) => Some(&args.settings),
        Verb::Config(ConfigArgs { action }) => match action {
            ConfigAction::Check { settings } | ConfigAction::Show { settings, .. } => Some(settings),
            ConfigAction::Default => None,
        },
        Verb::Demo(_)
        | Verb::Completions { .. }
        | Verb::Reference { .. }
        | Verb::Keeper(_)
        | Verb::Bound(_) => None,
    }
}

#[test]
fn the_command_line_is_well_formed() {
    Cli::command().debug_assert();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn anything_typed_is_understood_or_explained(line in typed()) {
        match Cli::try_parse_from(&line) {
            Err(error) => {
                let asked = matches!(
                    error.kind(),
                    ErrorKind::DisplayHelp
                        | ErrorKind::DisplayVersion
                        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
                );
                prop_assert!(!error.render().to_string().trim().is_empty());
                prop_assert!(asked || error.exit_code() == 2, "{line:?}: {error}");
            }
            Ok(cli) => {
                if let Verb::Run(args) = &cli.command {
                    args.workers.iter().for_each(|text| drop(crate::worker::parse(text)));
                }
                if let Verb::Schedule(ScheduleArgs { action: ScheduleAction::Add(args) }) = &cli.command {
                    // Whatever the flags say, it is a schedule or an explanation.
                    if let Err(explained) = crate::polls::schedule_of(args) {
                        prop_assert!(!explained.is_empty() && !explained.contains('\u{1b}'), "{explained:?}");
                    }
                }
                // Only flags: a file or a variable of whoever runs the tests must not decide.
                if let Some(settings) = settings(&cli.command) {
                    let mut loader = Settings::loader();
                    for (name, value) in &settings.given {
                        loader = loader.flag(name, value.as_str());
                    }
                    if let Err(error) = loader.load() {
                        prop_assert!(!error.problems.is_empty(), "{line:?}");
                        prop_assert!(!error.to_string().contains('\u{1b}'), "{line:?}: {error:?}");
                    }
                }
            }
        }
    }
}
