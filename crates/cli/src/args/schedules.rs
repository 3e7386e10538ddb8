//! The arguments of agents, schedules and jobs.

use super::jobs::JobHistoryArgs;
use super::time::{job_time, moment, wait};
use super::{PlaceArgs, SettingsArgs};
use crate::log::LogForm;
use clap::{Args, Subcommand};
use std::path::PathBuf;
use std::time::SystemTime;

#[derive(Args)]
#[command(
    after_help = "On SIGTERM or SIGINT it takes no new jobs, finishes those that run, and deregisters; a second signal exits at once.\n\
It gets only the commands that --allow-command lists, the program and its arguments word for word: \
'/usr/local/bin/backup --all'. The word * stands for exactly one argument that does not begin with -, and ** as the last word for any \
arguments: '/usr/bin/ping -c 1 *'. Quote a word that contains a space or a *. Anyone who can write schedules can run the \
allowed commands on this machine. Commands see PATH, HOME, LANG and TZ of the agent, and the variables --env names. What they print is \
kept on the store, in clear text, for `tenure job logs`; --no-output keeps nothing.\n\
Exit code 0 drained, 1 another live process has the id."
)]
pub(crate) struct AgentArgs {
    /// The agent's id; only one live process may have it
    #[arg(long)]
    pub(crate) id: String,
    /// The plugin type to register its worker with
    #[arg(long = "type", visible_alias = "plugin-type", value_name = "TYPE", default_value = "poll")]
    pub(crate) plugin_type: String,
    /// A queue to take jobs from; may be repeated [default: all queues]
    #[arg(long = "queue", value_name = "NAME")]
    pub(crate) queues: Vec<String>,
    /// Something it can do, for schedules to ask for; may be repeated
    #[arg(long = "capability", value_name = "NAME")]
    pub(crate) capabilities: Vec<String>,
    /// Its partition: it skips schedules for other partitions
    #[arg(long, value_name = "NAME")]
    pub(crate) partition: Option<String>,
    /// Its domain: it skips schedules for other domains
    #[arg(long, value_name = "NAME")]
    pub(crate) domain: Option<String>,
    /// Most jobs it runs at once
    #[arg(long, value_name = "COUNT", default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=256))]
    pub(crate) slots: u64,
    /// A command that jobs may run, see below; may be repeated
    #[arg(long = "allow-command", value_name = "COMMAND")]
    pub(crate) allow_commands: Vec<String>,
    /// A variable of the agent's environment that commands may see; may be repeated
    #[arg(long, value_name = "NAME")]
    pub(crate) env: Vec<String>,
    /// Take jobs that send HTTP requests, with any method to any address
    #[arg(long)]
    pub(crate) allow_http: bool,
    /// Keep nothing of what commands print but the end, which is their result
    #[arg(long)]
    pub(crate) no_output: bool,
    /// Let checks reach link-local addresses and metadata services, which hand out this machine's credentials
    #[arg(long)]
    pub(crate) allow_link_local: bool,
    /// The pod it runs on [default: the setting `node`]
    #[arg(long)]
    pub(crate) pod: Option<String>,
    /// Print every event as one JSON object per line on stdout
    #[arg(long)]
    pub(crate) events: bool,
    /// Log format on stderr
    #[arg(long, value_enum, default_value = "human")]
    pub(crate) log: LogForm,
    #[command(flatten)]
    pub(crate) settings: SettingsArgs,
}

