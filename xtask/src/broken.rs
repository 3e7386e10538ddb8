//! `cargo xtask chaos --broken`: binaries that are broken on purpose; the chaos judge must find each of them guilty. The binaries
//! of `cargo xtask exec --broken` are built and sentenced here, too.
//!
//! They are one binary, built once under a name of its own, so that nobody mistakes it for the product; the mistake is chosen at
//! run time. The binary can be caught only by what it shows: its events, its requests, its end. Mistakes that leave no trace
//! there are left to the simulator.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::engine::{self, Engine, Site};
use crate::workspace::Workspace;
use crate::{chaos, process};

/// The default seed of the schedules.
pub(crate) const SEED: u64 = 1;
const BUILD_LIMIT: Duration = Duration::from_secs(20 * 60);
/// A run that has not ended by then, including its last round and the judge, never will.
const PLAY_LIMIT: Duration = Duration::from_secs(6 * 60);
/// Not broken: plays every fault of the others and must be found innocent, or their guilt means nothing.
pub(crate) const SOUND: &str = "none";

/// A mistake, and what brings it to light.
struct Variant {
    name: &'static str,
    what: &'static str,
    /// Played one at a time, always aimed at the leader.
    faults: &'static [&'static str],
    nodes: u8,
    /// On SeaweedFS behind proxies; otherwise on SQLite.
    network: bool,
    seconds: u64,
}

const VARIANTS: &[Variant] = &[
    Variant {
        name: SOUND,
        what: "nothing: the same build, the same faults",
        faults: &["pause", "crash", "store-held"],
        nodes: 7,
        network: false,
        seconds: 60,
    },
    Variant {
        name: SOUND,
        what: "nothing, on a network",
        faults: &["leader503"],
        nodes: 3,
        network: true,
        seconds: 30,
    },
    Variant {
        name: "DeadlineIgnored",
        what: "core: a leader goes on past its deadline",
        faults: &["store-held"],
        nodes: 3,
        network: false,
        seconds: 60,
    },
    Variant {
        name: "LostTakenForWon",
        what: "core: a refused write is taken for one that happened",
        // All nodes wait for the lock and claim when it is free.
        faults: &["store-held"],
        nodes: 7,
        network: false,
        seconds: 60,
    },
    Variant {
        name: "ExpiryTooShort",
        what: "core: a standby takes over after half a hold",
        faults: &["crash", "pause"],
        nodes: 3,
        network: false,
        seconds: 60,
    },
    Variant {
        name: "UnknownPassedAsWon",
        what: "driver: an unknown outcome is passed on as one that happened",
        faults: &["leader503"],
        nodes: 3,
        network: true,
        seconds: 60,
    },
    Variant {
        name: "ClockStandsStill",
        what: "driver: the clock does not count the time a machine sleeps",
        faults: &["pause"],
        nodes: 3,
        network: false,
        seconds: 60,
    },
];

/// Plays the named variant, or all of them; returns whether the judge was right about each.
pub(crate) fn run(workspace: &Workspace, name: &str, seed: u64) -> Result<bool> {
    let names = || VARIANTS.iter().map(|variant| variant.name).collect::<Vec<_>>().join(", ");
    let chosen: Vec<&Variant> =
        VARIANTS.iter().filter(|variant| name == "all" || variant.name == name).collect();
    if chosen.is_empty() {
        bail!("no broken variant {name:?}; there are all, {}", names());
    }
    build(workspace)?;
    let site = site(workspace, &chosen)?;
    let mut good = true;
    for variant in chosen {
        good &= play(workspace, variant, site.as_ref(), seed)?["caught"] == true;
    }
    Ok(good)
}

/// Plays all of them, for the page of evidence.
pub(crate) fn prove(workspace: &Workspace, seed: u64) -> Result<Vec<Value>> {
    build(workspace)?;
    let site = site(workspace, &VARIANTS.iter().collect::<Vec<_>>())?;
    VARIANTS.iter().map(|variant| play(workspace, variant, site.as_ref(), seed)).collect()
}

/// The store for variants that need a network.
fn site(workspace: &Workspace, chosen: &[&Variant]) -> Result<Option<Site>> {
    engine::clean_leftovers(workspace);
    let needed = chosen.iter().any(|variant| variant.network);
    needed.then(|| chaos::start(workspace, Engine::Seaweedfs)).transpose()
}

/// The binary that can be broken. Never the product's own name.
const NAME: &str = "tenure-broken";

