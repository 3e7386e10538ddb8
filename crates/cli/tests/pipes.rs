//! Readers that go away: no panic, and a node goes on.

use crate::common::{Killed, PATIENCE, STEADY, Sandbox};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Runs a command whose stdout nobody reads.
fn unread(mut command: Command) -> (Option<i32>, String) {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut child = Killed(command.stdout(writer).stderr(Stdio::piped()).spawn().unwrap());
    let mut stderr = String::new();
    child.0.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    (child.0.wait().unwrap().code(), stderr)
}

#[test]
fn output_that_nobody_reads_is_no_panic() {
    let sandbox = Sandbox::new();
    let store = sandbox.sqlite("t.db");
    for (arguments, code) in [
        (&["config", "show", "--resolved"][..], 0),
        (&["config", "show", "--resolved", "--json"], 0),
        (&["config", "default"], 0),
        (&["config", "check"], 0),
        (&["completions", "bash"], 0),
        (&["reference", "settings"], 0),
        (&["run", "--help"], 0),
        (&["doctor", "--store", &store], 0),
        (&["status", "--store", &store], 3),
        (&["status", "--json", "--store", &store], 3),
    ] {
        let mut command = sandbox.command();
        command.args(arguments);
        let (found, stderr) = unread(command);
        assert_eq!(found, Some(code), "{arguments:?}: {stderr}");
        assert!(!stderr.contains("panicked"), "{arguments:?}: {stderr}");
    }
}

#[test]
fn output_that_cannot_be_written_is_a_failure() {
    let sandbox = Sandbox::new();
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut command = sandbox.command();
    let mut child =
        Killed(command.args(["config", "default"]).stdout(full).stderr(Stdio::piped()).spawn().unwrap());
    let mut stderr = String::new();
    child.0.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert_eq!(child.0.wait().unwrap().code(), Some(1), "{stderr}");
    assert!(stderr.contains("stdout") && !stderr.contains("panicked"), "{stderr}");
}

#[test]
fn a_node_leads_on_when_nobody_reads_its_log() {
    let sandbox = Sandbox::new();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = sandbox.command();
    command.args(["run", "--events", "--node", "pod-a", "--store", &sandbox.sqlite("t.db")]).args(STEADY);
    let mut child = Killed(command.stdout(Stdio::piped()).stderr(writer).spawn().unwrap());
    let stdout = child.0.stdout.take().unwrap();
    let (send, lines) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        BufReader::new(stdout).lines().map_while(Result::ok).try_for_each(|line| send.send(line))
    });
    let mut renewals = 0;
    while renewals < 3 {
        let line = lines.recv_timeout(PATIENCE).expect("three renewals");
        assert!(!line.contains("candidate_restarted"), "{line}");
        renewals += usize::from(line.contains("lease_renewed"));
    }
    kill_process(Pid::from_child(&child.0), Signal::TERM).unwrap();
    assert_eq!(child.0.wait().unwrap().code(), Some(0));
}

#[test]
fn a_node_leads_on_when_nobody_reads_its_events() {
    let sandbox = Sandbox::new();
    let store = sandbox.sqlite("t.db");
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = sandbox.command();
    command.args(["run", "--events", "--node", "pod-a", "--log", "off", "--store", &store]).args(STEADY);
    let mut child = Killed(command.stdout(writer).stderr(Stdio::null()).spawn().unwrap());
    let deadline = std::time::Instant::now() + PATIENCE;
    loop {
        let ran = sandbox.tenure(["status", "--json", "--store", &store]);
        if ran.code == Some(0) && ran.json()["leader"]["renewals"].as_u64() >= Some(8) {
            break;
        }
        assert!(std::time::Instant::now() < deadline, "{ran:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
    kill_process(Pid::from_child(&child.0), Signal::TERM).unwrap();
    assert_eq!(child.0.wait().unwrap().code(), Some(0));
}
