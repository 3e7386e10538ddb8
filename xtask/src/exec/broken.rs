//! `cargo xtask exec --broken`: keepers that are broken on purpose; the judge must find each of them guilty.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::{Args, command, leftovers};
use crate::broken::{SOUND, build, program, sentence};
use crate::engine::Site;
use crate::workspace::Workspace;
use crate::{chaos, process};

/// Long enough for a successor to start, and to be seen beside what should be gone.
const PAUSE: u16 = 3;
/// A run that has not ended by then never will.
const PLAY_LIMIT: Duration = Duration::from_secs(6 * 60);

/// Not a fault: short runs of commands that start daemons.
const LEFTOVERS: &str = "leftovers";

/// A mistake, and what brings it to light.
struct Variant {
    name: &'static str,
    what: &'static str,
    /// Played in turn until the mistake shows.
    faults: &'static [&'static str],
    rounds: u16,
}

const VARIANTS: &[Variant] = &[
    Variant {
        name: SOUND,
        what: "nothing: the same build, the same faults",
        faults: &["pause", "kill", "cut", "keeper", "stop"],
        rounds: 15,
    },
    Variant {
        name: SOUND,
        what: "nothing: the same build, commands that start daemons",
        faults: &[LEFTOVERS],
        rounds: 200,
    },
    Variant {
        name: "KeeperWithoutDeadline",
        what: "the keeper has no deadline of its own, it waits for a word from tenure",
        faults: &["pause"],
        rounds: 3,
    },
    Variant {
        name: "LineIgnored",
        what: "the keeper does not mind that the line to tenure was closed",
        // Its deadline saves it: the command ends with the lease, not with tenure.
        faults: &["kill"],
        rounds: 3,
    },
    Variant {
        name: "OnlyTold",
        what: "the command is told to end, and never killed",
        faults: &["cut"],
        rounds: 3,
    },
    Variant {
        name: "OnlyTheChild",
        what: "the command alone is ended, not what it started",
        faults: &["kill"],
        rounds: 3,
    },
    Variant { name: "NoSubreaper", what: "what loses its parent gets away", faults: &["cut"], rounds: 3 },
    Variant {
        name: "TableTrusted",
        what: "the keeper ends when the table of processes shows nothing below it, which may have forked meanwhile",
        faults: &[LEFTOVERS],
        rounds: 1000,
    },
    Variant {
        name: "StartedBesideTheOld",
        what: "what a killed keeper leaves behind is left alone, and the command started again",
        faults: &["keeper"],
        rounds: 3,
    },
    Variant {
        name: "EndedWhenTold",
        what: "the seat is vacated when the command was told to end, not when it has",
        // It lives on for a grace period; a successor may or may not look sooner than that.
        faults: &["stop"],
        rounds: 3,
    },
];

/// Plays the named variant, or all of them; returns whether the judge was right about each.
pub(super) fn run(workspace: &Workspace, args: &Args, name: &str) -> Result<bool> {
    let names = || VARIANTS.iter().map(|variant| variant.name).collect::<Vec<_>>().join(", ");
    let chosen: Vec<&Variant> =
        VARIANTS.iter().filter(|variant| name == "all" || variant.name == name).collect();
    if chosen.is_empty() {
        bail!("no broken variant {name:?}; there are all, {}", names());
    }
    build(workspace)?;
    let site = args.engine.engine().map(|engine| chaos::start(workspace, engine)).transpose()?;
    let mut lines = Vec::new();
    for variant in chosen {
        let found = play(workspace, args, variant, site.as_ref())?;
        let (word, line) = match &found {
            Ok(line) => ("", line),
            Err(line) => ("NOT CAUGHT: ", line),
        };
        println!("==> {}: {word}{line}\n", variant.name);
        lines.push((variant, found));
    }
    println!("on {}:", args.engine.name());
    for (variant, found) in &lines {
        let line = found.as_ref().map_or_else(|line| format!("NOT CAUGHT: {line}"), Clone::clone);
        println!("  {:<22} {:<24} {line}", variant.name, variant.faults.join(" "));
    }
    Ok(lines.iter().all(|(_, found)| found.is_ok()))
}

fn play(
    workspace: &Workspace,
    args: &Args,
    variant: &Variant,
    site: Option<&Site>,
) -> Result<Result<String, String>> {
    println!("==> {} ({})", variant.name, variant.what);
    let file = workspace.target.join("exec-broken.json");
    let _ = fs::remove_file(&file);
    let mut command = if variant.faults == [LEFTOVERS] {
        leftovers(workspace, program(workspace), variant.rounds.into())
    } else {
        let mut command = command(workspace, args, program(workspace), args.pause.unwrap_or(PAUSE), site);
        command.arg(format!("--rounds={}", variant.rounds));
        command.args(variant.faults.iter().map(|fault| format!("--only={fault}")));
        command
    };
    command.arg("--json").arg(&file);
    command.args((variant.name != SOUND).then(|| format!("--broken={}", variant.name)));
    // It is meant to fail; the file has what it found.
    process::run(&mut process::bound(&command), PLAY_LIMIT)?;
    let text = fs::read_to_string(&file).with_context(|| format!("{} was not judged", variant.name))?;
    let findings: Value = serde_json::from_str(&text).context("the findings are JSON")?;
    let rounds: u64 =
        findings["rounds"].as_object().into_iter().flatten().filter_map(|(_, n)| n.as_u64()).sum();
    let found = sentence(variant.name, &findings);
    Ok(found.map(|line| format!("{line}, after {rounds} of {} rounds", variant.rounds)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mistake_there_is_gets_played() {
        let source = include_str!("../../../crates/cli/src/exec/mutant.rs");
        let variant = |line: &'static str| {
            line.trim().strip_suffix(',').filter(|name| name.chars().all(char::is_alphanumeric))
        };
        let listed: Vec<&str> = source.lines().filter_map(variant).collect();
        let played: Vec<&str> =
            VARIANTS.iter().map(|variant| variant.name).filter(|name| *name != SOUND).collect();
        assert_eq!(listed, played);
    }

    #[test]
    fn the_sound_one_plays_the_faults_of_all_others() {
        let sound = |fault: &&str| {
            VARIANTS
                .iter()
                .filter(|variant| variant.name == SOUND)
                .any(|variant| variant.faults.contains(fault))
        };
        for variant in VARIANTS {
            assert!(variant.faults.iter().all(sound), "{}", variant.name);
            let all_played = usize::from(variant.rounds) >= variant.faults.len();
            assert!(all_played, "{}", variant.name);
        }
    }
}
