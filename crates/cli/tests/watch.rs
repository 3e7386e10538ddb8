//! `tenure watch`: a look that goes on, from the store alone.

use crate::common::{Cluster, Killed, PATIENT, STEADY, Sandbox};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, tcgetattr};
use serde_json::Value;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;

#[test]
fn one_picture_is_printed_where_there_is_no_terminal() {
    let sandbox = Sandbox::new();
    let store = sandbox.sqlite("watch.db");
    let ran = sandbox.tenure(["watch", "--store", &store]).assert_code(0);
    assert!(ran.stdout.contains("the store does not exist yet"), "{}", ran.stdout);
    assert!(!sandbox.path("watch.db").exists(), "looking makes nothing");
    let mut cluster = Cluster::new(&sandbox, &store, STEADY);
    cluster.start("pod-a");
    cluster.leader(0);
    let ran = sandbox.tenure(["watch", "--store", &store]).assert_code(0);
    assert!(ran.stdout.contains("leader    pod-a (live"), "{}", ran.stdout);
    assert!(!ran.stdout.contains('\u{1b}'), "no escapes where nobody draws");
    cluster.finish();
}

#[test]
fn q_ends_it_and_gives_the_terminal_back() {
    let sandbox = Sandbox::new();
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap();
    let open = || File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
    let (terminal, before) = (open(), tcgetattr(&master).unwrap());
    let mut command = sandbox.command();
    command.args(["watch", "--interval", "100ms", "--store", &sandbox.sqlite("watch.db")]);
    let mut watch = Killed(command.stdin(open()).stdout(open()).spawn().unwrap());
    let mut shown = File::from(master.try_clone().unwrap());
    let (mut seen, mut piece) = (String::new(), [0; 4096]);
    while !seen.contains("the store does not exist yet") {
        let bytes = shown.read(&mut piece).unwrap();
        seen.push_str(&String::from_utf8_lossy(&piece[..bytes]));
    }
    assert!(!tcgetattr(&master).unwrap().local_modes.contains(LocalModes::ICANON), "key by key");
    shown.write_all(b"xq").unwrap();
    // What it draws must be taken, or it would wait for room.
    let drain = std::thread::spawn(move || while shown.read(&mut piece).is_ok_and(|bytes| bytes > 0) {});
    assert!(watch.0.wait().unwrap().success());
    assert_eq!(tcgetattr(&master).unwrap().local_modes, before.local_modes, "as it was");
    drop((terminal, master, drain));
}

#[test]
fn changes_are_told_as_json_lines() {
    let sandbox = Sandbox::new();
    let store = sandbox.sqlite("watch.db");
    let mut cluster = Cluster::new(&sandbox, &store, PATIENT);
    let first = cluster.start("pod-a");
    cluster.leader(0);
    let mut command = sandbox.command();
    command.args(["watch", "--json", "--interval", "100ms", "--store", &store]);
    let mut watch = Killed(command.stdout(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(watch.0.stdout.take().unwrap()).lines();
    let mut next = || -> Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    let seen = next();
    assert_eq!((&seen["event"], &seen["status"]["leader"]["node"]), (&"seen".into(), &"pod-a".into()));
    let mark = cluster.mark();
    cluster.start("pod-b");
    let joined = std::iter::repeat_with(&mut next).find(|news| news["event"] == "node_joined").unwrap();
    assert_eq!(joined["who"], "pod-b");
    cluster.kill(first);
    cluster.leader(mark);
    let changed = std::iter::repeat_with(&mut next).find(|news| news["event"] == "leader_changed").unwrap();
    assert_eq!((&changed["who"], &changed["epoch"]), (&"pod-b".into(), &2.into()));
    kill_process(Pid::from_child(&watch.0), Signal::INT).unwrap();
    assert!(watch.0.wait().unwrap().success());
    cluster.finish();
}
