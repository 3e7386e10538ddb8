//! Every command, as a user or a script meets it.

use crate::common::{Cluster, FAST, PATIENCE, PLAIN, STEADY, Sandbox, finish, net::Server};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

#[test]
fn every_command_explains_itself() {
    let sandbox = Sandbox::new();
    let commands: [&[&str]; 15] = [
        &[],
        &["run"],
        &["status"],
        &["history"],
        &["leader"],
        &["health"],
        &["metrics"],
        &["cost"],
        &["doctor"],
        &["config"],
        &["config", "check"],
        &["config", "show"],
        &["config", "default"],
        &["demo"],
        &["completions"],
    ];
    for command in commands {
        for flag in ["--help", "-h"] {
            let ran = sandbox.tenure(command.iter().chain([&flag])).assert_code(0);
            assert!(ran.stdout.contains("Usage:") && ran.stderr.is_empty(), "{command:?}: {ran:?}");
        }
    }
    let run = sandbox.tenure(["run", "--help"]).stdout;
    for word in ["--store", "--events", "tenure config default", "SIGTERM", "--config"] {
        assert!(run.contains(word), "{word} is not in the help of run");
    }
    let top = sandbox.tenure(["--help"]).stdout;
    for word in [
        "run",
        "status",
        "leader",
        "health",
        "metrics",
        "cost",
        "doctor",
        "config",
        "demo",
        "completions",
        "Exit codes",
    ] {
        assert!(top.contains(word), "{word} is not in the help");
    }
    for flag in ["--version", "-V"] {
        let ran = sandbox.tenure([flag]).assert_code(0);
        assert_eq!(ran.stdout.trim(), concat!("tenure ", env!("CARGO_PKG_VERSION")));
    }
    assert!(sandbox.contents().is_empty(), "help writes nothing");
}

#[test]
fn what_is_not_a_command_is_refused() {
    let sandbox = Sandbox::new();
    let wrong: [&[&str]; 7] = [
        &[],
        &["lead"],
        &["run", "--nonsense"],
        &["run", "surplus"],
        &["config"],
        &["config", "mend"],
        &["completions", "abacus"],
    ];
    for arguments in wrong {
        let ran = sandbox.tenure(arguments).assert_code(2);
        assert!(ran.stdout.is_empty() && ran.stderr.contains("Usage:") || ran.stderr.contains("--help"));
    }
    sandbox.tenure(["statsu"]).assert_code(2).assert_says(&["statsu", "status"]);
    assert!(sandbox.contents().is_empty());
}

#[test]
fn completions_are_scripts_of_their_shell() {
    let sandbox = Sandbox::new();
    for shell in ["bash", "zsh", "fish"] {
        let ran = sandbox.tenure(["completions", shell]).assert_code(0);
        for word in ["status", "lease-timeout", "doctor"] {
            assert!(ran.stdout.contains(word), "{shell}: {word}");
        }
        let script = sandbox.write(shell, &ran.stdout);
        // Whoever has the shell lets it judge.
        let Ok(parsed) = std::process::Command::new(shell).args(["-n", &script]).output() else { continue };
        assert!(parsed.status.success(), "{shell}: {parsed:?}");
    }
}