#[derive(Args)]
#[command(
    after_help = "The file is a list of schedules, YAML or JSON, of at most 1 MiB. If anything in it is wrong, every mistake is \
reported with its line and nothing is written. Schedules that are not in the file stay as they are, unless --prune is given. A schedule that \
is new or becomes enabled starts with the next due time.\n\
Exit code 0 done, 2 the file has mistakes, 1 or 4 or 6 some schedules could not be written (they are named)."
)]
pub(crate) struct ApplyArgs {
    /// The file; `-` is stdin
    #[arg(short, long, value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Remove the schedules that are not in the file, after showing them
    #[arg(long)]
    pub(crate) prune: bool,
    /// Remove them without asking
    #[arg(long, requires = "prune")]
    pub(crate) yes: bool,
    /// Show what would be done, and do nothing
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
    /// Add a schedule; an existing one is left alone unless --replace is given
    Add(Box<ScheduleAddArgs>),
    /// List all schedules, and when they are due next
    #[command(visible_alias = "ls")]
    List(LookArgs),
    /// Show one schedule: due times, checks and how they are doing, jobs
    Show(OneArgs),
    /// Stop a schedule from creating jobs; open jobs run to their end
    Pause(OneArgs),
    /// Resume a paused schedule, from the next due time
    Resume(OneArgs),
    /// Have the leader create a job for a schedule now, even if it is paused
    RunNow(RunNowArgs),
    /// Print schedules as a file that `tenure apply` reads
    Export(ExportArgs),
    /// Remove a schedule; its open jobs run to their end
    Rm(OneArgs),
}

#[derive(Args)]
#[command(after_help = "Exit code 10 if one does not exist.")]
pub(crate) struct ExportArgs {
    /// Their ids [default: all]
    pub(crate) ids: Vec<String>,
    /// Print JSON, which `apply` reads as well
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) settings: PlaceArgs,
}

