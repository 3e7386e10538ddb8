//! The alerts and the Grafana dashboard in `deploy/`, against a real Prometheus that scrapes a real node.

use crate::common::net::get;
use crate::common::{Cluster, PATIENCE, STEADY, Sandbox};
use serde_json::Value;
use std::collections::BTreeSet;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

fn deploy(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../deploy").join(file)
}

/// Every query of the dashboard, its variables filled in.
fn panels() -> Vec<String> {
    let board: Value =
        serde_json::from_slice(&std::fs::read(deploy("grafana/tenure.json")).unwrap()).unwrap();
    let targets =
        board["panels"].as_array().unwrap().iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    let filled = |target: &Value| {
        let query = target["expr"].as_str().unwrap();
        query.replace("$namespace", ".*").replace("$__rate_interval", "1m")
    };
    targets.map(filled).collect()
}

/// Names of ours in a query.
fn names(query: &str) -> BTreeSet<String> {
    let words = query.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("tenure_")).map(str::to_owned).collect()
}

struct Prometheus(Child);

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn query(prometheus: &str, what: &str) -> Value {
    let encoded: String = what.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let (status, body) = get(prometheus, &format!("/api/v1/query?query={encoded}"));
    let answer: Value = serde_json::from_str(&body).unwrap_or_else(|_| panic!("{status}: {body}"));
    assert_eq!(answer["status"], "success", "{what}: {answer}");
    answer["data"]["result"].clone()
}

#[test]
#[ignore = "needs prometheus and promtool"]
fn rules_are_sound_and_do_what_they_say() {
    for arguments in [
        vec!["check", "rules", "prometheus/alerts.yml"],
        vec!["test", "rules", "prometheus/alerts_test.yml"],
        vec!["check", "config", "prometheus/prometheus.yml"],
    ] {
        let ran = Command::new("promtool").args(&arguments).current_dir(deploy("")).output().unwrap();
        let words = String::from_utf8_lossy(&ran.stdout).into_owned() + &String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "{arguments:?}: {words}");
    }
}

/// Alerts and panels speak of figures that a node really has, under labels that it really gives.
#[test]
#[ignore = "needs prometheus and promtool"]
fn a_real_scrape_has_what_alerts_and_panels_ask_for() {
    let sandbox = Sandbox::new();
    let mut cluster = Cluster::new(&sandbox, &sandbox.sqlite("t.db"), STEADY).env("TENURE_NO_HTTP", "false");
    let node = cluster.start_args("pod-a", &["--listen", "127.0.0.1:0", "--worker", "w1:queue"]);
    cluster.event(0, node, "became_leader");
    let address = cluster.http_address(node);
    let (status, text) = get(&address, "/metrics");
    assert_eq!(status, 200);

    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let config = format!(
        "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: [{}]\nscrape_configs: \
         [{{job_name: tenure, static_configs: [{{targets: ['{address}']}}]}}]\n",
        deploy("prometheus/alerts.yml").display()
    );
    let file = sandbox.write("prometheus.yml", &config);
    let prometheus = Command::new("prometheus")
        .arg(format!("--config.file={file}"))
        .arg(format!("--storage.tsdb.path={}", sandbox.path("tsdb").display()))
        .arg(format!("--web.listen-address=127.0.0.1:{port}"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let _prometheus = Prometheus(prometheus.expect("prometheus starts"));
    let own = format!("127.0.0.1:{port}");
    let until = Instant::now() + PATIENCE;
    // It listens before it answers queries.
    let leads = |own: &str| {
        std::net::TcpStream::connect(own).is_ok()
            && get(own, "/-/ready").0 == 200
            && query(own, "sum by (namespace) (tenure_leader_state) == 1")
                .as_array()
                .is_some_and(|all| !all.is_empty())
    };
    while !leads(&own) {
        assert!(Instant::now() < until, "Prometheus never saw a leader; the node says:\n{text}");
        std::thread::sleep(std::time::Duration::from_millis(200));
    }

    let (_, rules) = get(&own, "/api/v1/rules");
    let rules: Value = serde_json::from_str(&rules).unwrap();
    let rules = rules["data"]["groups"][0]["rules"].as_array().unwrap().clone();
    assert!(rules.len() > 10);
    let asked: Vec<String> =
        rules.iter().map(|rule| rule["query"].as_str().unwrap().to_owned()).chain(panels()).collect();
    for what in &asked {
        query(&own, what);
        for name in names(what) {
            let found = query(&own, &format!("count({name})"));
            assert!(
                found.as_array().is_some_and(|found| !found.is_empty()),
                "{name} of {what:?} is in no scrape"
            );
        }
    }
    let firing = query(&own, "ALERTS{alertstate='firing'}");
    assert_eq!(firing, serde_json::json!([]), "nothing is wrong with this cluster");
    cluster.finish();
}
