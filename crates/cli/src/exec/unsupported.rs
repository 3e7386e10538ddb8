//! `exec` and `lock` where they cannot be had: they need Linux's child subreapers and parent-death signals.

#[path = "policy.rs"]
mod policy;

pub(crate) use policy::RestartWhen;

use crate::args::{BoundArgs, CommandArgs, ExecArgs, KeeperArgs, LockArgs};
use crate::exit::Failure;
use std::ffi::OsString;
use std::process::ExitCode;
use tenure::Settings;
use tenure::process::ProcessSpec;

fn not_here() -> Failure {
    Failure::other(
        "`exec` and `lock` run on Linux only: no other system lets them stop everything a command started",
    )
}

/// There can be none.
pub(crate) enum Attached {}

impl Attached {
    pub(crate) fn new(
        command: Vec<OsString>,
        _: &CommandArgs,
        _: &Settings,
    ) -> Result<Option<Attached>, Failure> {
        if command.is_empty() { Ok(None) } else { Err(not_here()) }
    }

    pub(crate) fn process(&self, _: &Settings) -> ProcessSpec {
        match *self {}
    }

    pub(crate) async fn stop(&self, _: u8) {
        match *self {}
    }
}

pub(crate) async fn exec(_: ExecArgs) -> Result<ExitCode, Failure> {
    Err(not_here())
}

pub(crate) async fn lock(_: LockArgs) -> Result<ExitCode, Failure> {
    Err(not_here())
}

pub(crate) fn keeper(_: KeeperArgs) -> Result<ExitCode, Failure> {
    Err(not_here())
}

pub(crate) fn bound(_: &BoundArgs) -> ExitCode {
    not_here().report()
}
