//! What the guide shows of PostgreSQL, typed as it stands there. `cargo xtask test` installs the database and runs this.

#[path = "../../tenure/tests/common/postgres.rs"]
mod server;

use crate::common::Sandbox;
use crate::page::{Terminal, sections};

const FENCING: &str = include_str!("../../../docs/guide/fencing.md");

#[test]
#[ignore = "needs postgresql"]
fn fr2_the_guides_database_refuses_a_former_leader() {
    let postgres = server::Postgres::start();
    let (_, text) = sections(FENCING).into_iter().find(|(found, _)| found.starts_with("PostgreSQL")).unwrap();
    let sandbox = Sandbox::new();
    let variables = postgres.variables();
    let variables: Vec<(&str, &str)> =
        variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
    Terminal::open(&sandbox, &variables).play(&sandbox, text);
}
