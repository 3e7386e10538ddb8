//! `tenure-sim`: runs schedules, replays, the explorer and the broken variants from the command line.
#![allow(clippy::print_stdout, reason = "it is a command")]

use clap::{Parser, Subcommand, ValueEnum};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use tenure_core::Mutant;
use tenure_sim::evidence::{Figures, SPEED_LEAST};
use tenure_sim::explore::{Limits, explore};
use tenure_sim::mutants::{self, Broken};
use tenure_sim::{FaultKind, FaultMix, Options, report, timeline};

/// The production protocol in worlds where everything goes wrong.
#[derive(Parser)]
#[command(name = "tenure-sim")]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Random schedules; a failing seed is printed with the command that replays it
    Run {
        /// How many
        #[arg(long, default_value_t = 10_000)]
        seeds: u64,
        /// The first seed
        #[arg(long, default_value_t = 0)]
        from: u64,
        /// No longer than this
        #[arg(long)]
        minutes: Option<f64>,
        /// On so many threads
        #[arg(long, default_value_t = 1)]
        threads: usize,
        /// Without this kind of fault; may be repeated
        #[arg(long, value_name = "FAULT")]
        without: Vec<String>,
        /// With the production driver on paused time instead of the core alone
        #[arg(long)]
        driver: bool,
        /// For programs
        #[arg(long)]
        json: bool,
    },
    /// One schedule, told in full
    Replay {
        /// Its seed
        seed: u64,
        /// A picture of it
        #[arg(long, value_name = "FILE")]
        svg: Option<PathBuf>,
        /// With a broken variant (feature `teeth`)
        #[arg(long)]
        mutant: Option<String>,
    },
    /// Every state a few nodes can reach
    Explore {
        /// How many nodes
        #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(2..=3))]
        nodes: u8,
        /// How far
        #[arg(long, value_enum, default_value = "small")]
        size: Size,
        /// A broken variant (feature `teeth`)
        #[arg(long)]
        mutant: Option<String>,
        /// For programs
        #[arg(long)]
        json: bool,
    },
    /// Days on a store in a far region: median write 220 ms, p99 700 ms, 0.3 % above 1 s
    Far {
        /// How many days
        #[arg(long, default_value_t = 30)]
        days: u64,
        /// The seed
        #[arg(long, default_value_t = 0)]
        seed: u64,
    },
    /// The figures of a proof as a page shows them; exit code 1 if they are not clean
    Evidence {
        /// All of them, as JSON
        figures: PathBuf,
        /// What they were found with
        #[arg(long)]
        commit: String,
    },
    /// The broken variants, each of which must be caught (those of the core need the feature `teeth`)
    Teeth {
        /// For programs
        #[arg(long)]
        json: bool,
    },
}

#[derive(Clone, Copy, ValueEnum)]
enum Size {
    /// Seconds
    Small,
    /// Minutes and gigabytes
    Large,
}

fn main() -> ExitCode {
    // A failed assertion of the core is reported as a violation, with its seed.
    std::panic::set_hook(Box::new(|_| {}));
    let result = match Args::parse().command {
        Command::Run { seeds, from, minutes, threads, without, driver, json } => {
            run(seeds, from, minutes, threads, &without, driver, json)
        }
        Command::Replay { seed, svg, mutant } => replay(seed, svg, mutant.as_deref()),
        Command::Explore { nodes, size, mutant, json } => {
            exploration(usize::from(nodes), size, mutant.as_deref(), json)
        }
        Command::Far { days, seed } => {
            far(days, seed);
            Ok(true)
        }
        Command::Teeth { json } => Ok(bite(json)),
        Command::Evidence { figures, commit } => evidence(&figures, &commit),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(problem) => {
            eprintln!("tenure-sim: {problem}");
            ExitCode::from(2)
        }
    }
}

fn evidence(figures: &Path, commit: &str) -> Result<bool, String> {
    let text = std::fs::read_to_string(figures).map_err(|error| format!("{}: {error}", figures.display()))?;
    let all = serde_json::from_str(&text).map_err(|error| format!("{}: {error}", figures.display()))?;
    let figures = Figures::read(&all);
    println!("{}", figures.text(commit).trim_end());
    if figures.speed() < SPEED_LEAST {
        eprintln!(
            "too slow: {:.0} of {SPEED_LEAST:.0} simulated seconds a second of a thread",
            figures.speed()
        );
    }
    Ok(figures.is_clean())
}