pub(crate) fn program(workspace: &Workspace) -> PathBuf {
    workspace.program(NAME)
}

pub(crate) fn build(workspace: &Workspace) -> Result<()> {
    let mut broken = workspace.cargo();
    broken.args(["build", "--package", "tenure-cli", "--features", "teeth", "--bin", NAME]);
    for command in [&mut broken, &mut workspace.build()] {
        if !process::run(command, BUILD_LIMIT)? {
            bail!("the build failed");
        }
    }
    Ok(())
}

fn play(workspace: &Workspace, variant: &Variant, site: Option<&Site>, seed: u64) -> Result<Value> {
    println!("==> {} ({})", variant.name, variant.what);
    let file = workspace.target.join("chaos-broken.json");
    let _ = fs::remove_file(&file);
    let mut command = Command::new(workspace.program("tenure-chaos"));
    command.arg("run").arg("--tenure").arg(program(workspace));
    command.arg("--record").arg(workspace.chaos()).arg("--json").arg(&file);
    chaos::on_store(&mut command, site.filter(|_| variant.network), Duration::from_secs(variant.seconds));
    command.arg("--preset=fast");
    command
        .arg(format!("--nodes={}", variant.nodes))
        .arg(format!("--seed={seed}"))
        .arg(format!("--seconds={}", variant.seconds));
    command.args(variant.faults.iter().map(|fault| format!("--only={fault}")));
    command.args((variant.name != SOUND).then(|| format!("--broken={}", variant.name)));
    // It is meant to fail; the file has what it found.
    process::run(&mut process::bound(&command), PLAY_LIMIT)?;
    let text = fs::read_to_string(&file).with_context(|| format!("{} was not judged", variant.name))?;
    let findings: Value = serde_json::from_str(&text).context("the findings are JSON")?;
    let found = sentence(variant.name, &findings);
    let after = format!("{} s, {} faults", findings["seconds"], findings["faults"]);
    match &found {
        Ok(line) => println!("==> {}: {line}, {after}\n", variant.name),
        Err(line) => println!("==> {}: NOT CAUGHT, {after}: {line}\n", variant.name),
    }
    let (caught, line) = (found.is_ok(), found.unwrap_or_else(|line| line));
    Ok(json!({
        "variant": variant.name, "what": variant.what, "caught": caught, "by": line,
        "seconds": findings["seconds"], "faults": findings["faults"], "kinds": variant.faults, "seed": seed, "engine": findings["engine"],
    }))
}

/// What the variant was found guilty of, in the judge's first words; or why it was not. Any violation convicts. So does anything
/// the judge would have excused, because under the same faults the sound binary was found innocent.
pub(crate) fn sentence(name: &str, findings: &Value) -> Result<String, String> {
    let lines = |field: &str| findings[field].as_array().map(|lines| lines.iter().filter_map(Value::as_str));
    let violations = lines("violations").ok_or("no findings")?;
    if name == SOUND {
        return match lines("violations").and_then(|mut lines| lines.next()) {
            None => Ok("innocent".to_owned()),
            Some(line) => Err(line.to_owned()),
        };
    }
    let excused = lines("excused").into_iter().flatten();
    let crime = violations.chain(excused).next().ok_or("found nothing")?;
    Ok(crime.split(": ").next().unwrap_or(crime).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_violation_convicts_and_no_excuse_hides_one() {
        let findings = |lines: &[&str], excused: &[&str]| json!({"violations": lines, "excused": excused});
        let broken = "ClockStandsStill";
        let epoch = findings(&["an epoch went down: 4 after 5"], &[]);
        assert_eq!(sentence(broken, &epoch).as_deref(), Ok("an epoch went down"));
        assert_eq!(sentence(broken, &findings(&[], &["led late: x"])).as_deref(), Ok("led late"));
        assert!(sentence(broken, &findings(&[], &[])).is_err() && sentence(broken, &json!({})).is_err());
        assert!(
            sentence(SOUND, &findings(&[], &["led late: x"])).is_ok(),
            "a busy machine is nobody's fault"
        );
        assert!(sentence(SOUND, &findings(&["anything"], &[])).is_err());
        assert!(sentence(SOUND, &json!({})).is_err(), "no findings are no acquittal");
    }

    #[test]
    fn a_broken_binary_has_a_name_of_its_own() {
        let workspace = Workspace::at(std::path::Path::new("/checkout"));
        assert_ne!(workspace.program("tenure"), program(&workspace));
    }
}
