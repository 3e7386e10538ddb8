//! The arguments of polls: agents, schedules, jobs.

use super::time::wait;
use super::{PlaceArgs, SettingsArgs};
use crate::log::LogForm;
use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Args)]
#[command(
    after_help = "SIGTERM or SIGINT: take nothing new, finish what runs, write the results, deregister; a second signal ends at once.\n\
Checks of kind `command` are refused unless --allow-command has the program and its arguments, word for word: \
'/usr/local/bin/backup --all'. The word * stands for exactly one argument that does not begin with -, and ** as the last word for any \
arguments: '/usr/bin/ping -c 1 *'. A word with a space or a * of its own stands in quotes. Whoever may write schedules may have this \
machine run what is allowed. Commands see PATH, HOME, LANG and TZ of the agent's environment, and what --env names.\n\
Exit code 0 drained, 1 another live process has the id."
)]
pub(crate) struct AgentArgs {
    /// The agent's id, one live process each
    #[arg(long)]
    pub(crate) id: String,
    /// The plugin type its worker is registered with
    #[arg(long = "type", value_name = "TYPE", default_value = "poll")]
    pub(crate) plugin_type: String,
    /// Something it can do, which schedules may ask for; may be given several times
    #[arg(long = "capability", value_name = "NAME")]
    pub(crate) capabilities: Vec<String>,
    /// Where it is: schedules for another partition are not for it
    #[arg(long, value_name = "NAME")]
    pub(crate) partition: Option<String>,
    /// For what it is responsible: schedules for another domain are not for it
    #[arg(long, value_name = "NAME")]
    pub(crate) domain: Option<String>,
    /// How many jobs it does at once at most
    #[arg(long, value_name = "COUNT", default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=256))]
    pub(crate) slots: u64,
    /// A command that checks of kind `command` may run, see below; may be given several times
    #[arg(long = "allow-command", value_name = "COMMAND")]
    pub(crate) allow_commands: Vec<String>,
    /// A variable of the agent's environment that commands may see; may be given several times
    #[arg(long, value_name = "NAME")]
    pub(crate) env: Vec<String>,
    /// Let checks connect to link-local addresses and to metadata services, which hand out a machine's credentials
    #[arg(long)]
    pub(crate) allow_link_local: bool,
    /// The pod it runs on [default: the setting `node`]
    #[arg(long)]
    pub(crate) pod: Option<String>,
    /// Print every event as one JSON object per line on stdout
    #[arg(long)]
    pub(crate) events: bool,
    /// Form of the log on stderr
    #[arg(long, value_enum, default_value = "human")]
    pub(crate) log: LogForm,
    #[command(flatten)]
    pub(crate) settings: SettingsArgs,
}

#[derive(Args)]
#[command(
    after_help = "The file is a list of schedules, YAML or JSON, of at most 1 MiB. It is read whole, and everything that is wrong \
with it is said with its line; nothing is written then. Schedules that are not in the file stay as they are. A schedule that \
is new or becomes enabled begins with the due times after now.\n\
Exit code 0 done, 2 something is wrong with the file, 1 or 4 or 6 some schedules could not be written (which is said)."
)]
pub(crate) struct ApplyArgs {
    /// The file; `-` is stdin
    #[arg(short, long, value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Say what would be done, and do nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) settings: PlaceArgs,
}

#[derive(Args)]
pub(crate) struct ScheduleArgs {
    #[command(subcommand)]
    pub(crate) action: ScheduleAction,
}

#[derive(Subcommand)]
pub(crate) enum ScheduleAction {
    /// Add a schedule; one that exists is left alone unless --replace is given
    Add(Box<ScheduleAddArgs>),
    /// Show all schedules, and when they are due next
    List(LookArgs),
    /// Show one schedule: when, what, how its checks are doing, its jobs
    Show(OneArgs),
    /// Let a schedule create no more jobs; those that are open go on
    Pause(OneArgs),
    /// Let a paused schedule go on, with the due times after now
    Resume(OneArgs),
    /// Have the leader create a job of a schedule now, paused or not
    RunNow(RunNowArgs),
    /// Remove a schedule; its open jobs go on
    Rm(OneArgs),
}

