//! What a schedule is, and how it is stored: `schedules/<id>.json`.

use super::problem::{Problem, Problems};
use super::read::{self, Rules};
use super::runner::ScheduleError;
use super::timing::Timing;
use super::tree::Tree;
use super::webhook::Webhook;
use crate::work::{CommandWork, Work};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use tenure::id::{CheckName, JobId, KindName, QueueName, ScheduleId};
use tenure::job::Labels;
use tenure::schedules::{Planned, ScheduleTerms};

pub use tenure::schedules::Misfire;

/// The document version written here.
pub(crate) const VERSION: u64 = 1;

/// What to do, when, and by whom.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Schedule {
    /// The name, at most 100 bytes because job ids are longer.
    pub id: ScheduleId,
    /// When the schedule is due.
    pub timing: Timing,
    /// Whether due times create jobs.
    pub enabled: bool,
    /// The queue its jobs wait in.
    pub queue: QueueName,
    /// 0 to 9: jobs of higher priority are created first, and begin first in their queue.
    pub priority: u64,
    /// Most jobs open at once.
    pub max_concurrent: u64,
    /// The time limit of one attempt.
    pub timeout_ms: u64,
    /// How long a job may wait for a worker.
    pub ttl_ms: u64,
    /// Most attempts of a job.
    pub attempts: u64,
    /// The pause before the second attempt; doubles before each further attempt.
    pub backoff_ms: u64,
    /// Whether a job may be created while one is open.
    pub overlap: Overlap,
    /// What happens to missed due times.
    pub misfire: Misfire,
    /// How late a due time may be before it counts as missed.
    pub misfire_threshold_ms: u64,
    /// How late a job may begin before somebody is told.
    pub late_after_ms: u64,
    /// Who is told what goes wrong with its jobs; `None`: whoever is told for the whole namespace.
    pub webhook: Option<Webhook>,
    /// What a worker must have.
    pub needs: Labels,
    /// This many failures in a row make a check failing.
    pub fail_after: u64,
    /// This many successes in a row make a failing check recover.
    pub recover_after: u64,
    /// Due times up to and including this moment (wall clock, ms) create no jobs: when it was created, or enabled again.
    pub since_ms: u64,
    /// Requested jobs that may not exist yet; only on the store. The leader turns them into jobs.
    pub run_now: Vec<RunRequest>,
    /// The names of the last requested jobs that were created; only on the store.
    pub ran: Vec<String>,
    /// The checks of each job; none if it does something else.
    pub checks: Vec<CheckSpec>,
    /// What each job does instead of checks.
    pub work: Option<Work>,
    /// Unknown fields of the stored object, kept as they are.
    pub extra: Map<String, Value>,
}

/// A request to run a job now, whatever the timing.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct RunRequest {
    /// The requester's name for the job: 1 to 12 letters and digits. The same name again means the same job.
    pub name: String,
    /// When it was requested, by the requester's clock; for people.
    pub at_ms: u64,
}

impl RunRequest {
    /// Whether this is a valid name.
    pub(crate) fn is_name(name: &str) -> bool {
        (1..=12).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_alphanumeric())
    }

    /// The id of the job: `<schedule>.run.<name>`. It never collides with the job of a due time: those end in `-` and digits.
    pub fn job_id(schedule: &ScheduleId, name: &str) -> Result<JobId, ScheduleError> {
        let id = JobId::new(&format!("{schedule}.run.{name}")).ok();
        id.filter(|_| RunRequest::is_name(name)).ok_or_else(|| ScheduleError::Name(name.to_owned()))
    }
}

/// Whether a job may be created while one is open.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Overlap {
    /// No. Due times that pass in the meantime count as missed, and the misfire policy applies once the open job is over.
    Forbid,
    /// Yes, up to `maxConcurrent`.
    Allow,
}

impl Overlap {
    /// The name used in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Overlap::Forbid => "forbid",
            Overlap::Allow => "allow",
        }
    }
}

/// Times as a file has them.
fn in_words(fields: &mut Map<String, Value>) {
    for key in ["every", "offset", "jitter", "timeout", "ttl", "backoff", "misfireThreshold", "lateAfter"] {
        if let Some(value) = fields.get_mut(key)
            && let Some(ms) = value.as_u64()
        {
            *value = json!(if ms % 1000 == 0 { format!("{}s", ms / 1000) } else { format!("{ms}ms") });
        }
    }
}

