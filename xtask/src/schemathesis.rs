//! `cargo xtask schemathesis`: requests generated from the OpenAPI document, against a real node.
//!
//! Every answer must have no 5xx, a documented status, a documented content type, and a body that fits its schema. Left out:
//! routes that answer 503 by design (`/leaderz`), that do not end (`/v1/events`), or that wait on purpose (`jobs/next`, as soon
//! as a worker with a generated name is registered); these have tests of their own.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::process;
use crate::python::{self, Played};
use crate::workspace::Workspace;

const BUILD_LIMIT: Duration = Duration::from_secs(20 * 60);
const START_LIMIT: Duration = Duration::from_secs(30);
const LIMIT: Duration = Duration::from_secs(180);
const CHECKS: &str =
    "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance";
const LEFT_OUT: &str = "^(/leaderz|/v1/events|/v1/workers/[{]id[}]/jobs/next)$";

/// The token of a node that is gone when this ends.
const TOKEN: &str = "schemathesis-token";

pub(crate) fn run(workspace: &Workspace) -> Result<Played> {
    if !process::run(&mut workspace.build(), BUILD_LIMIT)? {
        bail!("the build failed");
    }
    play(workspace)
}

/// Uses the binary that is already built.
pub(crate) fn play(workspace: &Workspace) -> Result<Played> {
    let Some(programs) = python::programs(workspace)? else { return Ok(Played::Missing) };
    let dir = workspace.target.join("schemathesis");
    // This run would otherwise find what a former one left.
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir)?;
    let mut command = Command::new(workspace.program("tenure"));
    command.args([
        "run",
        "--preset",
        "fast",
        "--startup-jitter-max",
        "0",
        "--listen",
        "127.0.0.1:0",
        "--node",
        "pod-a",
    ]);
    command.arg("--store").arg(format!("sqlite:{}", dir.join("t.db").display()));
    let mut command = process::bound(&command);
    command.env_remove("TENURE_NO_HTTP").env_remove("TENURE_HTTP_TOKEN_FILE").env("TENURE_HTTP_TOKEN", TOKEN);
    command.current_dir(&dir);
    let mut node = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    let stderr = node.stderr.take().context("a log")?;
    let (mouth, heard) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            if let Some((_, address)) = line.split_once("http: listening on ") {
                let _ = mouth.send(address.trim().to_owned());
            }
        }
    });
    let played =
        heard.recv_timeout(START_LIMIT).context("the node does not say where it listens").and_then(|url| {
            let mut command = Command::new(programs.join("schemathesis"));
            command
                .current_dir(&dir)
                .arg("run")
                .arg(format!("{url}/openapi.json"))
                .arg(format!("--checks={CHECKS}"))
                .args(["--header", &format!("Authorization: Bearer {TOKEN}")]);
            command.args([
                "--phases=coverage,fuzzing",
                "--max-examples=8",
                "--no-color",
                "--exclude-path-regex",
                LEFT_OUT,
            ]);
            process::run(&mut command, LIMIT)
        });
    let _ = node.kill();
    let _ = node.wait();
    Ok(Played::of(played?))
}
