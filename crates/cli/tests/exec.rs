//! `tenure exec` and `tenure lock`: real commands under real nodes on one embedded store.
#![cfg(target_os = "linux")]

use crate::common::{PATIENCE, PATIENT, PLAIN, Ran, STEADY, Sandbox, boot_ms, finish, program};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tenure_chaos::exec::nodes::{self, Held, Node};
use tenure_chaos::exec::signs_of_life::{self, SignOfLife};
use tenure_chaos::exec::{COMMAND as STUBBORN, Kind, Plan, SIGNS_OF_LIFE};

/// Longest time until a process has ended.
const END_MS: u64 = 60_000;

/// Not a test: what the commands below run, which is this very program. Writes down that it is alive, until it is killed.
#[test]
fn marker() {
    if std::env::var_os(SIGNS_OF_LIFE).is_some() {
        signs_of_life::live(std::env::args().any(|word| word == "daemon")).unwrap();
    }
}

fn marker_command() -> Vec<String> {
    let me = std::env::current_exe().unwrap().display().to_string();
    [&me, "--exact", "exec::marker", "--nocapture"].map(str::to_owned).to_vec()
}

/// A shell that runs `script` with the marker's command line as "$@".
fn shell(script: &str) -> Vec<String> {
    let words = ["sh", "-c", script, "sh"].map(str::to_owned).to_vec();
    [words, marker_command()].concat()
}

struct Place {
    sandbox: Sandbox,
}

impl Place {
    fn new() -> Place {
        Place { sandbox: Sandbox::new() }
    }

    fn store(&self) -> String {
        self.sandbox.sqlite("exec.db")
    }

    fn command(&self, verb: &str, options: &[&str], words: &[String]) -> Command {
        let mut command = self.sandbox.command();
        command.arg(verb).args(options).args(["--store", &self.store()]);
        command.env(SIGNS_OF_LIFE, self.sandbox.path("signs_of_life")).arg("--").args(words);
        command
    }

    /// Runs `exec` or `lock` with a shell script to its end.
    fn run(&self, verb: &str, options: &[&str], script: &str) -> Ran {
        finish(self.command(verb, options, &shell(script)), PATIENCE)
    }

    /// Starts a node that runs a script while it leads.
    fn start(&self, name: &str, options: &[&str], script: &str) -> Node {
        let options = [&["--node", name], options].concat();
        let command = self.command("exec", &options, &shell(script));
        Node::start(name, command, &self.sandbox.path(&format!("{name}.log"))).unwrap()
    }

