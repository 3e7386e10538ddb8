//! What a schedule is, and how it stands on the store: `schedules/<id>.json`.

use super::orchestrator::PollError;
use super::problem::{Problem, Problems};
use super::read::{self, Rules};
use super::timing::Timing;
use super::tree::Tree;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use tenure::id::{CheckName, JobId, KindName, Label, ScheduleId};

use tenure::schedules::{PlanTerms, Planned};

pub use tenure::schedules::Misfire;

/// The version of the documents written here.
pub(super) const VERSION: u64 = 1;

/// What is polled, when, and by whom.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Schedule {
    /// Its name: at most 100 bytes, for job ids are longer.
    pub id: ScheduleId,
    /// When it is due.
    pub timing: Timing,
    /// Whether anything is created.
    pub enabled: bool,
    /// 0 to 9: where several are due at once, higher ones are created first. Not promised: that they begin first.
    pub priority: u64,
    /// How many of its jobs may be open at once.
    pub max_concurrent: u64,
    /// How long one attempt may run.
    pub timeout_ms: u64,
    /// How long a job may wait for a worker.
    pub ttl_ms: u64,
    /// How often a job is begun at most.
    pub attempts: u64,
    /// The pause before the second attempt, doubled before each further one.
    pub backoff_ms: u64,
    /// Whether a job may be created while one is open.
    pub overlap: Overlap,
    /// What becomes of due times that were missed.
    pub misfire: Misfire,
    /// How late a due time may be and not count as missed.
    pub misfire_threshold_ms: u64,
    /// What a worker must have.
    pub needs: Needs,
    /// So many failures of a check in a row make it failing.
    pub fail_after: u64,
    /// So many successes of a failing check in a row make it well again.
    pub recover_after: u64,
    /// Due times at or before this moment (wall clock, ms) are nobody's: when it was created, or enabled again.
    pub since_ms: u64,
    /// Jobs that were asked for and may not exist yet; only on the store. The leader makes jobs of them.
    pub run_now: Vec<RunRequest>,
    /// The names of the last ones that exist, or did; only on the store.
    pub ran: Vec<String>,
    /// What is looked at.
    pub checks: Vec<CheckSpec>,
    /// Fields of the wire that are not known here. They are kept.
    pub extra: Map<String, Value>,
}

/// Somebody asks for a job now, whatever the timing.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct RunRequest {
    /// The asker's name for it: 1 to 12 letters and digits. Asking for the same again asks for the same job.
    pub name: String,
    /// When, by the asker's clock; for people.
    pub at_ms: u64,
}

impl RunRequest {
    /// Whether this is a name.
    pub(super) fn is_name(name: &str) -> bool {
        (1..=12).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_alphanumeric())
    }

    /// The id of the job: `<schedule>.run.<name>`. It can be no job of a due time: those end in `-` and digits.
    pub fn job_id(schedule: &ScheduleId, name: &str) -> Result<JobId, PollError> {
        let id = JobId::new(&format!("{schedule}.run.{name}")).ok();
        id.filter(|_| RunRequest::is_name(name)).ok_or_else(|| PollError::Name(name.to_owned()))
    }
}

/// Whether a job may be created while one is open.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Overlap {
    /// Not. Due times that pass meanwhile count as missed, and the misfire policy decides once the way is free.
    Forbid,
    /// Up to `maxConcurrent`.
    Allow,
}

impl Overlap {
    /// As on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Overlap::Forbid => "forbid",
            Overlap::Allow => "allow",
        }
    }
}

/// What a worker must have to do a job.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Needs {
    /// Its partition; `None`: any.
    pub partition: Option<Label>,
    /// Its domain; `None`: any.
    pub domain: Option<Label>,
    /// All of these.
    pub capabilities: BTreeSet<Label>,
}

/// One thing to look at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CheckSpec {
    /// Its name, once in a schedule.
    pub name: CheckName,
    /// How long it may take.
    pub timeout_ms: u64,
    /// What is done.
    pub action: Action,
    /// Fields of the wire that are not known here. They are kept.
    pub extra: Map<String, Value>,
}