/// The kind of the jobs that run checks.
pub const CHECKS_KIND: &str = "checks";

fn needs_fields(needs: &Labels) -> Map<String, Value> {
    let mut fields = Map::new();
    for (key, label) in [("partition", &needs.partition), ("domain", &needs.domain)] {
        fields.extend(label.as_ref().map(|label| (key.to_owned(), json!(label.as_str()))));
    }
    let capabilities = needs.capabilities.iter().map(|one| json!(one.as_str())).collect();
    fields.insert("capabilities".to_owned(), capabilities);
    fields
}

/// One check of a schedule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CheckSpec {
    /// The name, unique within the schedule.
    pub name: CheckName,
    /// The time limit of the check.
    pub timeout_ms: u64,
    /// What the check does.
    pub action: Action,
    /// Unknown fields of the stored object, kept as they are.
    pub extra: Map<String, Value>,
}

/// What a check does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// Sends an HTTP request.
    Http {
        /// An `http://` or `https://` address.
        url: String,
        /// `GET` or `HEAD`.
        method: String,
        /// The expected status; `None`: anything from 200 to 399.
        status: Option<u64>,
    },
    /// Opens a connection.
    Tcp {
        /// A name or an address.
        host: String,
        /// 1 to 65,535.
        port: u64,
    },
    /// Looks up a name.
    Dns {
        /// The name to look up.
        host: String,
    },
    /// Runs a program, without a shell. Only if the agent's own settings allow it.
    Command {
        /// The full path of the program to run.
        program: String,
        /// The arguments, passed as they are.
        args: Vec<String>,
    },
    /// A custom kind.
    Own {
        /// The name of the kind.
        kind: KindName,
        /// Passed to the check as they are.
        params: Map<String, Value>,
    },
}

impl Action {
    /// The kind, as in JSON.
    pub fn kind(&self) -> &str {
        match self {
            Action::Http { .. } => "http",
            Action::Tcp { .. } => "tcp",
            Action::Dns { .. } => "dns",
            Action::Command { .. } => "command",
            Action::Own { kind, .. } => kind.as_str(),
        }
    }

    /// The command that it runs, if it runs one.
    fn command(&self) -> Option<Vec<String>> {
        let Action::Command { program, args } = self else { return None };
        Some(std::iter::once(program).chain(args).cloned().collect())
    }
}

impl CheckSpec {
    /// The check as stored and as carried in a job.
    pub fn to_json(&self) -> Value {
        let mut check = Map::new();
        check.insert("name".to_owned(), json!(self.name.as_str()));
        check.insert("kind".to_owned(), json!(self.action.kind()));
        check.insert("timeout".to_owned(), json!(self.timeout_ms));
        let mut put = |key: &str, value: Value| check.insert(key.to_owned(), value);
        match &self.action {
            Action::Http { url, method, status } => {
                put("url", json!(url));
                put("method", json!(method));
                if let Some(status) = status {
                    put("status", json!(status));
                }
            }
            Action::Tcp { host, port } => {
                put("host", json!(host));
                put("port", json!(port));
            }
            Action::Dns { host } => {
                put("host", json!(host));
            }
            Action::Command { program, args } => {
                put("program", json!(program));
                put("args", json!(args));
            }
            Action::Own { params, .. } => {
                put("params", Value::Object(params.clone()));
            }
        }
        for (key, value) in &self.extra {
            check.entry(key.clone()).or_insert_with(|| value.clone());
        }
        Value::Object(check)
    }
}

impl Schedule {
    /// Reads an object of the store. Keeps unknown fields; refuses a newer `v`.
    pub fn from_wire(body: &[u8], rules: &Rules) -> Result<Schedule, Problems> {
        let value: Value = serde_json::from_slice(body)
            .map_err(|error| Problems::one(Problem::new(None, "", "", format!("not JSON: {error}"))))?;
        Schedule::from_json(value, rules)
    }

