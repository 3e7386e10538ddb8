//! `exec` and `lock`.

use super::time::{keep, time};
use super::{PlaceArgs, SettingsArgs};
use crate::exec::RestartWhen;
use crate::exit::Failure;
use crate::log::LogForm;
use clap::{Args, Subcommand};
use std::ffi::OsString;
use std::path::Path;
use tenure::admin::Election;
use tenure::id::{Namespace, PluginName};

/// How a command is run.
#[derive(Args)]
pub(crate) struct CommandArgs {
    /// Time from SIGTERM to SIGKILL when leadership ends [default: as long as the lease allows]
    #[arg(long, value_name = "TIME", value_parser = time, allow_hyphen_values = true, requires = "command")]
    pub(crate) grace: Option<u64>,
    /// Time from SIGTERM to SIGKILL when this process is told to stop
    #[arg(long, value_name = "TIME", value_parser = time, allow_hyphen_values = true, default_value = "10s", requires = "command")]
    pub(crate) stop_grace: u64,
    /// Give the command the store's credentials (AWS_…, GOOGLE_…, AZURE_…), which it does not get otherwise
    #[arg(long, requires = "command")]
    pub(crate) pass_credentials: bool,
}

/// What is to be kept, and how: the same for both.
#[derive(Args)]
pub(crate) struct KeptArgs {
    #[command(flatten)]
    pub(crate) grace: CommandArgs,
    #[command(flatten)]
    pub(crate) settings: SettingsArgs,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Args)]
#[command(
    after_help = "All `exec` processes with the same name share one election, separate from `tenure run`: see `tenure status --exec \
NAME`. To run a command where the nodes' own leader is: `tenure run -- CMD`.\n\
The command inherits stdin, stdout and stderr, and gets TENURE_EPOCH, TENURE_NAMESPACE, TENURE_NODE and TENURE_EXEC. When \
leadership ends, everything it started gets SIGTERM, then SIGKILL before the lease is over, even if this process is \
killed. SIGTERM and SIGINT are passed on; once the command exits (or after --stop-grace) the seat is vacated.\n\
Exit code: 0 after a signal; the command's own with --once or --restart never; 12 if lost leadership cut --once short; \
127 if there is no such program, 126 if it cannot be run. TENURE_LOG sets the log level."
)]
pub(crate) struct ExecArgs {
    /// Only one of the commands with this name runs at a time [default: the program's file name]
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Run the command once, give up the seat, and exit with the command's exit code
    #[arg(long, conflicts_with = "restart")]
    pub(crate) once: bool,
    /// When to restart a command that exited by itself
    #[arg(long, value_enum, default_value = "always")]
    pub(crate) restart: RestartWhen,
    /// Log format on stderr
    #[arg(long, value_enum, default_value = "human")]
    pub(crate) log: LogForm,
    #[command(flatten)]
    pub(crate) kept: KeptArgs,
}

#[derive(Args)]
#[command(
    after_help = "A free lock is taken at once, a released one at the next read, one whose holder crashed when its lease \
expires. Waiters are served in no particular order. The command runs as in `tenure exec`, with TENURE_LOCK added. \
`tenure lock ls` shows who holds which lock.\n\
Exit code: the command's own (128 + n if signal n ended it), 4 if the store cannot be reached, 11 if somebody else held the lock \
for all of --timeout, 12 if it was lost while the command ran. All users of a lock should have the same settings.",
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true
)]
pub(crate) struct LockArgs {
    #[command(subcommand)]
    pub(crate) action: Option<LockAction>,
    /// The lock's name, unique in its namespace
    #[arg(long, default_value = "default")]
    pub(crate) name: String,
    /// How long to wait while somebody else holds it [default: forever]; 0s tries once
    #[arg(long, value_name = "TIME", value_parser = time, allow_hyphen_values = true)]
    pub(crate) timeout: Option<u64>,
    /// Log format on stderr
    #[arg(long, value_enum, default_value = "off")]
    pub(crate) log: LogForm,
    #[command(flatten)]
    pub(crate) kept: KeptArgs,
}

#[derive(Subcommand)]
pub(crate) enum LockAction {
    /// Show the locks that are held: name, holder, since when, epoch
    Ls(LockLsArgs),
}

#[derive(Args)]
#[command(
    after_help = "A holder is live if it renews while this command watches, for at most one hold. Costs one list and a \
read for each lock ever used, plus a list and two reads for each that is held."
)]
pub(crate) struct LockLsArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) settings: PlaceArgs,
}