/// The settings from before the hold was separate are here for comparison.
fn far(days: u64, seed: u64) {
    let of = |heartbeat_ms, lease_ms, election_interval_ms, hold_factor_permille| tenure_core::Config {
        heartbeat_ms,
        lease_ms,
        hold_factor_permille,
        election_interval_ms,
        ..tenure_core::Config::default()
    };
    let presets = [
        ("default", of(1500, 2500, 1000, 2000)),
        ("thrifty", of(9000, 15_000, 5000, 2000)),
        ("fast", of(300, 500, 250, 2000)),
    ];
    println!("in {days} days            renewals     stops of work   leaderships lost");
    for (name, config) in presets.into_iter().chain([("hold = lease, 1 s", of(1000, 2500, 1000, 1000))]) {
        let outcome = tenure_sim::far_region::far(config, days, seed);
        println!("{name:20} {:>12} {:>17} {:>18}", outcome.renewals, outcome.stops, outcome.losses);
    }
}

fn mutant_named(name: Option<&str>) -> Result<Option<Mutant>, String> {
    let Some(name) = name else { return Ok(None) };
    if !cfg!(feature = "teeth") {
        return Err("broken variants need a build with `--features teeth`".to_owned());
    }
    let all = || Mutant::ELECTION.iter().chain(Mutant::LEADERS_WORK);
    let found = all().find(|mutant| format!("{mutant:?}") == name);
    let names: Vec<String> = all().map(|mutant| format!("{mutant:?}")).collect();
    found
        .map(|mutant| Some(*mutant))
        .ok_or_else(|| format!("no variant {name:?}; there are {}", names.join(", ")))
}

fn run(
    seeds: u64,
    from: u64,
    minutes: Option<f64>,
    threads: usize,
    without: &[String],
    driver: bool,
    json: bool,
) -> Result<bool, String> {
    let mut mix = FaultMix::all();
    for name in without {
        let kind = FaultKind::ALL.iter().find(|kind| kind.name() == name);
        let names: Vec<&str> = FaultKind::ALL.iter().map(|kind| kind.name()).collect();
        mix = mix.without(*kind.ok_or_else(|| format!("no fault {name:?}; there are {}", names.join(", ")))?);
    }
    let time = minutes.map(|minutes| Duration::from_secs_f64(minutes * 60.0));
    if driver {
        return Ok(with_driver(seeds, from, time, json));
    }
    let report = report::run_many(from, seeds, time, threads, &Options { mix, ..Options::default() });
    if json {
        println!("{:#}", report.to_json());
        return Ok(report.violated == 0);
    }
    println!(
        "{} schedules, {} simulated seconds, {} steps, {} faults, {} claims: {} violated ({:.0} simulated seconds a second)",
        report.schedules,
        report.simulated_ms / 1000,
        report.steps,
        report.faults.total(),
        report.claims,
        report.violated,
        report.speed()
    );
    println!(
        "{} steps held against the model of the proof, its clauses checked {} times",
        report.followed.steps, report.clauses
    );
    let work = report.work;
    println!(
        "{} of them with leaders' work: {} scheduled jobs, {} jobs ended, {} runs, {} late results, {} jobs tried again, {} runs for a key, {} restarts of processes, {} times given up",
        work.schedules,
        work.jobs,
        work.finished,
        work.runs,
        work.late,
        work.retries,
        work.once,
        work.restarts,
        work.gave_up
    );
    for (seed, violation) in &report.failures {
        println!("seed {seed} at {} ms: {}: {}", violation.at, violation.check, violation.what);
        println!("    tenure-sim replay {seed}");
    }
    Ok(report.violated == 0)
}

fn with_driver(seeds: u64, from: u64, time: Option<Duration>, json: bool) -> bool {
    let report = tenure_sim::cluster::run_many(from, seeds, time);
    if json {
        println!("{:#}", report.to_json());
    } else {
        println!(
            "{} schedules of the driver, {} simulated seconds, {} leaders, {} acts, {} steps held against the model: {} violated",
            report.schedules,
            report.simulated_s,
            report.leaders,
            report.acts,
            report.followed.steps,
            report.violations.len()
        );
        for (seed, what) in &report.violations {
            println!("seed {seed}: {what}\n    tenure-sim run --driver --from {seed} --seeds 1");
        }
    }
    report.violations.is_empty()
}

