//! Nothing outlives `tenure lock`. A program of its own: the judge must have no other children.

use crate::common::{Sandbox, program};
use tenure_chaos::exec::leftovers::{Outcome, Plan, run};

#[test]
fn ex2_nothing_a_command_started_is_alive_once_lock_has_ended() {
    let sandbox = Sandbox::new();
    let plan = Plan {
        tenure: program(),
        runs: 200,
        at_once: 4,
        seed: 7,
        environment: Vec::new(),
        dir: sandbox.home().to_owned(),
    };
    let outcome = run(&plan, &mut |line| println!("{line}")).unwrap();
    assert_eq!(outcome, Outcome { runs: 200, left: 0, ..outcome });
}