#[derive(Args)]
#[command(
    after_help = "For the line in every host's crontab, or a step of every pod's start: the command runs on one of them. The others \
end with 0 at once, or, with --wait, when it has ended and with its exit code. The key stays used for --keep, however the \
command ended; a date in it makes it a new one: --key nightly-$(date -u +%F), in a crontab with \\%F.\n\
The command runs as in `tenure lock`, with TENURE_ONCE added. If the process that runs it dies, the key is lost: nobody knows \
what was done. With --retry another process runs the command again.\n\
Exit code: the command's own (128 + n if signal n ended it), 0 if another process runs or ran it, 4 if the store cannot be reached, \
12 if the key is lost. All users of a key should have the same settings."
)]
pub(crate) struct OnceArgs {
    /// What is to be done once, unique in its namespace
    #[arg(long)]
    pub(crate) key: String,
    /// Wait until the command has ended, wherever it runs, and exit as it did
    #[arg(long)]
    pub(crate) wait: bool,
    /// Run the command again if whoever ran it died
    #[arg(long)]
    pub(crate) retry: bool,
    /// How long the key stays used once the command has ended
    #[arg(long, value_name = "TIME", default_value = "7d", value_parser = keep)]
    pub(crate) keep: u64,
    /// Log format on stderr
    #[arg(long, value_enum, default_value = "off")]
    pub(crate) log: LogForm,
    #[command(flatten)]
    pub(crate) kept: KeptArgs,
}

/// Which election of a namespace is meant.
#[derive(Args)]
pub(crate) struct SeatArgs {
    /// The election of the `tenure exec` commands with this name, instead of the namespace's own
    #[arg(long, value_name = "NAME", conflicts_with = "lock")]
    exec: Option<String>,
    /// The lock with this name, instead of the namespace's own election
    #[arg(long, value_name = "NAME")]
    lock: Option<String>,
}

impl SeatArgs {
    /// For people; `None` for the namespace's own.
    pub(crate) fn words(&self) -> Option<String> {
        let exec = self.exec.as_ref().map(|name| format!("of the command {name}"));
        exec.or_else(|| self.lock.as_ref().map(|name| format!("for the lock {name}")))
    }

    pub(crate) fn election(&self, namespace: &Namespace) -> Result<Election, Failure> {
        let seat = match (&self.exec, &self.lock) {
            (Some(name), _) => Some(exec_seat(name)?),
            (None, Some(name)) => Some(lock_seat(name)?),
            (None, None) => None,
        };
        Ok(Election { namespace: namespace.clone(), plugin: seat })
    }
}

/// The election of commands under one name is that of a plugin.
pub(crate) fn exec_seat(name: &str) -> Result<PluginName, Failure> {
    PluginName::new(&format!("exec-{name}"))
        .map_err(|error| Failure::usage(format!("the command name {name:?} {}", error.rule)))
}

/// So is a lock.
pub(crate) fn lock_seat(name: &str) -> Result<PluginName, Failure> {
    tenure::lock::lock_seat(name)
        .map_err(|error| Failure::usage(format!("the lock name {name:?} {}", error.rule)))
}

/// So is a key.
pub(crate) fn once_seat(key: &str) -> Result<PluginName, Failure> {
    PluginName::new(&format!("once-{key}"))
        .map_err(|error| Failure::usage(format!("the key {key:?} {}", error.rule)))
}

/// The name of a command that was given none: its program's, with whatever cannot be part of a name replaced.
pub(crate) fn name_of(program: &Path) -> String {
    let name = program.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let safe = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') { c } else { '-' };
    let name: String = name.chars().map(safe).take(100).collect();
    if name.is_empty() { "command".to_owned() } else { name.replace("..", "--") }
}

#[derive(Args)]
pub(crate) struct KeeperArgs {
    /// When the command must be gone, in ms of the boot-time clock
    #[arg(long)]
    pub(crate) until: u64,
    /// Time from SIGTERM to SIGKILL, in ms
    #[arg(long)]
    pub(crate) grace: u64,
    /// How long before the end to send SIGKILL, in ms
    #[arg(long)]
    pub(crate) margin: u64,
    #[arg(last = true, required = true)]
    pub(crate) command: Vec<OsString>,
}

#[derive(Args)]
pub(crate) struct BoundArgs {
    /// The process that must still be the parent
    #[arg(long)]
    pub(crate) parent: i32,
    #[arg(last = true, required = true)]
    pub(crate) command: Vec<OsString>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_has_a_name_that_can_be_a_seat() {
        for (program, name) in [
            ("./reporter", "reporter"),
            ("/usr/bin/python3.13", "python3.13"),
            ("my tool", "my-tool"),
            ("a..b", "a--b"),
            ("bäcker", "b-cker"),
            ("/", "command"),
        ] {
            assert_eq!(name_of(Path::new(program)), name, "{program}");
            assert!(exec_seat(name).is_ok(), "{name}");
        }
        assert!(exec_seat(&name_of(Path::new(&"x".repeat(300)))).is_ok());
        assert!(exec_seat("a/b").is_err() && lock_seat("../x").is_err());
    }
}