    fn from_json(mut value: Value, rules: &Rules) -> Result<Schedule, Problems> {
        if let Value::Object(fields) = &mut value {
            // The envelope is the documents' affair. A foreign field of that name would be lost with the next write.
            let is_owner = |text: &str| text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
            if let Some(owner) = fields.get("owner").filter(|owner| !owner.as_str().is_some_and(is_owner)) {
                let rule = "must be 16 hex digits: it belongs to the envelope";
                return Err(Problems::one(Problem::new(None, "schedule.owner", owner.to_string(), rule)));
            }
            fields.retain(|name, _| !["epoch", "owner", "nonce"].contains(&name.as_str()));
        }
        read::wire(&Tree::from_json(&value), rules)
    }

    /// Reads the fields of a stored object, without its envelope.
    pub(super) fn from_fields(fields: &Map<String, Value>, rules: &Rules) -> Result<Schedule, Problems> {
        let mut fields = fields.clone();
        fields.insert("v".to_owned(), json!(VERSION));
        Schedule::from_json(Value::Object(fields), rules)
    }

    /// The object as stored, without what names its last write.
    pub fn to_wire(&self) -> Vec<u8> {
        let mut fields = self.to_fields();
        fields.insert("v".to_owned(), json!(VERSION));
        Value::Object(fields).to_string().into_bytes()
    }

    /// The fields of the object as stored, without its envelope.
    pub(super) fn to_fields(&self) -> Map<String, Value> {
        let mut map = Map::new();
        let mut put = |key: &str, value: Value| map.insert(key.to_owned(), value);
        put("id", json!(self.id.as_str()));
        match &self.timing {
            Timing::Interval(interval) => {
                put("every", json!(interval.every_ms));
                put("offset", json!(interval.offset_ms));
                put("jitter", json!(interval.jitter_ms));
            }
            Timing::Cron(times) => {
                put("cron", json!(times.expression()));
                put("zone", json!(times.zone()));
            }
            Timing::Manual => {
                put("manual", json!(true));
            }
        }
        put("enabled", json!(self.enabled));
        put("priority", json!(self.priority));
        put("maxConcurrent", json!(self.max_concurrent));
        put("timeout", json!(self.timeout_ms));
        put("ttl", json!(self.ttl_ms));
        put("attempts", json!(self.attempts));
        put("backoff", json!(self.backoff_ms));
        put("overlap", json!(self.overlap.as_str()));
        put("misfire", json!(self.misfire.to_string()));
        put("misfireThreshold", json!(self.misfire_threshold_ms));
        put("lateAfter", json!(self.late_after_ms));
        self.webhook.as_ref().and_then(|webhook| put("webhook", json!(webhook.address())));
        put("failAfter", json!(self.fail_after));
        put("recoverAfter", json!(self.recover_after));
        put("since", json!(self.since_ms));
        if !self.run_now.is_empty() {
            let runs = self.run_now.iter().map(|run| json!({"name": run.name, "at": run.at_ms}));
            put("runNow", runs.collect());
        }
        if !self.ran.is_empty() {
            put("ran", json!(self.ran));
        }
        if self.queue != QueueName::default() {
            put("queue", json!(self.queue.as_str()));
        }
        match &self.work {
            None => {
                put("checks", self.checks.iter().map(CheckSpec::to_json).collect());
            }
            Some(Work::Command(CommandWork { command, directory, env })) => {
                put("command", json!(command));
                directory.as_ref().and_then(|directory| put("directory", json!(directory)));
                (!env.is_empty()).then(|| put("env", json!(env)));
            }
            Some(Work::Http(work)) => {
                put("http", json!(work));
            }
            Some(Work::Other { kind, payload }) => {
                put("kind", json!(kind.as_str()));
                (!payload.is_null()).then(|| put("payload", payload.clone()));
            }
        }
        map.extend(needs_fields(&self.needs));
        for (key, value) in &self.extra {
            map.entry(key.clone()).or_insert_with(|| value.clone());
        }
        map
    }