    fn signs(&self) -> Vec<SignOfLife> {
        signs_of_life::read(&self.sandbox.path("signs_of_life")).unwrap()
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.sandbox.path(name)).unwrap_or_default()
    }

    fn until(&self, what: &str, come: impl Fn(&Place) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !come(self) {
            let logs = ["pod-a.log", "pod-b.log"].map(|name| self.read(name)).concat();
            assert!(Instant::now() < deadline, "waited in vain for {what}\n{logs}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until so many processes have written in an epoch above this one, and says which.
    fn writers(&self, count: usize, above: u64) -> BTreeSet<i32> {
        let of = |place: &Place| -> BTreeSet<i32> {
            place.signs().iter().filter(|sign| sign.epoch > above).map(|sign| sign.pid).collect()
        };
        self.until("signs of life", |place| of(place).len() >= count);
        of(self)
    }

    fn epoch(&self) -> u64 {
        self.signs().iter().map(|sign| sign.epoch).max().unwrap_or(0)
    }

    fn database(&self) -> Held {
        Held::take(&self.sandbox.path("exec.db")).unwrap()
    }
}

fn gone(pids: &BTreeSet<i32>) -> bool {
    pids.iter().all(|&pid| nodes::parent(pid).is_none())
}

fn once(more: &[&'static str]) -> Vec<&'static str> {
    [STEADY, &["--once", "--log", "off"], more].concat()
}

#[test]
fn a_command_gets_its_environment_its_streams_and_a_session_of_its_own() {
    let place = Place::new();
    let script = r#"echo "$TENURE_EPOCH $TENURE_NAMESPACE $TENURE_NODE"; echo words >&2; cat; ps -o sid= -p $$; echo $$"#;
    let options = once(&["--namespace", "reports", "--node", "pod-a"]);
    let mut command = place.command("exec", &options, &shell(script));
    let streams = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = streams.spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"what was typed\n").unwrap();
    let output = child.wait_with_output().unwrap();
    let (said, words) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(output.status.success(), "{said}{words}");
    let lines: Vec<&str> = said.lines().map(str::trim).collect();
    assert_eq!(lines[..2], ["1 reports pod-a", "what was typed"], "{said}");
    assert_eq!(lines[2], lines[3], "it leads its session");
    assert_eq!(words, "words\n");
}

#[test]
fn every_line_for_machines_says_whose_it_is() {
    let place = Place::new();
    for (level, least) in [("info", 8), ("warn,tenure_cli=info", 3)] {
        let options = [
            // A lease that a busy machine does not outlast.
            &["--preset", "fast", "--lease-hold-factor", "50", "--lease-expiry-factor", "75"][..],
            &["--once", "--log", "json", "--namespace", "reports", "--node", "pod-a"],
        ]
        .concat();
        let mut command = place.command("exec", &options, &shell("exit 0"));
        command.env("TENURE_LOG", level);
        let ran = finish(command, PATIENCE).assert_code(0);
        let lines: Vec<Value> = ran.stderr.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!(lines.len() >= least, "{}", ran.stderr);
        assert!(
            !ran.stderr.contains("startup jitter"),
            "whoever runs a command waits for it: {}",
            ran.stderr
        );
        for line in &lines {
            assert_eq!((&line["namespace"], &line["node"]), (&json!("reports"), &json!("pod-a")), "{line}");
            assert!(line["epoch"].is_u64() && line["level"].is_string(), "{line}");
            assert!(line["timestamp"].as_str().unwrap().ends_with('Z'), "{line}");
        }
        // No event is behind this one: it has the epoch of the others, also of those that are not written.
        let runs =
            lines.iter().find(|line| line["message"].as_str().unwrap().starts_with("running sh in epoch"));
        let runs = runs.unwrap_or_else(|| panic!("{}", ran.stderr));
        assert_eq!(runs["message"], format!("running sh in epoch {}", runs["epoch"]));
    }
}

#[test]
fn a_keeper_that_comes_too_late_starts_nothing_and_says_so() {
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    let place = Place::new();
    let mut keeper = place.sandbox.command();
    keeper.args(["keeper", "--until=1", "--grace=375", "--margin=125", "--", "touch", "ran"]);
    let mut child = keeper.stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).spawn().unwrap();
    drop(keeper);
    let streams = [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(&streams)));
    sendmsg(&ours, &[IoSlice::new(b"\n")], &mut control, SendFlags::empty()).unwrap();
    let mut said = String::new();
    ours.read_to_string(&mut said).unwrap();
    assert_eq!(said, "too-late\nclear\n");
    assert!(child.wait().unwrap().success());
    assert!(!place.sandbox.path("ran").exists());
}

#[test]
fn exit_codes_are_passed_on() {
    let place = Place::new();
    for (script, code) in [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137), ("kill -TERM $$", 143)] {
        place.run("exec", &once(&[]), script).assert_code(code);
        place.run("lock", &[], script).assert_code(code);
    }
    let missing = ["no-such-command".to_owned()];
    finish(place.command("lock", &[], &missing), PATIENCE).assert_code(127).assert_says(&["no-such-command"]);
    let folder = [place.sandbox.home().display().to_string()];
    finish(place.command("lock", &[], &folder), PATIENCE).assert_code(126);
}