fn replay(seed: u64, svg: Option<PathBuf>, mutant: Option<&str>) -> Result<bool, String> {
    let mutant = mutant_named(mutant)?;
    let outcome = tenure_sim::run(seed, &Options { record: true, mutant, ..Options::default() });
    print!("{}", timeline::text(&outcome));
    if let Some(path) = svg {
        let picture = timeline::svg(&outcome, &format!("seed {seed}"));
        std::fs::write(&path, picture).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(outcome.violations.is_empty())
}

fn exploration(nodes: usize, size: Size, mutant: Option<&str>, json: bool) -> Result<bool, String> {
    let mutant = mutant_named(mutant)?;
    let searches = match size {
        Size::Small => Limits::small(nodes),
        Size::Large => Limits::large(nodes),
    };
    let mut results = Vec::new();
    let mut clean = true;
    for limits in searches {
        let found = explore(&limits, mutant);
        let violation = found.violation.as_ref();
        if !json {
            println!(
                "{nodes} nodes, {} epochs, {} faults, {} crashes, {} pauses, {} hand-overs: {} states, {} steps tried, \
                 {} held against the model, depth {}, a leader within {} ms from each, {}, {:.1} s",
                limits.epochs,
                limits.faults,
                limits.crashes,
                limits.pauses,
                limits.step_downs,
                found.states,
                found.transitions,
                found.followed.steps,
                found.depth,
                found.longest_ms,
                if found.complete { "complete" } else { "not complete" },
                found.took.as_secs_f64()
            );
            if let Some((violation, steps)) = violation {
                println!("{}: {}", violation.check, violation.what);
                steps.iter().for_each(|step| println!("    {step}"));
            }
        }
        clean &= violation.is_none();
        results.push(json!({
            "nodes": nodes, "epochs": limits.epochs, "faults": limits.faults, "crashes": limits.crashes,
            "pauses": limits.pauses, "handOvers": limits.step_downs, "states": found.states,
            "transitions": found.transitions, "followed": found.followed.to_json(), "longestMs": found.longest_ms, "depth": found.depth, "complete": found.complete,
            "seconds": found.took.as_secs_f64(), "violation": violation.map(|(violation, _)| violation.check),
        }));
    }
    if json {
        println!("{:#}", Value::from(results));
    }
    Ok(clean)
}

fn bite(json: bool) -> bool {
    let mut results = Vec::new();
    let mut all = true;
    for broken in Broken::all() {
        let caught = mutants::by_schedules(broken);
        let explored = match broken {
            Broken::Core(mutant) if mutants::FOR_THE_EXPLORER.contains(&mutant) => {
                let explored = mutants::by_explorer(mutant);
                all &= explored.is_some();
                explored
            }
            Broken::Core(_) | Broken::Caller(_) | Broken::Driver(_) => None,
        };
        let modelled = match broken {
            Broken::Core(mutant) if mutants::FORBIDDEN.contains(&mutant) => {
                let modelled = mutants::by_model(mutant);
                all &= modelled.is_some();
                modelled
            }
            Broken::Core(_) | Broken::Caller(_) | Broken::Driver(_) => None,
        };
        all &= caught.is_some();
        if !json {
            let by = caught.as_ref().map_or("NOT CAUGHT".to_owned(), |caught| {
                format!("{} schedules, {}", caught.seed + 1, caught.check)
            });
            let by = match &modelled {
                Some(modelled) => format!("{by}; by the model: {} schedules", modelled.seed + 1),
                None => by,
            };
            let and = explored.map_or(String::new(), |(check, states)| format!("; {states} states, {check}"));
            println!("{:24} {by}{and}", broken.name());
        }
        results.push(json!({
            "variant": broken.name(),
            "caught": caught.is_some(),
            "check": caught.as_ref().map(|caught| caught.check),
            "what": caught.as_ref().map(|caught| caught.what.clone()),
            "schedules": caught.as_ref().map(|caught| caught.seed + 1),
            "modelSchedules": modelled.as_ref().map(|modelled| modelled.seed + 1),
            "explorerStates": explored.map(|(_, states)| states),
            "explorerCheck": explored.map(|(check, _)| check),
        }));
    }
    if json {
        println!("{:#}", Value::from(results));
    }
    all
}