    /// The entry of a file that `tenure apply` reads, without what is as by default. `id` comes first.
    pub fn to_file_fields(&self) -> Vec<(String, Value)> {
        let mut own = self.to_fields();
        let kept = ["id", "every", "cron", "manual", "checks", "command", "http", "kind"];
        let mut plain = own.clone();
        plain.retain(|key, _| kept.contains(&key.as_str()));
        let usual = Schedule::from_fields(&plain, &Rules { own_kinds: self.own_kinds() });
        let usual = usual.map(|usual| usual.to_fields()).unwrap_or_default();
        own.retain(|key, value| kept.contains(&key.as_str()) || usual.get(key) != Some(value));
        own.retain(|key, _| !["since", "runNow", "ran"].contains(&key.as_str()));
        in_words(&mut own);
        for check in own.get_mut("checks").and_then(Value::as_array_mut).into_iter().flatten() {
            check.as_object_mut().into_iter().for_each(in_words);
        }
        let mut fields: Vec<(String, Value)> = own.into_iter().collect();
        let place = |key: &str| kept.iter().position(|kept| *kept == key).unwrap_or(kept.len());
        fields.sort_by_key(|(key, _)| place(key));
        fields
    }

    /// The kinds of its checks that are not built in.
    fn own_kinds(&self) -> BTreeSet<KindName> {
        let own = self.checks.iter().filter_map(|check| match &check.action {
            Action::Own { kind, .. } => Some(kind.clone()),
            Action::Http { .. } | Action::Tcp { .. } | Action::Dns { .. } | Action::Command { .. } => None,
        });
        own.collect()
    }

    /// The kind of its jobs.
    pub fn job_kind(&self) -> &str {
        self.work.as_ref().map_or(CHECKS_KIND, Work::kind)
    }

    /// The commands that a worker must allow for its jobs.
    pub fn commands(&self) -> Vec<Vec<String>> {
        match &self.work {
            Some(Work::Command(work)) => vec![work.words()],
            Some(Work::Http(_) | Work::Other { .. }) => Vec::new(),
            None => self.checks.iter().filter_map(|check| check.action.command()).collect(),
        }
    }

    /// The payload of its jobs. At most 16 KiB, which is checked when a schedule is read.
    pub fn job_payload(&self, due_ms: u64) -> Vec<u8> {
        match &self.work {
            // Nothing at all, rather than the word null.
            Some(Work::Other { payload: Value::Null, .. }) => return Vec::new(),
            Some(work) => return work.payload().to_string().into_bytes(),
            None => {}
        }
        let checks: Value = self.checks.iter().map(CheckSpec::to_json).collect();
        let payload = json!({
            "v": VERSION, "schedule": self.id.as_str(), "due": due_ms, "names": self.names_digest(), "checks": checks,
        });
        payload.to_string().into_bytes()
    }

    /// Identifies this list of checks. Results name checks by position, so results of a different list must be told apart.
    pub fn names_digest(&self) -> String {
        let bytes = self.checks.iter().flat_map(|check| check.name.as_str().bytes().chain([0]));
        let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        format!("{hash:016x}")
    }

    /// The effective limit on open jobs.
    pub fn open_max(&self) -> u64 {
        match self.overlap {
            Overlap::Forbid => 1,
            Overlap::Allow => self.max_concurrent,
        }
    }
}

impl Planned for Schedule {
    type Times = Timing;

    fn id(&self) -> &ScheduleId {
        &self.id
    }

    fn terms(&self) -> ScheduleTerms {
        ScheduleTerms {
            enabled: self.enabled,
            priority: self.priority,
            open_max: self.open_max(),
            misfire: self.misfire,
            misfire_threshold_ms: self.misfire_threshold_ms,
            since_ms: self.since_ms,
        }
    }

    fn times(&self) -> &Timing {
        &self.timing
    }
}

/// Reads a file, YAML or JSON: a list of schedules. Reports all faults at once, with their lines.
///
/// ```
/// use tenure_plugins::schedules::{Rules, read_file};
/// let file = "
/// - id: web
///   every: 30s
///   checks:
///     - {name: home, kind: tcp, host: localhost, port: 80}
/// - id: dns
///   cron: '0 25 * * *'
///   checks: []
/// ";
/// let faults = read_file(file, &Rules::default()).unwrap_err().to_string();
/// assert!(faults.starts_with("line 7: dns.cron = \"0 25 * * *\": "), "{faults}");
/// assert!(faults.contains("line 8: dns.checks"), "{faults}");
/// ```
pub fn read_file(text: &str, rules: &Rules) -> Result<Vec<Schedule>, Problems> {
    read::file(&super::tree::parse(text)?, rules)
}

#[cfg(test)]
mod tests;