#[derive(Args)]
#[command(
    after_help = "A check: 'kind=http,url=https://example.org/[,status=204]', 'kind=tcp,host=example.org,port=443', \
'kind=dns,host=example.org', 'kind=command,program=/usr/lib/checks/disk[,args=-v]', or a JSON object; each with [,timeout=5s].\n\
Exit code 1 if a schedule of this id exists, 2 if something is wrong; nothing was written then."
)]
pub(crate) struct ScheduleAddArgs {
    /// The schedule's id, at most 100 bytes
    pub(crate) id: String,
    /// Due every so often, counted from 1970
    #[arg(long, value_name = "TIME")]
    pub(crate) every: Option<String>,
    /// How much later than a multiple of --every [default: 0s]
    #[arg(long, value_name = "TIME", requires = "every")]
    pub(crate) offset: Option<String>,
    /// By how much a job may begin later, by chance [default: 0s]
    #[arg(long, value_name = "TIME", requires = "every")]
    pub(crate) jitter: Option<String>,
    /// Due by a cron expression: five fields, or six with seconds in front
    #[arg(long, value_name = "EXPRESSION")]
    pub(crate) cron: Option<String>,
    /// The time zone of --cron [default: UTC]
    #[arg(long, value_name = "ZONE", requires = "cron")]
    pub(crate) zone: Option<String>,
    /// Only due when somebody says `tenure schedule run-now`
    #[arg(long)]
    pub(crate) manual: bool,
    /// What to look at, see below; may be given several times
    #[arg(long = "check", value_name = "CHECK", required = true)]
    pub(crate) checks: Vec<String>,
    /// The partition an agent must be in [default: any]
    #[arg(long, value_name = "NAME")]
    pub(crate) partition: Option<String>,
    /// The domain an agent must be in [default: any]
    #[arg(long, value_name = "NAME")]
    pub(crate) domain: Option<String>,
    /// Something an agent must be able to do; may be repeated
    #[arg(long = "capability", value_name = "NAME")]
    pub(crate) capabilities: Vec<String>,
    /// How long one attempt of a job may take [default: 30s]
    #[arg(long, value_name = "TIME")]
    pub(crate) timeout: Option<String>,
    /// How long a job may wait for an agent [default: 60s]
    #[arg(long, value_name = "TIME")]
    pub(crate) ttl: Option<String>,
    /// How often a job is begun at most [default: 3]
    #[arg(long, value_name = "COUNT")]
    pub(crate) attempts: Option<u64>,
    /// The pause before the second attempt, then doubled [default: 1s]
    #[arg(long, value_name = "TIME")]
    pub(crate) backoff: Option<String>,
    /// Of those due at once, higher ones come first [default: 5]
    #[arg(long, value_name = "0-9")]
    pub(crate) priority: Option<u64>,
    /// Whether there may be several open jobs: forbid or allow [default: forbid]
    #[arg(long, value_name = "POLICY")]
    pub(crate) overlap: Option<String>,
    /// How many jobs may be open with --overlap allow [default: 1]
    #[arg(long, value_name = "COUNT")]
    pub(crate) max_concurrent: Option<u64>,
    /// Missed due times: skip, run_once or catch_up(n) [default: run_once]
    #[arg(long, value_name = "POLICY")]
    pub(crate) misfire: Option<String>,
    /// How late a due time may be, not to be missed [default: 5s]
    #[arg(long, value_name = "TIME")]
    pub(crate) misfire_threshold: Option<String>,
    /// Failures in a row that make a check failing [default: 3]
    #[arg(long, value_name = "COUNT")]
    pub(crate) fail_after: Option<u64>,
    /// Successes in a row that make a failing check well again [default: 1]
    #[arg(long, value_name = "COUNT")]
    pub(crate) recover_after: Option<u64>,
    /// Add it paused
    #[arg(long)]
    pub(crate) paused: bool,
    /// Change the schedule if it exists
    #[arg(long)]
    pub(crate) replace: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) settings: PlaceArgs,
}

#[derive(Args)]
pub(crate) struct LookArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) settings: PlaceArgs,
}

#[derive(Args)]
#[command(after_help = "Exit code 10 if there is no such thing.")]
pub(crate) struct OneArgs {
    /// Its id
    pub(crate) id: String,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) settings: PlaceArgs,
}

#[derive(Args)]
#[command(
    after_help = "The request stands in the schedule's object; the leader, whoever it is, makes one job of it as soon as the \
schedule may have one more open. Asking again under the same name gives the same job.\n\
Exit code 0 if the job exists (or, without waiting, was asked for), 1 if it does not in time (it is still asked for), 10 if \
there is no such schedule."
)]
pub(crate) struct RunNowArgs {
    /// The schedule's id
    pub(crate) id: String,
    /// Your name for the job, 1 to 12 letters and digits [default: a new one]
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// How long to wait for the job to exist; 0s: ask and do not wait
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = wait, allow_hyphen_values = true)]
    pub(crate) wait: u64,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) settings: PlaceArgs,
}

#[derive(Args)]
#[command(
    after_help = "Open jobs and those that ended lately, the newest due time first; `tenure job show` also finds those that were put \
away. Four reads, and one for each agent that has jobs."
)]
pub(crate) struct JobsArgs {
    /// Only those of this schedule
    #[arg(long, value_name = "ID")]
    pub(crate) schedule: Option<String>,
    /// Only those that are not over
    #[arg(long)]
    pub(crate) open: bool,
    /// Only those in this state: queued, running, succeeded, …
    #[arg(long, value_name = "STATE")]
    pub(crate) state: Option<String>,
    /// How many to show at most
    #[arg(long, value_name = "COUNT", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub(crate) limit: u64,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) settings: PlaceArgs,
}

#[derive(Args)]
pub(crate) struct JobArgs {
    #[command(subcommand)]
    pub(crate) action: JobAction,
}

#[derive(Subcommand)]
pub(crate) enum JobAction {
    /// Show one job: where it stands, who has it, why it waits, what came of it
    Show(OneArgs),
}