#[derive(Args)]
#[command(
    after_help = "Its jobs do one of: -- COMMAND (needs an agent with --allow-command), --http, --kind, --check.\n\
Checks: 'kind=http,url=https://example.org/[,status=204]', 'kind=tcp,host=example.org,port=443', \
'kind=dns,host=example.org', 'kind=command,program=/usr/lib/checks/disk[,args=-v]', or a JSON \
object; each with [,timeout=5s]. A file for `tenure apply` can say more. Exit code 1 if it exists."
)]
pub(crate) struct ScheduleAddArgs {
    /// The schedule's id, at most 100 bytes
    pub(crate) id: String,
    /// Interval between due times, counted from 1970
    #[arg(long, value_name = "TIME")]
    pub(crate) every: Option<String>,
    /// Start each job up to this much later, at random [default: 0s]
    #[arg(long, value_name = "TIME", requires = "every")]
    pub(crate) jitter: Option<String>,
    /// A cron expression: five fields, or six with seconds first
    #[arg(long, value_name = "EXPRESSION")]
    pub(crate) cron: Option<String>,
    /// The time zone of --cron [default: UTC]
    #[arg(long, value_name = "ZONE", requires = "cron")]
    pub(crate) zone: Option<String>,
    /// Only run on `tenure schedule run-now`
    #[arg(long)]
    pub(crate) manual: bool,
    /// The command that its jobs run, after `--`
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
    /// Where the command runs
    #[arg(long, value_name = "PATH", requires = "command")]
    pub(crate) directory: Option<String>,
    /// The address its jobs send a GET request to
    #[arg(long, value_name = "URL")]
    pub(crate) http: Option<String>,
    /// The kind of its jobs, for workers of your own
    #[arg(long)]
    pub(crate) kind: Option<String>,
    /// The payload of its jobs, as JSON or text
    #[arg(long, value_name = "TEXT", requires = "kind")]
    pub(crate) payload: Option<String>,
    /// What to check, see below; may be repeated
    #[arg(long = "check", value_name = "CHECK")]
    pub(crate) checks: Vec<String>,
    /// The queue its jobs wait in [default: default]
    #[arg(long, value_name = "NAME")]
    pub(crate) queue: Option<String>,
    /// The partition an agent must be in [default: any]
    #[arg(long, value_name = "NAME")]
    pub(crate) partition: Option<String>,
    /// The domain an agent must be in [default: any]
    #[arg(long, value_name = "NAME")]
    pub(crate) domain: Option<String>,
    /// Something an agent must be able to do; may be repeated
    #[arg(long = "capability", value_name = "NAME")]
    pub(crate) capabilities: Vec<String>,
    /// How long one attempt of a job may take [default: 1h; checks 30s]
    #[arg(long, value_name = "TIME")]
    pub(crate) timeout: Option<String>,
    /// How long a job may wait for a worker [default: 1d; checks 60s]
    #[arg(long, value_name = "TIME")]
    pub(crate) ttl: Option<String>,
    /// Most times a job is started [default: 3]
    #[arg(long, value_name = "COUNT")]
    pub(crate) attempts: Option<u64>,
    /// Pause before the second attempt, doubled each time [default: 1s]
    #[arg(long, value_name = "TIME")]
    pub(crate) backoff: Option<String>,
    /// Of jobs due at once, higher priority runs first [default: 5]
    #[arg(long, value_name = "0-9")]
    pub(crate) priority: Option<u64>,
    /// Several open jobs at once: forbid or allow [default: forbid]
    #[arg(long, value_name = "POLICY")]
    pub(crate) overlap: Option<String>,
    /// Most open jobs with --overlap allow [default: 1]
    #[arg(long, value_name = "COUNT")]
    pub(crate) max_concurrent: Option<u64>,
    /// Missed due times: skip, run_once, catch_up(n) [default: run_once]
    #[arg(long, value_name = "POLICY")]
    pub(crate) misfire: Option<String>,
    /// Tell of a job that begins this much late [default: 60s]
    #[arg(long, value_name = "TIME")]
    pub(crate) late_after: Option<String>,
    /// The address that is told what goes wrong with its jobs
    #[arg(long, value_name = "URL")]
    pub(crate) webhook: Option<String>,
    /// File with that address: a flag shows it to other users
    #[arg(long, value_name = "FILE", conflicts_with = "webhook")]
    pub(crate) webhook_file: Option<PathBuf>,
    /// Add it paused
    #[arg(long)]
    pub(crate) paused: bool,
    /// Replace the schedule if it exists
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
#[command(after_help = "Exit code 10 if it does not exist.")]
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
    after_help = "The request is stored with the schedule; the leader at that time creates one job for it as soon as the \
schedule may have another one open. Asking again with the same name gives the same job.\n\
Exit code 0 if the job exists (or, without waiting, was requested), 1 if it does not in time (the request stands), 10 if \
there is no such schedule."
)]
pub(crate) struct RunNowArgs {
    /// The schedule's id
    pub(crate) id: String,
    /// Your name for the job: 1 to 12 letters and digits [default: a new one]
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// How long to wait for the job to exist; 0s asks without waiting
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
    after_help = "Shows open jobs and those that ended recently, newest first. `tenure job history` lists all that ended within `jobRetention`. Costs \
64 reads, plus one for each worker that has jobs."
)]
pub(crate) struct JobsArgs {
    /// Only jobs of this queue
    #[arg(long, value_name = "NAME")]
    pub(crate) queue: Option<String>,
    /// Only jobs of this kind
    #[arg(long, value_name = "KIND")]
    pub(crate) kind: Option<String>,
    /// Only jobs of this schedule
    #[arg(long, value_name = "ID")]
    pub(crate) schedule: Option<String>,
    /// Only open jobs
    #[arg(long)]
    pub(crate) open: bool,
    /// Only jobs whose attempts are used up
    #[arg(long, conflicts_with = "open")]
    pub(crate) dead: bool,
    /// Only jobs in this state: queued, running, succeeded, …
    #[arg(long, value_name = "STATE")]
    pub(crate) state: Option<String>,
    /// Most jobs to show
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

#[derive(Args)]
#[command(
    after_help = "A job of a schedule is not tried again: `tenure schedule run-now` makes another one.\n\
Exit code 1 if it cannot be tried again, 10 if it does not exist."
)]
pub(crate) struct RetryArgs {
    /// Its id
    pub(crate) id: String,
    /// How many attempts it gets beyond those it has had
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) attempts: u32,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) settings: PlaceArgs,
}

#[derive(Args)]
#[command(
    after_help = "What an attempt said on stdout comes on stdout, the rest on stderr. It is written to the store every 30 s and when the \
attempt ends, and kept for `jobRetention`. Of more than 256 KiB the middle is left out; stderr says where. On a terminal, characters \
that it would obey are shown instead.\n\
Exit code 10 if there is no such job or attempt, 0 if it said nothing."
)]
pub(crate) struct LogsArgs {
    /// The job's id
    pub(crate) id: String,
    /// Which attempt [default: the latest that said something]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) attempt: Option<u32>,
    /// Go on until the attempt has ended
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Print JSON
    #[arg(long, conflicts_with = "follow")]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) settings: PlaceArgs,
}

