//! What counts as clean evidence.

use serde_json::json;
use tenure_sim::evidence::Figures;

#[test]
fn every_part_of_the_proof_must_hold() {
    let parts = ["z3", "cvc5", "mutants", "needed", "slack", "reachable"];
    for part in parts {
        let mut found = clean();
        found.proof[part]["ok"] = false.into();
        assert!(!found.is_clean(), "{part}");
    }
    assert!(!Figures { proof: json!({}), ..clean() }.is_clean(), "what was not tried shows nothing");
}

fn schedules(violations: u64, speed: f64, threads: u64, steps: u64) -> serde_json::Value {
    json!({"violations": violations, "simulatedPerWallSecond": speed, "threads": threads, "followed": {"steps": steps}})
}

fn clean() -> Figures {
    let ok = json!({"ok": true});
    Figures {
        proof: json!({"z3": ok, "cvc5": ok, "mutants": ok, "needed": ok, "slack": ok, "reachable": ok}),
        schedules: schedules(0, 20_000.0, 2, 1),
        driver: json!({"violations": []}),
        explored: vec![json!({"violation": null, "complete": true, "followed": {"steps": 1}})],
        mutants: vec![json!({"caught": true})],
        chaos: Some(json!({"violations": []})),
        broken: vec![json!({"caught": true})],
    }
}

#[test]
fn one_violation_anywhere_is_not_clean() {
    assert!(clean().is_clean());
    assert!(!Figures { proof: json!({"z3": {"ok": true}}), ..clean() }.is_clean());
    assert!(!Figures { schedules: schedules(1, 20_000.0, 1, 1), ..clean() }.is_clean());
    let slow = schedules(0, 19_999.9, 2, 1);
    assert!(!Figures { schedules: slow, ..clean() }.is_clean(), "nor a simulator that shows too little");
    let untied = schedules(0, 20_000.0, 2, 0);
    assert!(
        !Figures { schedules: untied, ..clean() }.is_clean(),
        "nor one that no step of was held against the model"
    );
    assert!(!Figures { driver: json!({"violations": ["x"]}), ..clean() }.is_clean());
    assert!(!Figures { explored: vec![json!({"violation": "x"})], ..clean() }.is_clean());
    assert!(!Figures { mutants: vec![json!({"caught": false})], ..clean() }.is_clean());
    assert!(!Figures { chaos: Some(json!({"violations": ["x"]})), ..clean() }.is_clean());
    assert!(!Figures { broken: vec![json!({"caught": false})], ..clean() }.is_clean());
    assert!(!Figures { schedules: json!({}), ..clean() }.is_clean(), "no figure is no proof");
    assert!(!Figures { explored: vec![], ..clean() }.is_clean(), "nor is a search that was not made");
    let cut = vec![json!({"violation": null, "complete": false, "followed": {"steps": 1}})];
    assert!(!Figures { explored: cut, ..clean() }.is_clean(), "nor one that was cut short");
    assert!(!Figures { mutants: vec![], ..clean() }.is_clean(), "nor are mutants that were not tried");
    assert!(!Figures { broken: vec![], ..clean() }.is_clean(), "nor are binaries that were not played");
    assert!(Figures { chaos: None, broken: vec![], ..clean() }.is_clean(), "unless chaos is left out");
}