/// What a check does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// Asks by HTTP.
    Http {
        /// Where: `http://` or `https://`.
        url: String,
        /// `GET` or `HEAD`.
        method: String,
        /// The status that is expected; `None`: anything from 200 to 399.
        status: Option<u64>,
    },
    /// Opens a connection.
    Tcp {
        /// To which host.
        host: String,
        /// To which port.
        port: u64,
    },
    /// Looks a name up.
    Dns {
        /// Which.
        host: String,
    },
    /// Runs a program, without a shell. Only where the agent's own settings allow it.
    Command {
        /// Which.
        program: String,
        /// Its arguments.
        args: Vec<String>,
    },
    /// A kind of one's own.
    Own {
        /// Which.
        kind: KindName,
        /// What it is told.
        params: Map<String, Value>,
    },
}

impl Action {
    /// The kind, as on the wire.
    pub fn kind(&self) -> &str {
        match self {
            Action::Http { .. } => "http",
            Action::Tcp { .. } => "tcp",
            Action::Dns { .. } => "dns",
            Action::Command { .. } => "command",
            Action::Own { kind, .. } => kind.as_str(),
        }
    }
}

impl CheckSpec {
    /// The check as it stands on the wire and in a job.
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
    /// Reads an object of the store. Fields that are not known are kept; a newer `v` is refused.
    pub fn from_wire(body: &[u8], rules: &Rules) -> Result<Schedule, Problems> {
        let value: Value = serde_json::from_slice(body)
            .map_err(|error| Problems::one(Problem::new(None, "", "", format!("not JSON: {error}"))))?;
        read::wire(&Tree::from_json(&value), rules)
    }

    /// The object of the store.
    pub fn to_wire(&self) -> Vec<u8> {
        let mut map = Map::new();
        let mut put = |key: &str, value: Value| map.insert(key.to_owned(), value);
        put("v", json!(VERSION));
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
        if let Some(partition) = &self.needs.partition {
            put("partition", json!(partition.as_str()));
        }
        if let Some(domain) = &self.needs.domain {
            put("domain", json!(domain.as_str()));
        }
        put("capabilities", self.needs.capabilities.iter().map(|one| json!(one.as_str())).collect());
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
        put("checks", self.checks.iter().map(CheckSpec::to_json).collect());
        for (key, value) in &self.extra {
            map.entry(key.clone()).or_insert_with(|| value.clone());
        }
        Value::Object(map).to_string().into_bytes()
    }

    /// What a job of it carries: what a worker must have, and what it does. At most 16 KiB, which reading a schedule checks.
    pub fn job_payload(&self, due_ms: u64) -> Vec<u8> {
        let mut needs = Map::new();
        if let Some(partition) = &self.needs.partition {
            needs.insert("partition".to_owned(), json!(partition.as_str()));
        }
        if let Some(domain) = &self.needs.domain {
            needs.insert("domain".to_owned(), json!(domain.as_str()));
        }
        if !self.needs.capabilities.is_empty() {
            let all = self.needs.capabilities.iter().map(|one| json!(one.as_str()));
            needs.insert("capabilities".to_owned(), all.collect());
        }
        let checks: Value = self.checks.iter().map(CheckSpec::to_json).collect();
        let payload = json!({
            "v": VERSION, "schedule": self.id.as_str(), "due": due_ms, "needs": needs,
            "names": self.names_digest(), "checks": checks,
        });
        payload.to_string().into_bytes()
    }

    /// Tells results that belong to other checks from those of these: results name their checks by place.
    pub fn names_digest(&self) -> String {
        let bytes = self.checks.iter().flat_map(|check| check.name.as_str().bytes().chain([0]));
        let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        format!("{hash:016x}")
    }

    /// How many jobs of it may be open at once.
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

    fn terms(&self) -> PlanTerms {
        PlanTerms {
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

/// Reads a file, YAML or JSON: a list of schedules. All faults are reported at once, with their lines.
///
/// ```
/// use tenure_plugins::poll::{Rules, read_file};
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
