//! Requests generated from the OpenAPI document, against a real node.
//!
//! Every answer must have no 5xx, a documented status, a documented content type, and a body that fits its schema. Left out:
//! routes that answer 503 by design (`/leaderz`), that do not end (`/v1/events`), or that wait on purpose (`jobs/next`, as soon
//! as a worker with a generated name is registered); these have tests of their own.

use crate::common::{Cluster, STEADY, Sandbox, finish};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

const CHECKS: &str =
    "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance";
const LEFT_OUT: &str = "^(/leaderz|/v1/events|/v1/workers/[{]id[}]/jobs/next)$";

#[test]
#[ignore = "needs schemathesis: cargo xtask test"]
fn every_generated_request_gets_a_documented_answer() {
    let programs = std::env::var_os("TENURE_TEST_PYTHON").expect("cargo xtask test sets TENURE_TEST_PYTHON");
    let sandbox = Sandbox::new();
    let mut cluster = Cluster::new(&sandbox, &sandbox.sqlite("t.db"), STEADY).env("TENURE_NO_HTTP", "false");
    let life = cluster.start_args("pod-a", &["--listen", "127.0.0.1:0"]);
    let address = cluster.http_address(life);
    let mut command = Command::new(PathBuf::from(programs).join("schemathesis"));
    command.current_dir(sandbox.home()).arg("run").arg(format!("http://{address}/openapi.json"));
    command.args(["--header", &format!("Authorization: Bearer {}", sandbox.http_token())]);
    command.args(["--phases=coverage,fuzzing", "--max-examples=8", "--no-color", "--checks", CHECKS]);
    command.args(["--exclude-path-regex", LEFT_OUT]);
    let ran = finish(command, Duration::from_secs(300));
    assert_eq!(ran.code, Some(0), "{}\n{}", ran.stdout, ran.stderr);
}