#[test]
fn what_cannot_work_is_refused_before_anything_happens() {
    let place = Place::new();
    let refused = |verb: &str, options: &[&str], words: &[&str]| {
        let ran = place.run(verb, options, "echo never");
        assert_eq!(ran.stdout, "");
        ran.assert_code(2).assert_says(words);
    };
    refused(
        "exec",
        &["--grace", "5s"],
        &["--grace", "at most 2313 ms", "leaseTimeout × leaseHoldFactor = 5000 ms"],
    );
    refused("exec", &["--grace", "soon"], &["--grace", "500ms"]);
    refused("exec", &["--once", "--restart", "always"], &["--once", "--restart"]);
    refused("exec", &["--eligible", "false"], &["eligible"]);
    refused("lock", &["--name", "a/b"], &["lock", "a/b"]);
    refused("lock", &["--timeout", "-1"], &["--timeout"]);
    assert!(!place.sandbox.path("exec.db").exists(), "nothing was written");
}

#[test]
fn a_node_that_is_told_to_leave_stops_its_command_first_and_vacates_then() {
    let place = Place::new();
    let script = r#"trap 'echo bye > bye; exit 9' TERM; echo > up; while :; do sleep 0.05; done"#;
    let mut node = place.start("pod-a", STEADY, script);
    place.until("the command", |place| place.sandbox.path("up").exists());
    node.signal(Signal::TERM).unwrap();
    assert_eq!(node.wait(END_MS).unwrap().code(), Some(0), "a service that was told to stop");
    assert_eq!(place.read("bye"), "bye\n");
    let log = place.read("pod-a.log");
    let (ended, vacated) = (log.find("ended with 9 (told to stop)"), log.find("the seat is vacant"));
    assert!(ended.is_some() && ended < vacated, "{log}");
}

#[test]
fn a_command_that_does_not_listen_is_killed_with_all_it_started() {
    let place = Place::new();
    let mut node = place.start("pod-a", &[STEADY, &["--stop-grace", "200ms"]].concat(), STUBBORN);
    let pids = place.writers(2, 0);
    node.signal(Signal::TERM).unwrap();
    assert_eq!(node.wait(END_MS).unwrap().code(), Some(0));
    assert!(gone(&pids), "before the node leaves, not after");
}

#[test]
fn what_a_command_leaves_behind_ends_with_it() {
    let place = Place::new();
    let script = r#"("$@" daemon &); while [ ! -s signs_of_life ]; do sleep 0.02; done; exit 5"#;
    place.run("exec", &once(&[]), script).assert_code(5);
    let pids = place.writers(1, 0);
    assert!(gone(&pids));
}

#[test]
fn a_command_is_restarted_as_asked() {
    let place = Place::new();
    let log_off: &[&str] = &["--log", "off"];
    let with = |restart: &'static str| [STEADY, log_off, &["--restart", restart]].concat();
    place.run("exec", &with("never"), "echo run >> never; exit 4").assert_code(4);
    assert_eq!(place.read("never"), "run\n");
    let script = "echo run >> some; [ $(wc -l < some) -ge 3 ]";
    place.run("exec", &with("on-failure"), script).assert_code(0);
    assert_eq!(place.read("some"), "run\n".repeat(3), "it failed twice and was done then");
    let mut node = place.start("pod-a", &with("always"), "echo run >> many");
    place.until("a restart of what was done", |place| place.read("many").lines().count() >= 3);
    node.signal(Signal::TERM).unwrap();
    assert_eq!(node.wait(END_MS).unwrap().code(), Some(0));
}