#[test]
fn status_says_who_leads_and_whether_it_lives() {
    let sandbox = Sandbox::new();
    let store = sandbox.sqlite("t.db");
    let status = |arguments: &[&str]| {
        sandbox.tenure([&["status", "--store", &store, "--namespace", "horizon"], arguments].concat())
    };
    let ran = status(&[]).assert_code(3);
    assert!(ran.stdout.contains("does not exist yet"), "{ran:?}");
    let nothing = status(&["--json"]).assert_code(3).json();
    assert_eq!((&nothing["leader"], &nothing["epoch"]), (&Value::Null, &json!(0)));
    assert!(sandbox.contents().is_empty(), "looking makes nothing");
    sandbox.write("t.db", "");
    status(&[]).assert_code(3);
    assert_eq!(std::fs::read(sandbox.path("t.db")).unwrap(), b"", "looking writes nothing");

    let settings = [PLAIN, &["--namespace", "horizon"]].concat();
    let mut cluster = Cluster::new(&sandbox, &store, &settings);
    let leader = cluster.start("pod-a");
    cluster.event(0, leader, "became_leader");
    let standby = cluster.start("pod-b");
    cluster.event(0, standby, "leader_changed");
    let live = status(&["--json"]).assert_code(0).json();
    assert_eq!((&live["namespace"], &live["epoch"]), (&json!("horizon"), &json!(1)));
    assert!(live["store"].as_str().unwrap().starts_with(&store), "{live}");
    let seat = &live["leader"];
    assert_eq!(
        (&seat["node"], &seat["live"], &seat["leaseHold"]),
        (&json!("pod-a"), &json!(true), &json!(5000))
    );
    assert_eq!(seat["incarnation"].as_str().unwrap().len(), 16);
    assert!(seat["since"].as_str().unwrap().ends_with('Z') && seat["renewals"].is_u64(), "{live}");
    let roles: BTreeMap<&str, &str> = live["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|node| {
            assert!(node["lastSeenMsAgo"].is_u64(), "{node}");
            (node["node"].as_str().unwrap(), node["role"].as_str().unwrap())
        })
        .collect();
    assert_eq!(roles, BTreeMap::from([("pod-a", "leader"), ("pod-b", "standby")]));
    let words = status(&[]).assert_code(0).stdout;
    for word in ["pod-a", "pod-b", "live", "epoch      1", "standby"] {
        assert!(words.contains(word), "{word:?} is not in:\n{words}");
    }
    let other = sandbox.tenure(["status", "--store", &store, "--namespace", "elsewhere"]).assert_code(3);
    assert!(other.stdout.contains("none"), "{other:?}");

    // Nobody is left to notice, so the seat stays as the dead left it.
    cluster.kill(standby);
    cluster.kill(leader);
    let dead = status(&["--json"]).assert_code(3).json();
    assert_eq!((&dead["leader"]["node"], &dead["leader"]["live"]), (&json!("pod-a"), &json!(false)));
    assert!(status(&[]).assert_code(3).stdout.contains("SILENT"));
    cluster.finish();
}

#[test]
fn ce2_a_node_that_may_not_lead_leaves_the_others_alone() {
    let sandbox = Sandbox::new();
    let store = sandbox.sqlite("t.db");
    let mut cluster = Cluster::new(&sandbox, &store, STEADY);
    let outsider = cluster.start_with("pod-a", &[("COORDINATOR_ELIGIBLE", "false")]);
    cluster.wait_log(outsider, "not eligible");
    cluster.start("pod-b");
    let leader = cluster.leader(0);
    assert_eq!(leader.node, "pod-b");
    let seen = cluster.event(0, outsider, "leader:changed");
    assert_eq!(seen.event["newLeader"], "pod-b", "it watches: {seen:?}");
    let status = sandbox.tenure(["status", "--json", "--store", &store]).assert_code(0).json();
    assert_eq!(status["nodes"].as_array().unwrap().len(), 1, "it is not even known: {status}");
    cluster.finish();
}

#[test]
fn the_first_events_are_printed_too() {
    let sandbox = Sandbox::new();
    for _ in 0..10 {
        let mut cluster =
            Cluster::new(&sandbox, &sandbox.sqlite("t.db"), &["--startup-jitter-min", "5000ms"]);
        let waiting = cluster.start("pod-a");
        let ineligible = cluster.start_with("pod-b", &[("COORDINATOR_ELIGIBLE", "false")]);
        cluster.wait_log(waiting, "first request");
        cluster.wait_log(ineligible, "not eligible");
        for (life, name) in [(waiting, "startup_jitter"), (ineligible, "ineligible")] {
            cluster.signal(life, Signal::TERM);
            assert_eq!(cluster.exit(life).code(), Some(0));
            let said: Vec<_> = cluster.history().iter().filter(|said| said.life == life).collect();
            let names: Vec<&str> = said.iter().map(|said| said.name()).collect();
            assert_eq!(names, [name, "stopped"], "what the log says, the events say");
        }
        cluster.finish();
    }
}

/// `config show --resolved --json` in an environment.
fn resolved(sandbox: &Sandbox, arguments: &[&str], environment: &[(&str, &str)]) -> Value {
    let mut command = sandbox.command();
    command.args(["config", "show", "--resolved", "--json"]).args(arguments);
    command.envs(environment.iter().copied());
    finish(command, PATIENCE).assert_code(0).json()
}

#[test]
fn td2_the_takeover_delay_comes_from_its_variable() {
    let sandbox = Sandbox::new();
    let settings = resolved(&sandbox, &[], &[("COORDINATOR_TAKEOVER_DELAY", "2000")]);
    assert_eq!(settings["takeoverDelay"]["value"], 2000);
    assert_eq!(settings["takeoverDelay"]["from"], "environment COORDINATOR_TAKEOVER_DELAY");
    let settings = resolved(&sandbox, &[], &[("COORDINATOR_ELECTION_INTERVAL", "700")]);
    assert_eq!(settings["electionInterval"]["value"], 700);
    assert_eq!(resolved(&sandbox, &[], &[])["takeoverDelay"], json!({"value": 1000, "from": "default"}));
}

