//! `exec` and `lock`.

use super::SettingsArgs;
use crate::exec::RestartWhen;
use crate::log::LogForm;
use clap::Args;
use std::ffi::OsString;

/// What is to be kept, and how: the same for both.
#[derive(Args)]
pub(crate) struct KeptArgs {
    /// Between SIGTERM and SIGKILL when leadership ends, or the lock is lost [default: what the last fifth of the lease has room for]
    #[arg(long, value_name = "TIME", value_parser = span, allow_hyphen_values = true)]
    pub(crate) grace: Option<u64>,
    /// Between SIGTERM and SIGKILL when this process is told to stop; the lease is renewed meanwhile
    #[arg(long, value_name = "TIME", value_parser = span, allow_hyphen_values = true, default_value = "10s")]
    pub(crate) stop_grace: u64,
    #[command(flatten)]
    pub(crate) settings: SettingsArgs,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Args)]
#[command(
    after_help = "The command gets stdin, stdout and stderr of this process, a session of its own, and TENURE_EPOCH, \
TENURE_NAMESPACE and TENURE_NODE. When leadership ends, or the lease is about to, everything it started gets SIGTERM, and \
SIGKILL in time to be gone when the lease is over, even if this process is killed or stopped. A whole machine or container \
that is frozen cannot be helped: what it wakes up with is for the epoch to refuse.\n\
SIGTERM or SIGINT: passed on, waited for (--stop-grace), then the seat is vacated. A second signal ends at once.\n\
Health and schedules are not run by these nodes: a command is all they lead for, and whoever wants both runs both \
(`tenure run` in a namespace of its own).\n\
Exit code: 0 after a signal; with --once or --restart never the command's own (128 + n if signal n ended it), 12 if \
--once was cut short by the loss of leadership. The log level is set by TENURE_LOG (error, warn, info, debug)."
)]
pub(crate) struct ExecArgs {
    /// Run the command once, give the seat up, and end with the command's exit code
    #[arg(long, conflicts_with = "restart")]
    pub(crate) once: bool,
    /// When a command that ended by itself is started again, after a pause that grows; after more than 5 restarts in a
    /// minute another node gets a chance
    #[arg(long, value_enum, default_value = "always")]
    pub(crate) restart: RestartWhen,
    /// Form of the log on stderr
    #[arg(long, value_enum, default_value = "human")]
    pub(crate) log: LogForm,
    #[command(flatten)]
    pub(crate) kept: KeptArgs,
}

#[derive(Args)]
#[command(
    after_help = "A free lock is taken at once, a released one with the next look (electionInterval, here a quarter of \
heartbeatInterval), that of a holder that crashed when its lease has expired. The order of those who wait is not promised. The \
command is run as by `tenure exec`, with TENURE_LOCK besides, and killed before its lease ends.\n\
Exit code: the command's own (128 + n if signal n ended it), 11 if the lock was not had in time, 12 if it was lost while \
the command ran. All who use a lock should have the same settings."
)]
pub(crate) struct LockArgs {
    /// The lock: one for each name in a namespace
    #[arg(long, default_value = "default")]
    pub(crate) name: String,
    /// How long to wait for it, for ever if not given
    #[arg(long, value_name = "TIME", value_parser = span, allow_hyphen_values = true)]
    pub(crate) timeout: Option<u64>,
    /// Form of the log on stderr
    #[arg(long, value_enum, default_value = "off")]
    pub(crate) log: LogForm,
    #[command(flatten)]
    pub(crate) kept: KeptArgs,
}

#[derive(Args)]
pub(crate) struct KeeperArgs {
    /// The command may run until then, in ms of the boot-time clock
    #[arg(long)]
    pub(crate) until: u64,
    /// Between SIGTERM and SIGKILL, in ms
    #[arg(long)]
    pub(crate) grace: u64,
    /// SIGKILL comes so many ms before the end
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

/// The longest time that can be given: a day, as with settings.
const SPAN_MAX_MS: u64 = 24 * 60 * 60 * 1000;

/// `500ms`, `30s`, `2m`, `1h`. A number alone is refused: whoever types 30 means seconds, and a lock given up after 30 ms would be
/// a job that silently did not run.
fn span(text: &str) -> Result<u64, String> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let factor = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err("a time is a whole number with ms, s, m or h, like 500ms or 30s".to_owned()),
    };
    let number: u64 = number.parse().map_err(|_| "a time begins with a whole number, like 30s".to_owned())?;
    match number.checked_mul(factor) {
        Some(ms) if ms <= SPAN_MAX_MS => Ok(ms),
        Some(_) | None => Err("no time is longer than a day (24h)".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        let good = [
            ("0s", 0),
            ("250ms", 250),
            ("500ms", 500),
            ("30s", 30_000),
            ("2m", 120_000),
            ("24h", SPAN_MAX_MS),
        ];
        for (text, ms) in good {
            assert_eq!(span(text), Ok(ms), "{text}");
        }
        for text in [
            "",
            "s",
            "0",
            "30",
            "250",
            "-1s",
            "1.5s",
            "1 s",
            "30 s",
            "1d",
            "25h",
            "18446744073709551615h",
            "٣s",
        ] {
            assert!(span(text).is_err(), "{text}");
        }
    }
}