#[test]
fn a_command_that_cannot_stay_up_makes_room_for_another_node() {
    let place = Place::new();
    let _bad = place.start("pod-a", PATIENT, "exit 1");
    place.until("the node gives up", |place| place.read("pod-a.log").contains("restart intensity"));
    let _good = place.start("pod-b", PATIENT, r#"exec "$@""#);
    place.writers(1, 0);
}

#[test]
fn a_lease_that_is_lost_kills_the_command_in_time() {
    let place = Place::new();
    let _node = place.start("pod-a", PATIENT, STUBBORN);
    let pids = place.writers(2, 0);
    // The store is away from now on: the last renewal was sent before.
    let held = place.database();
    let cut_ms = boot_ms();
    place.until("the end of the command", |_| gone(&pids));
    let last_ms = place.signs().iter().map(|sign| sign.at_ms).max().unwrap();
    println!("the last sign of life was {} ms after the store was cut off", last_ms.saturating_sub(cut_ms));
    assert!(last_ms < cut_ms + 7500, "a successor may come after 1.5 leases");
    // Not sooner: a lease that is renewed at the last moment goes on in the same epoch.
    place.until("the end of the lease", |place| place.read("pod-a.log").contains("NO LONGER LEADING"));
    drop(held);
    // The same node leads again, in another epoch, and the command runs again.
    place.writers(2, 1);
    signs_of_life::margins(&place.signs()).unwrap();
}

#[test]
fn a_store_that_falters_costs_nothing() {
    let place = Place::new();
    let slow = ["--heartbeat-interval", "500ms", "--lease-timeout", "10000ms", "--startup-jitter-max", "0"];
    let _node = place.start("pod-a", &slow, r#"exec "$@""#);
    let pids = place.writers(1, 0);
    let held = place.database();
    std::thread::sleep(Duration::from_millis(1500));
    drop(held);
    let back_ms = boot_ms();
    // Long enough for a renewal that was kept away to have been made up for.
    place.until("life after it", |place| place.signs().iter().any(|sign| sign.at_ms > back_ms + 1500));
    assert_eq!((place.writers(1, 0), place.epoch()), (pids, 1), "the same process in the same epoch");
}

/// A successor runs only what the other runs no more, whatever is done to the other.
fn handed_over(disturb: impl FnOnce(&Place, &mut Node, &BTreeSet<i32>)) {
    let place = Place::new();
    let mut first = place.start("pod-a", PATIENT, STUBBORN);
    let pids = place.writers(2, 0);
    let _second = place.start("pod-b", PATIENT, STUBBORN);
    place.until("the other node", |place| place.read("pod-b.log").contains("joined"));
    let epoch = place.epoch();
    disturb(&place, &mut first, &pids);
    place.writers(2, epoch);
    assert!(gone(&pids));
    let margins = signs_of_life::margins(&place.signs()).unwrap();
    println!("margins: {margins:?} ms");
}

#[test]
fn a_killed_node_takes_its_command_with_it_before_a_successor_runs_another() {
    handed_over(|_, node, _| node.signal(Signal::KILL).unwrap());
}

#[test]
fn the_command_of_a_stopped_node_is_killed_by_its_keeper() {
    handed_over(|place, node, pids| {
        let held = place.database();
        nodes::stop_all(&[node.pid()]).unwrap();
        drop(held);
        // By the keeper alone: the node still stands.
        place.until("the end of the command", |_| gone(pids));
        assert!(node.lives().unwrap());
        place.until("a successor", |place| place.epoch() > 1);
        node.signal(Signal::CONT).unwrap();
        place.until("it wakes", |place| place.read("pod-a.log").contains("NO LONGER LEADING"));
        assert!(node.lives().unwrap(), "it goes on as a standby");
    });
}

#[test]
fn a_second_signal_ends_the_node_at_once_and_the_keeper_does_the_rest() {
    handed_over(|place, node, _| {
        node.signal(Signal::TERM).unwrap();
        place.until("it heard", |place| place.read("pod-a.log").contains("a second signal ends at once"));
        // Not the echo of the first.
        std::thread::sleep(Duration::from_millis(300));
        node.signal(Signal::TERM).unwrap();
        assert_eq!(node.wait(END_MS).unwrap().code(), Some(143));
    });
}

#[test]
fn a_killed_keeper_takes_the_command_along_and_the_node_starts_another() {
    let place = Place::new();
    let _node = place.start("pod-a", STEADY, STUBBORN);
    let old = place.writers(2, 0);
    let keeper = nodes::parent(*old.first().unwrap()).unwrap();
    let named = std::fs::read(format!("/proc/{keeper}/cmdline")).unwrap();
    assert!(named.starts_with(b"tenure\0keeper\0"), "as `ps` shows it: {}", String::from_utf8_lossy(&named));
    nodes::signal_all(&[keeper], Signal::KILL);
    place.until("another run", |place| place.writers(2, 0).difference(&old).count() >= 2);
    assert!(gone(&old), "the daemon too, which no parent-death signal reaches");
    let signs = place.signs();
    let last = signs.iter().filter(|sign| old.contains(&sign.pid)).map(|sign| sign.at_ms).max().unwrap();
    let first = signs.iter().filter(|sign| !old.contains(&sign.pid)).map(|sign| sign.at_ms).min().unwrap();
    assert!(last < first && place.epoch() == 1, "{last} {first}");
}

#[test]
fn a_signal_for_everybody_leaves_the_keeper_at_its_work() {
    let place = Place::new();
    let mut node =
        place.start("pod-a", STEADY, r#"trap 'sleep 0.1; echo bye > bye; exit' TERM; "$@" & wait"#);
    let pids = place.writers(1, 0);
    // As a service manager does it: all processes of the unit at once.
    nodes::signal_all(&nodes::below(node.pid()), Signal::TERM);
    node.signal(Signal::TERM).unwrap();
    assert_eq!(node.wait(END_MS).unwrap().code(), Some(0));
    assert_eq!(place.read("bye"), "bye\n", "it had the time to end in order");
    assert!(gone(&pids));
}

#[test]
fn once_means_once_even_if_leadership_comes_back() {
    let place = Place::new();
    let mut node = place.start("pod-a", &[PATIENT, &["--once"]].concat(), STUBBORN);
    let pids = place.writers(2, 0);
    let held = place.database();
    place.until("the end of the command", |_| gone(&pids));
    drop(held);
    assert_eq!(node.wait(END_MS).unwrap().code(), Some(12));
    assert_eq!(place.epoch(), 1);
}

#[test]
fn a_lock_is_held_by_one_at_a_time() {
    let place = Place::new();
    std::fs::write(place.sandbox.path("count"), "0").unwrap();
    // Without the lock, the pause between reading and writing loses most of it.
    let script = r#"n=$(cat count); sleep 0.02; echo $((n + 1)) > count; echo "$TENURE_LOCK" >> names"#;
    std::thread::scope(|scope| {
        for _ in 0..5 {
            scope.spawn(|| {
                for _ in 0..4 {
                    place.run("lock", &["--name", "counter"], script).assert_code(0);
                }
            });
        }
    });
    assert_eq!(place.read("count").trim(), "20");
    assert_eq!(place.read("names"), "counter\n".repeat(20));
}

#[test]
fn locks_of_different_names_do_not_wait_for_each_other() {
    let place = Place::new();
    let inner =
        format!("{} lock --name b --timeout 20s --store {} -- echo both", program().display(), place.store());
    // The inner one inherits TENURE_NODE, and is another node all the same.
    let ran = place.run("lock", &["--name", "a"], &inner).assert_code(0);
    assert_eq!(ran.stdout, "both\n");
}

#[test]
fn a_lock_that_is_not_had_in_time_has_a_code_of_its_own() {
    let place = Place::new();
    let mut holder = place.command("lock", &["--name", "busy"], &shell("echo > held; exec sleep 600"));
    let mut holder =
        crate::common::Killed(holder.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    place.until("the holder", |place| place.sandbox.path("held").exists());
    let ran = place.run("lock", &["--name", "busy", "--timeout", "700ms"], "echo never");
    assert_eq!(ran.stdout, "");
    ran.assert_code(11).assert_says(&[
        "timed out waiting for the lock busy (held by ",
        " since ",
        ", epoch 1)",
    ]);
    // A holder that crashed is waited out, and a waiter gets the lock.
    holder.0.kill().unwrap();
    let options = ["--name", "busy", "--timeout", "50s"];
    assert_eq!(place.run("lock", &options, "echo mine").assert_code(0).stdout, "mine\n");
}

#[test]
fn a_lock_that_is_lost_kills_the_command_and_says_so() {
    let place = Place::new();
    let command = place.command("lock", PATIENT, &shell(STUBBORN));
    let ran = std::thread::spawn(move || finish(command, PATIENCE));
    let pids = place.writers(2, 0);
    let held = place.database();
    place.until("the end of the command", |_| gone(&pids));
    drop(held);
    ran.join().unwrap().assert_code(12).assert_says(&["lost"]);
}

/// A process that is stopped, and goes on when the test is over, however that ends.
struct Stopped(i32);

impl Stopped {
    fn new(pid: i32) -> Stopped {
        nodes::stop_all(&[pid]).unwrap();
        Stopped(pid)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        nodes::signal_all(&[self.0], Signal::CONT);
    }
}

#[test]
fn ex3_a_stuck_keeper_keeps_the_seat_until_its_expiry() {
    let place = Place::new();
    let _first = place.start("pod-a", PATIENT, STUBBORN);
    let pids = place.writers(2, 0);
    let _second = place.start("pod-b", PATIENT, STUBBORN);
    place.until("the other node", |place| place.read("pod-b.log").contains("joined"));
    let keeper = nodes::parent(*pids.first().unwrap()).unwrap();
    let stopped = Stopped::new(keeper);
    let store = place.store();
    place.sandbox.tenure(["step-down", "--exec", "sh", "--wait", "0s", "--store", &store]).assert_code(0);
    let stuck = "work did not stop in time; the seat is not vacated and its lease must run out";
    place.until("the log says it", |place| place.read("pod-a.log").contains(stuck));
    // As after a crash: by the silence of the seat, not because it was given up.
    place.until("a successor", |place| place.read("pod-b.log").contains("LEADING in epoch 2"));
    assert!(!gone(&pids), "what is stuck lives on");
    let (first, second) = (place.read("pod-a.log"), place.read("pod-b.log"));
    assert!(second.contains("leader pod-a has been silent"), "{second}");
    assert_eq!(first.matches(stuck).count(), 1, "{first}");
    assert!(!first.contains("the seat is vacant") && !first.contains("LEADING in epoch 2"), "{first}");
    // It goes on: the command ends at once, and its node may lead again.
    drop(stopped);
    place.until("the end of the command", |_| gone(&pids));
}

#[test]
fn ex1_exec_and_run_on_one_store_do_not_share_an_election() {
    let place = Place::new();
    let store = place.store();
    let mut run = place.sandbox.command();
    // Health is judged in the rhythm of presences.
    run.args(["run", "--node", "pod-r", "--store", &store, "--presence-interval", "1000ms"]).args(PLAIN);
    let mut run = Node::start("pod-r", run, &place.sandbox.path("pod-r.log")).unwrap();
    place.until("the node leads", |place| place.read("pod-r.log").contains("LEADING in epoch 1"));
    let _first = place.start("pod-a", PLAIN, STUBBORN);
    let _other = place.start(
        "pod-c",
        &[PLAIN, &["--name", "other"]].concat(),
        r#"echo "$TENURE_EXEC" > names; sleep 600"#,
    );
    place.writers(2, 0);
    place.until("a command of another name", |place| place.read("names") == "other\n");
    let leader = |more: &[&str]| {
        let ran = place.sandbox.tenure([&["leader", "--store", &store], more].concat());
        (ran.code, ran.stdout.trim().to_owned())
    };
    assert_eq!(leader(&[]), (Some(0), "pod-r".to_owned()));
    assert_eq!(leader(&["--exec", "sh"]), (Some(0), "pod-a".to_owned()));
    assert_eq!(leader(&["--exec", "other"]), (Some(0), "pod-c".to_owned()));
    assert_eq!(leader(&["--exec", "nobody"]).0, Some(3));
    let status = place.sandbox.tenure(["status", "--exec", "sh", "--store", &store]).assert_code(0).stdout;
    assert!(status.contains("of the command sh") && status.contains("pod-a"), "{status}");
    // Handing over one of them leaves the others alone.
    let ran = place.sandbox.tenure(["step-down", "--exec", "sh", "--store", &store]).assert_code(0);
    assert!(ran.stdout.contains("pod-a stepped down and leads again in epoch 2"), "{}", ran.stdout);
    // 9 is unknown: nobody who judges leads.
    let health = || place.sandbox.tenure(["health", "--store", &store]).code;
    place.until("the node judges the health", |_| health() != Some(9));
    assert!(run.lives().unwrap());
    assert!(!place.read("pod-r.log").contains("NO LONGER LEADING"), "{}", place.read("pod-r.log"));
}

#[test]
fn ex1_run_runs_a_command_with_the_nodes_own_leadership() {
    let place = Place::new();
    let script = r#"trap 'echo bye > bye; exit' TERM; echo "$TENURE_EPOCH $TENURE_NODE" > up; "$@" & wait"#;
    let options = [PLAIN, &["--node", "pod-a"]].concat();
    let command = place.command("run", &options, &shell(script));
    let mut node = Node::start("pod-a", command, &place.sandbox.path("pod-a.log")).unwrap();
    place.until("the command", |place| place.read("up") == "1 pod-a\n");
    let pids = place.writers(1, 0);
    let store = place.store();
    let ran = place.sandbox.tenure(["step-down", "--store", &store]).assert_code(0);
    assert!(ran.stdout.contains("leads again in epoch 2"), "{}", ran.stdout);
    assert!(gone(&pids), "before the seat was vacated");
    place.until("it runs again", |place| place.read("up") == "2 pod-a\n");
    let pids = place.writers(1, 1);
    std::fs::remove_file(place.sandbox.path("bye")).unwrap();
    node.signal(Signal::TERM).unwrap();
    assert_eq!(node.wait(END_MS).unwrap().code(), Some(0));
    assert!(gone(&pids) && place.read("bye") == "bye\n");
    let log = place.read("pod-a.log");
    assert!(log.contains("process ClusterHealth started"), "beside its other work: {log}");
}

#[test]
fn a_program_that_cannot_be_run_is_refused_before_anything_happens() {
    let place = Place::new();
    for verb in ["exec", "lock", "run"] {
        let run = |program: &str| {
            let mut command = place.command(verb, &[], &[program.to_owned()]);
            finish(std::mem::replace(command.env_remove("TENURE_NO_HTTP"), Command::new("true")), PATIENCE)
        };
        run("no-such-command").assert_code(127).assert_says(&["no-such-command", "PATH"]);
        run("./typo").assert_code(127).assert_says(&["./typo"]);
        run("/").assert_code(126).assert_says(&["directory"]);
    }
    assert!(!place.sandbox.path("exec.db").exists(), "nobody took part in anything");
    assert!(!place.sandbox.home().join(".local").exists(), "no token was made");
}

#[test]
fn a_command_does_not_get_the_tokens_of_its_node() {
    let place = Place::new();
    let file = place.sandbox.write("token", "0123456789abcdef0123456789abcdef");
    let see = |verb: &str, options: &[&str], script: &str| {
        let mut command = place.command(verb, options, &shell(script));
        command.env("TENURE_HTTP_TOKEN", "0123456789abcdef").env("TENURE_HTTP_TOKEN_FILE", &file);
        command.env("OTHER_TOKEN", "for the command");
        command
    };
    for (verb, options) in [("exec", once(&[])), ("lock", vec![])] {
        let ran = finish(see(verb, &options, "env"), PATIENCE).assert_code(0);
        assert!(
            ran.stdout.contains("TENURE_EPOCH=") && !ran.stdout.contains("TENURE_HTTP"),
            "{}",
            ran.stdout
        );
        assert!(ran.stdout.contains("OTHER_TOKEN=for the command"), "{}", ran.stdout);
    }
    let command = see("run", PLAIN, "env > seen.tmp; mv seen.tmp seen; sleep 600");
    let _node = Node::start("pod-a", command, &place.sandbox.path("pod-a.log")).unwrap();
    place.until("the command of a node", |place| place.sandbox.path("seen").exists());
    let seen = place.read("seen");
    assert!(seen.contains("TENURE_EPOCH=1") && !seen.contains("TENURE_HTTP"), "{seen}");
}

#[test]
fn a_command_gets_the_credentials_of_the_store_only_if_asked() {
    let place = Place::new();
    let secrets = [
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "GOOGLE_SERVICE_ACCOUNT",
        "GOOGLE_SERVICE_ACCOUNT_KEY",
        "AZURE_STORAGE_ACCOUNT_KEY",
        "AZURE_STORAGE_SAS_TOKEN",
        "AZURE_CLIENT_SECRET",
        "TENURE_WEBHOOK",
    ];
    // The rest of what says where the store is: a `tenure lock` within needs it.
    let others =
        [("AWS_REGION", "eu-north-1"), ("TENURE_PRESET", "fast"), ("OTHER_SECRET", "for the command")];
    let see = |verb: &str, options: &[&str], script: &str| {
        let mut command = place.command(verb, options, &shell(script));
        command.envs(secrets.map(|name| (name, "https://MARKED.example.org/"))).envs(others);
        command
    };
    let passed = ["--pass-credentials"];
    for (verb, options) in [("exec", once(&[])), ("lock", vec![]), ("once", vec!["--key", "k"])] {
        let ran = finish(see(verb, &options, "env"), PATIENCE).assert_code(0);
        // It can be read by every process of the same user, if not in the command's environment then in that of its parents.
        let options_above = [&options[..], &["--namespace", "above"]].concat();
        let above =
            finish(see(verb, &options_above, "env; cat /proc/$PPID/environ"), PATIENCE).assert_code(0);
        for said in [&ran.stdout, &above.stdout] {
            assert!(said.contains("TENURE_EPOCH=") && !said.contains("MARKED"), "{verb}: {said}");
            for (name, value) in others {
                assert!(said.contains(&format!("{name}={value}")), "{verb}: {name}: {said}");
            }
        }
        let options = [&options[..], &passed, &["--namespace", "passed"]].concat();
        let ran = finish(see(verb, &options, "env"), PATIENCE).assert_code(0);
        assert!(secrets[..11].iter().all(|name| ran.stdout.contains(&format!("{name}="))), "{}", ran.stdout);
        assert!(!ran.stdout.contains("TENURE_WEBHOOK"), "that is the node's: {}", ran.stdout);
    }
    let options = ["--log", "human", "--once", "--namespace", "told"];
    let told = finish(see("exec", &[STEADY, &options].concat(), "true"), PATIENCE).assert_code(0);
    let told = told.assert_says(&["AWS_SECRET_ACCESS_KEY", "--pass-credentials"]);
    assert!(!told.stderr.contains("MARKED"), "{}", told.stderr);
    let command = see("run", PLAIN, "env > seen.tmp; mv seen.tmp seen; sleep 600");
    let _node = Node::start("pod-a", command, &place.sandbox.path("pod-a.log")).unwrap();
    place.until("the command of a node", |place| place.sandbox.path("seen").exists());
    let seen = place.read("seen");
    assert!(seen.contains("TENURE_EPOCH=1") && !seen.contains("MARKED"), "{seen}");
    let ran = place.sandbox.tenure(["run", "--pass-credentials", "--store", &place.store()]);
    ran.assert_code(2).assert_says(&["CMD"]);
}

/// The short form of `cargo xtask exec`: the three faults that matter most.
#[test]
fn never_two_commands_at_one_instant_through_faults() {
    let sandbox = Sandbox::new();
    let plan = Plan {
        tenure: program(),
        engine: "sqlite".to_owned(),
        store: "sqlite:".to_owned(),
        endpoints: Vec::new(),
        preset: "fast".to_owned(),
        environment: Vec::new(),
        marker: marker_command(),
        rounds: vec![Kind::Kill, Kind::Pause, Kind::Cut],
        pause: Duration::from_secs(3),
        until_caught: false,
        dir: sandbox.home().to_owned(),
    };
    let findings = tenure_chaos::exec::run(plan, &mut |line| println!("{line}")).unwrap();
    println!("{}", findings.text());
    assert_eq!(findings.violations, [""; 0]);
    assert!(findings.margin.is_some_and(|margin| margin.count >= 3), "three changes of epoch");
}