#[test]
fn later_layers_win_and_say_so() {
    let sandbox = Sandbox::new();
    let file = sandbox.write("t.toml", "preset = \"fast\"\nheartbeatInterval = 310\nleaseTimeout = 1100\n");
    let heartbeat = |arguments: &[&str], environment: &[(&str, &str)]| {
        let settings = resolved(&sandbox, arguments, environment);
        (settings["heartbeatInterval"]["value"].clone(), settings["heartbeatInterval"]["from"].clone())
    };
    assert_eq!(heartbeat(&[], &[]), (json!(1500), json!("default")));
    assert_eq!(heartbeat(&["--preset", "fast"], &[]), (json!(300), json!("preset fast")));
    assert_eq!(heartbeat(&["--config", &file], &[]), (json!(310), json!(format!("file {file}"))));
    let by_variable = [("TENURE_CONFIG", file.as_str())];
    assert_eq!(heartbeat(&[], &by_variable), (json!(310), json!(format!("file {file}"))));
    let both = [by_variable[0], ("TENURE_HEARTBEAT_INTERVAL", "350")];
    assert_eq!(heartbeat(&[], &both), (json!(350), json!("environment TENURE_HEARTBEAT_INTERVAL")));
    let flag = ["--heartbeat-interval", "400ms"];
    assert_eq!(heartbeat(&flag, &both), (json!(400), json!("flag --heartbeat-interval")));

    let json_file = sandbox.write("t.json", r#"{"heartbeatInterval": 320, "node": "pod-j"}"#);
    let settings = resolved(&sandbox, &["--config", &json_file], &[]);
    assert_eq!(
        (&settings["heartbeatInterval"]["value"], &settings["node"]["value"]),
        (&json!(320), &json!("pod-j"))
    );
    // Only what was set is shown without --resolved.
    let shown = sandbox.tenure(["config", "show", "--json", "--config", &json_file]).assert_code(0).json();
    assert_eq!(shown.as_object().unwrap().len(), 2, "{shown}");
    let table = sandbox.tenure(["config", "show", "--config", &json_file]).assert_code(0).stdout;
    assert!(table.contains("heartbeatInterval") && table.contains("320") && !table.contains("leaseTimeout"));
}

#[test]
fn the_default_file_is_complete_and_valid() {
    let sandbox = Sandbox::new();
    let text = sandbox.tenure(["config", "default"]).assert_code(0).stdout;
    let settings = resolved(&sandbox, &[], &[]);
    for name in settings.as_object().unwrap().keys() {
        // A blank behind the # where the default is worked out and not a value.
        let shown = text.contains(&format!("\n#{name} = ")) || text.contains(&format!("\n# {name} = "));
        assert!(shown, "{name} is not in the default file");
    }
    // As it is, and with every # removed from a setting: the same.
    let settled: String = text
        .lines()
        .map(|line| match line.strip_prefix('#') {
            Some(setting) if !setting.starts_with(' ') && setting.contains(" = ") => format!("{setting}\n"),
            _ => format!("{line}\n"),
        })
        .collect();
    for file in [sandbox.write("default.toml", &text), sandbox.write("settled.toml", &settled)] {
        let ran = sandbox.tenure(["config", "check", "--config", &file]).assert_code(0);
        assert!(ran.stdout.contains("valid") && ran.stdout.contains("9500 ms"), "{ran:?}");
    }
}

#[test]
fn ap2_the_old_static_coordinator_is_ignored_with_one_warning() {
    let sandbox = Sandbox::new();
    let file = sandbox.write("old.toml", "cluster_coordinator = \"pod-a\"\n");
    let ran = sandbox.tenure(["config", "check", "--config", &file]).assert_code(0);
    assert_eq!(ran.stderr.matches("deprecated").count(), 1, "{}", ran.stderr);
    assert!(ran.stderr.contains("cluster_coordinator"));
}

#[test]
fn a_node_runs_without_any_setting() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.command();
    command.args(["run", "--startup-jitter-max", "0"]);
    let mut child = crate::common::Killed(command.stderr(std::process::Stdio::piped()).spawn().unwrap());
    let log = std::io::BufReader::new(child.0.stderr.take().unwrap());
    let leading = std::io::BufRead::lines(log).map_while(Result::ok).find(|line| line.contains("LEADING"));
    assert!(leading.is_some_and(|line| line.contains("epoch 1")));
    assert!(sandbox.path(".local/share/tenure/tenure.db").is_file(), "{:?}", sandbox.contents().keys());
    for (path, mode) in [(".local/share/tenure", 0o700), (".local/share/tenure/tenure.db", 0o600)] {
        let found = std::fs::metadata(sandbox.path(path)).unwrap().permissions().mode() & 0o7777;
        assert_eq!(found, mode, "{path}: {found:o}");
    }
    let status = sandbox.tenure(["status", "--json"]).assert_code(0).json();
    let node = status["leader"]["node"].as_str().unwrap();
    assert!(node.ends_with(&format!("-{}", child.0.id())), "host name, pid: {node}");
}