#[derive(Subcommand)]
pub(crate) enum JobAction {
    /// List jobs: their state, and why they wait
    Ls(JobsArgs),
    /// List finished jobs, by schedule, queue, state and time
    History(JobHistoryArgs),
    /// Submit a job for workers to run, from anywhere
    Submit(Box<SubmitArgs>),
    /// Show one job: its state, its worker, why it waits, its result
    Show(OneArgs),
    /// Show what a job printed
    Logs(LogsArgs),
    /// Cancel a job: if it has not begun, it never runs; if it runs, it is asked to stop
    Cancel(OneArgs),
    /// Try a job again that failed, timed out, expired or was lost
    Retry(RetryArgs),
    /// Remove a finished job from the list; the history keeps it for `jobRetention`
    Rm(OneArgs),
}

#[derive(Args)]
#[command(
    group = clap::ArgGroup::new("work").required(true).args(["kind", "http", "command"]),
    after_help = "It does one of: -- COMMAND, --http, --kind. A command needs an agent with --allow-command, a request one with \
--allow-http.\n\
The job is on the store when this returns: nothing loses it, whether anybody leads or not. Submitting an id again \
gives the same job.\n\
With --wait: prints the result, and exits with 0 if the job succeeded, else with 1."
)]
pub(crate) struct SubmitArgs {
    /// The kind of job, for workers of your own: they say which kinds they run
    #[arg(long)]
    pub(crate) kind: Option<String>,
    /// The command that an agent runs, after `--`
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
    /// Where the command runs
    #[arg(long, value_name = "PATH", requires = "command")]
    pub(crate) directory: Option<String>,
    /// The address that an agent sends a GET request to
    #[arg(long, value_name = "URL")]
    pub(crate) http: Option<String>,
    /// The queue it waits in
    #[arg(long, value_name = "NAME", default_value = "default")]
    pub(crate) queue: String,
    /// 0 to 9: higher ones are run first
    #[arg(long, value_name = "NUMBER", default_value_t = 5, value_parser = clap::value_parser!(u8).range(0..=9))]
    pub(crate) priority: u8,
    /// Not before this much time has passed, or this moment: 10m, 2026-12-24T18:00:00Z [default: at once]
    #[arg(long, value_name = "WHEN", value_parser = moment)]
    pub(crate) not_before: Option<SystemTime>,
    /// Your id for it [default: a new one]
    #[arg(long)]
    pub(crate) id: Option<String>,
    /// Input for whoever runs it, at most 16 KiB; @FILE reads a file, - reads stdin
    #[arg(long, value_name = "TEXT", requires = "kind", allow_hyphen_values = true)]
    pub(crate) payload: Option<String>,
    /// The worker that must run it [default: any]
    #[arg(long, value_name = "ID")]
    pub(crate) worker: Option<String>,
    /// The partition a worker must be in [default: any]
    #[arg(long, value_name = "NAME")]
    pub(crate) partition: Option<String>,
    /// The domain a worker must be in [default: any]
    #[arg(long, value_name = "NAME")]
    pub(crate) domain: Option<String>,
    /// Something a worker must be able to do; may be repeated
    #[arg(long = "capability", value_name = "NAME")]
    pub(crate) capabilities: Vec<String>,
    /// How long one attempt may take [default: 1m; a command or a request 1h]
    #[arg(long, value_name = "TIME", value_parser = job_time, allow_hyphen_values = true)]
    pub(crate) timeout: Option<u64>,
    /// How often it may be started
    #[arg(long, value_name = "COUNT", default_value_t = 3)]
    pub(crate) attempts: u32,
    /// The pause before the second attempt; it doubles before each further one
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = wait, allow_hyphen_values = true)]
    pub(crate) backoff: u64,
    /// How long it may wait for a worker [default: for ever]
    #[arg(long, value_name = "TIME", value_parser = job_time, allow_hyphen_values = true)]
    pub(crate) ttl: Option<u64>,
    /// Wait until it has ended
    #[arg(long)]
    pub(crate) wait: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) settings: PlaceArgs,
}
