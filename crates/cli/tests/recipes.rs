//! The pages whose examples a reader types: they are typed here, as they stand there.
#![cfg(target_os = "linux")]

use crate::common::Sandbox;
use crate::page::{Terminal, blocks, sections};
use std::net::TcpListener;

const RECIPES: &str = include_str!("../../../docs/guide/recipes.md");
const WHICH: &str = include_str!("../../../docs/guide/which.md");

/// Quicker than the defaults, but with leases that a busy machine does not outlast; a crashed leader is missed after 7.5 s.
const PATIENT: [(&str, &str); 10] = [
    ("TENURE_PRESET", "fast"),
    ("TENURE_STARTUP_JITTER_MAX", "0"),
    ("TENURE_LEASE_HOLD_FACTOR", "10"),
    ("TENURE_LEASE_EXPIRY_FACTOR", "15"),
    ("TENURE_JOB_POLL_INTERVAL", "100ms"),
    ("TENURE_JOB_IDLE_INTERVAL", "500ms"),
    ("TENURE_WORKER_HEARTBEAT_INTERVAL", "1s"),
    ("TENURE_WORKER_TIMEOUT", "6s"),
    ("TENURE_WORKER_SWEEP_INTERVAL", "500ms"),
    ("TENURE_NO_HTTP", "true"),
];

fn play(heading: &str) {
    let (_, text) = sections(RECIPES).into_iter().find(|(found, _)| *found == heading).expect("a recipe");
    let sandbox = Sandbox::new();
    Terminal::open(&sandbox, &PATIENT).play(&sandbox, text);
}

const BACKUP: &str = "A nightly backup on three hosts";
const MAIL: &str = "E-mails through a queue";
const PYTHON: &str = "A worker in Python";
const MIGRATION: &str = "A migration, once per deployment";
const CONSUMER: &str = "A single consumer";

#[test]
fn every_recipe_is_tried() {
    let headings: Vec<&str> = sections(RECIPES).into_iter().map(|(heading, _)| heading).collect();
    assert_eq!(headings, [BACKUP, MAIL, PYTHON, MIGRATION, CONSUMER]);
    for page in [RECIPES, WHICH] {
        let before = page.split("\n## ").next().expect("a beginning");
        assert!(blocks(before).is_empty(), "what comes before the first section is not tried");
    }
}

#[test]
fn a_nightly_backup_on_three_hosts_outlives_one_of_them() {
    play(BACKUP);
}

#[test]
fn e_mails_through_a_queue_are_sent_once_the_server_is_there() {
    play(MAIL);
}

#[test]
fn a_worker_in_python_needs_nothing_but_python() {
    if std::process::Command::new("python3").arg("--version").output().is_err() {
        eprintln!("NOT RUN: python3 is not there, so the recipe was not tried");
        return;
    }
    let (_, text) = sections(RECIPES).into_iter().find(|(found, _)| *found == PYTHON).expect("a recipe");
    let sandbox = Sandbox::new();
    // A port that was free a moment ago: the usual one may be in use.
    let address = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
    let (address, url) = (address.to_string(), format!("http://{address}"));
    let mut variables = PATIENT.to_vec();
    variables.extend([
        ("TENURE_NO_HTTP", "false"),
        ("TENURE_HTTP_LISTEN", address.as_str()),
        ("TENURE", url.as_str()),
    ]);
    Terminal::open(&sandbox, &variables).play(&sandbox, text);
}

#[test]
fn a_migration_runs_once_per_deployment() {
    play(MIGRATION);
}

#[test]
fn a_single_consumer_is_succeeded_when_its_host_dies() {
    play(CONSUMER);
}

#[test]
fn the_examples_of_which_one_run_from_top_to_bottom() {
    let sandbox = Sandbox::new();
    Terminal::open(&sandbox, &PATIENT).play(&sandbox, WHICH);
}