#[test]
fn a_database_that_other_users_can_open_is_used_with_a_warning() {
    let sandbox = Sandbox::new();
    let store = sandbox.sqlite("t.db");
    let begin = || {
        let mut command = sandbox.command();
        command.args(["run", "--store", &store, "--startup-jitter-max", "0"]);
        let mut child = crate::common::Killed(command.stderr(std::process::Stdio::piped()).spawn().unwrap());
        let log = std::io::BufReader::new(child.0.stderr.take().unwrap());
        let lines = std::io::BufRead::lines(log).map_while(Result::ok);
        let mut told: Vec<String> = Vec::new();
        for line in lines {
            told.push(line);
            if told.last().is_some_and(|line| line.contains("LEADING")) {
                break;
            }
        }
        told.join("\n")
    };
    let private = begin();
    assert!(!private.contains("chmod"), "{private}");
    let loose = std::fs::Permissions::from_mode(0o644);
    std::fs::set_permissions(sandbox.path("t.db"), loose).unwrap();
    let warned = begin();
    assert_eq!(warned.matches("chmod 600").count(), 1, "{warned}");
}

#[test]
fn doctor_trusts_sqlite_and_leaves_nothing_in_it() {
    let sandbox = Sandbox::new();
    let store = sandbox.sqlite("t.db");
    let ran = sandbox.tenure(["doctor", "--store", &store]).assert_code(0);
    for word in ["VERDICT", "create once", "counter race", "pass", "ms"] {
        assert!(ran.stdout.contains(word), "{word:?} is not in:\n{}", ran.stdout);
    }
    assert!(!ran.stdout.contains("FAIL") && ran.stderr.contains("this store is safe to use"), "{ran:?}");
    let report = sandbox.tenure(["doctor", "--json", "--store", &store]).assert_code(0).json();
    assert_eq!(report["safe"], true);
    for check in report["checks"].as_array().unwrap() {
        assert!(check["name"].is_string() && check["medianMs"].is_f64(), "{check}");
        assert_ne!(check["verdict"], "fail", "{check}");
    }
    assert!(ran.stdout.contains("presets this store is fast enough for: default "), "{}", ran.stdout);
    assert!(report["seatWrites"]["requests"].as_u64().unwrap() > 20, "{report}");
    assert_eq!(report["presets"].as_array().unwrap().len(), 3, "{report}");
    let database = rusqlite::Connection::open(sandbox.path("t.db")).unwrap();
    let left: i64 = database.query_row("SELECT count(*) FROM object", [], |row| row.get(0)).unwrap();
    assert_eq!(left, 0);
}

#[test]
fn doctor_races_another_process_and_writes_what_it_found() {
    let sandbox = Sandbox::new();
    let (store, file) = (sandbox.sqlite("t.db"), sandbox.path("found.v1"));
    let file = file.to_str().unwrap();
    let alone = sandbox.tenure(["doctor", "--peer", "a/b", "--store", &store]).assert_code(2);
    assert!(alone.stderr.contains("--peer"), "{}", alone.stderr);
    let ran = std::thread::scope(|scope| {
        let other = scope.spawn(|| sandbox.tenure(["doctor", "--peer", "try-1", "--store", &store]));
        let ran = sandbox.tenure(["doctor", "--peer", "try-1", "--report", file, "--store", &store]);
        [ran, other.join().unwrap()]
    });
    for ran in ran {
        let ran = ran.assert_code(0);
        assert!(ran.stdout.contains("two machines") && !ran.stdout.contains("FAIL"), "{}", ran.stdout);
    }
    let database = rusqlite::Connection::open(sandbox.path("t.db")).unwrap();
    let left: i64 = database.query_row("SELECT count(*) FROM object", [], |row| row.get(0)).unwrap();
    assert_eq!(left, 0, "both together leave nothing");
    let page = std::fs::read_to_string(format!("{file}.md")).unwrap();
    for word in [
        "**Safe to use**",
        "| two machines | pass |",
        "| `default` | ",
        "| $15.36 |",
        "a file costs nothing",
        "| two endpoints | not tried |",
    ] {
        assert!(page.contains(word), "{word:?} is not in:\n{page}");
    }
    let found = std::fs::read_to_string(format!("{file}.json")).unwrap();
    let found: serde_json::Value = serde_json::from_str(&found).unwrap();
    assert_eq!(
        (&found["found"]["safe"], &found["found"]["checks"][13]["name"]),
        (&true.into(), &"two machines".into())
    );
    let ran = sandbox.tenure(["doctor", "--report", "/nowhere/x", "--store", &store]).assert_code(1);
    assert!(ran.stderr.contains("cannot write /nowhere/x.md"), "{}", ran.stderr);
}

