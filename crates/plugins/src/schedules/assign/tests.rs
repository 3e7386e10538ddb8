use super::*;
use tenure::id::{Label, WorkerId};

fn id<T: std::str::FromStr<Err = tenure::id::IdError>>(text: &str) -> T {
    text.parse().expect("valid")
}

fn ids(texts: &[&str]) -> BTreeSet<Label> {
    texts.iter().map(|text| id(text)).collect()
}

fn agent(partition: &str, domain: &str, capabilities: &[&str]) -> AgentFacts {
    AgentFacts {
        partition: Some(id(partition)),
        domain: Some(id(domain)),
        capabilities: ids(capabilities),
        slots: 2,
        draining: false,
    }
}

fn needs() -> Needs {
    Needs { partition: Some(id("eu")), domain: Some(id("net")), capabilities: ids(&["icmp", "v6"]) }
}

type Agents = Vec<(WorkerId, AgentFacts, Option<usize>)>;

fn pick(needs: &Needs, had_it: Option<&str>, agents: &Agents) -> Result<String, &'static str> {
    let had_it = had_it.map(id);
    let agents = agents.iter().map(|(id, facts, jobs)| (id, facts, *jobs));
    choose(needs, had_it.as_ref(), agents).map(|id| id.to_string()).map_err(NoWorker::as_str)
}

#[test]
fn each_rule_that_leaves_nobody_has_a_name() {
    let fits = || agent("eu", "net", &["icmp", "v6", "more"]);
    let draining = AgentFacts { draining: true, ..fits() };
    for (agents, expected) in [
        (vec![], Err("no_worker")),
        (vec![(id("a"), draining.clone(), Some(0))], Err("all_draining")),
        (vec![(id("a"), agent("us", "net", &["icmp", "v6"]), Some(0))], Err("wrong_partition")),
        (vec![(id("a"), agent("eu", "db", &["icmp", "v6"]), Some(0))], Err("wrong_domain")),
        (vec![(id("a"), agent("eu", "net", &["icmp"]), Some(0))], Err("no_capability")),
        (vec![(id("a"), fits(), Some(2))], Err("all_full")),
        (vec![(id("a"), fits(), None)], Err("all_full")),
        (vec![(id("a"), AgentFacts { slots: 0, ..fits() }, Some(0))], Err("all_full")),
        (vec![(id("a"), fits(), Some(1))], Ok("a".to_owned())),
        // One agent that fits among others that fail, each by a different rule.
        (
            vec![
                (id("a"), draining, Some(0)),
                (id("b"), agent("us", "net", &["icmp", "v6"]), Some(0)),
                (id("c"), agent("eu", "net", &["icmp"]), Some(0)),
                (id("d"), fits(), Some(1)),
                (id("e"), fits(), Some(2)),
            ],
            Ok("d".to_owned()),
        ),
    ] {
        assert_eq!(pick(&needs(), None, &agents), expected, "{agents:?}");
    }
}

#[test]
fn the_least_loaded_is_chosen_and_whoever_had_it_last() {
    let fits = AgentFacts { slots: 9, ..AgentFacts::default() };
    let agents: Agents = [("a", 3), ("b", 1), ("c", 1)]
        .into_iter()
        .map(|(name, jobs)| (id(name), fits.clone(), Some(jobs)))
        .collect();
    let anything = Needs::default();
    assert_eq!(pick(&anything, None, &agents), Ok("b".to_owned()), "of equals the first");
    assert_eq!(pick(&anything, Some("b"), &agents), Ok("c".to_owned()), "rather not the one that had it");
    let alone = agents[1..2].to_vec();
    assert_eq!(pick(&anything, Some("b"), &alone), Ok("b".to_owned()), "unless there is nobody else");
}

#[test]
fn a_worker_says_what_it_is_in_its_payload() {
    let facts = agent("eu", "net", &["icmp"]);
    assert_eq!(AgentFacts::from_payload(&facts.to_payload()), Some(facts));
    assert_eq!(AgentFacts::from_payload(&json!({"poll": {}})), Some(AgentFacts::default()));
    for no_agent in [
        json!({}),
        json!({"queue": "mail"}),
        json!({"poll": true}),
        json!({"poll": {"slots": -1}}),
        json!({"poll": {"partition": "../x"}}),
        json!({"poll": {"capabilities": "icmp"}}),
        json!({"poll": {"draining": "no"}}),
    ] {
        assert_eq!(AgentFacts::from_payload(&no_agent), None, "{no_agent}");
    }
}

#[test]
fn a_job_says_what_it_needs() {
    let needs = needs();
    let payload = json!({"v": 1, "checks": [{"name": "x"}], "needs": {
        "partition": "eu", "domain": "net", "capabilities": ["icmp", "v6"]}});
    assert_eq!(needs_of(payload.to_string().as_bytes()), Some(needs));
    assert_eq!(needs_of(b"{}"), Some(Needs::default()));
    assert_eq!(needs_of(b"nonsense"), None);
    assert_eq!(needs_of(br#"{"needs": {"partition": "a b"}}"#), None, "nobody fits what nobody can be");
}
