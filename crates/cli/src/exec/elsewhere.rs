//! `exec` and `lock` where they cannot be had: they need Linux's child subreapers and parent-death signals.

#[path = "policy.rs"]
mod policy;

pub(crate) use policy::RestartWhen;

use crate::args::{BoundArgs, ExecArgs, KeeperArgs, LockArgs};
use crate::exit::Failure;
use std::process::ExitCode;

fn not_here() -> Failure {
    Failure::other(
        "`exec` and `lock` run on Linux only: nothing else lets them end all a command has started",
    )
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