#[test]
fn no_secret_is_ever_printed() {
    const DENIED: &str = "<?xml version=\"1.0\"?><Error><Code>SignatureDoesNotMatch</Code><Message>The request \
                          signature we calculated does not match</Message></Error>";
    let sandbox = Sandbox::new();
    let refusing = Server::answering("403 Forbidden", DENIED);
    let failing = Server::answering("500 Internal Server Error", "");
    for (server, form, code) in
        [(&refusing, "json", Some(4)), (&refusing, "human", Some(4)), (&failing, "json", None)]
    {
        let mut command = sandbox.command();
        command.args(["run", "--events", "--log", form, "--store", "s3://bucket/prefix"]).args(FAST);
        command.args(["--diagnostics-enabled", "true"]);
        let marked = |mut command: std::process::Command| {
            command.env("AWS_ENDPOINT_URL", server.url()).env("AWS_REGION", "us-east-1");
            command.env("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE").env("AWS_SECRET_ACCESS_KEY", "MARKEDsecretKEY");
            command.env("AWS_SESSION_TOKEN", "MARKEDsessionTOKEN").env("TENURE_LOG", "trace");
            command
        };
        let mut command = marked(command);
        match code {
            Some(code) => {
                let ran = finish(command, PATIENCE).assert_code(code);
                assert!(ran.stderr.len() > 200, "trace says something: {}", ran.stderr);
                assert!(!ran.stdout.contains("MARKED") && !ran.stderr.contains("MARKED"), "{ran:?}");
            }
            None => {
                // It keeps trying; let it for a while.
                let log = std::fs::File::create(sandbox.path("log")).unwrap();
                let out = std::fs::File::create(sandbox.path("out")).unwrap();
                let child = crate::common::Killed(command.stdout(out).stderr(log).spawn().unwrap());
                let read = |name: &str| std::fs::read_to_string(sandbox.path(name)).unwrap();
                let deadline = std::time::Instant::now() + PATIENCE;
                while !read("out").contains("store_unavailable") {
                    assert!(std::time::Instant::now() < deadline, "{}", read("log"));
                    std::thread::sleep(Duration::from_millis(20));
                }
                drop(child);
                assert!(
                    !read("out").contains("MARKED") && !read("log").contains("MARKED"),
                    "{}",
                    read("log")
                );
            }
        }
        for verb in ["status", "doctor"] {
            let mut command = sandbox.command();
            command.args([verb, "--store", "s3://bucket/prefix"]);
            let ran = finish(marked(command), PATIENCE).assert_code(4);
            assert!(!ran.stdout.contains("MARKED") && !ran.stderr.contains("MARKED"), "{ran:?}");
        }
    }
    let mut command = sandbox.command();
    command.args(["config", "show", "--resolved"]).env("AWS_SECRET_ACCESS_KEY", "MARKEDsecretKEY");
    assert!(!finish(command, PATIENCE).assert_code(0).stdout.contains("MARKED"));
}

/// Tests that assert how long something takes. They run one at a time: `.config/nextest.toml`.
mod measured {
    use super::*;

    #[test]
    fn the_demo_tells_its_story_to_the_end() {
        // It plays with leases of one second.
        let sandbox = Sandbox::new();
        let mut command = sandbox.command();
        command.arg("demo");
        let ran = finish(command, Duration::from_secs(90)).assert_code(0);
        for word in ["pod-a", "kill -9", "kill -STOP", "SIGTERM", "never two at once"] {
            assert!(ran.stdout.contains(word), "{word:?} is not in:\n{}", ran.stdout);
        }
        assert!(ran.stderr.is_empty(), "{}", ran.stderr);
        assert!(sandbox.contents().is_empty(), "the demo tidies up: {:?}", sandbox.contents().keys());
    }
}
