//! Turns a document into schedules. Collects every fault and guesses nothing.

use super::fields::{Fields, Reader};
use super::problem::{Problem, Problems};
use super::schedule::{Action, CheckSpec, Misfire, Overlap, RunRequest, Schedule, VERSION};
use super::timing::{CronField, CronTimes, DAY_MS, Interval, SECOND_MS, Timing};
use super::tree::{Data, Tree};
use super::webhook::Webhook;
use crate::work::{CommandWork, HttpWork, Work, refused_headers};
use serde_json::Map;
use std::collections::{BTreeMap, BTreeSet};
use tenure::id::{KindName, Label, ScheduleId};
use tenure::job::Labels;

/// The largest payload of a job, as in the library.
const PAYLOAD_MAX_BYTES: usize = 16 * 1024;

/// Most schedules in a file, and most checks in a schedule.
const SCHEDULES_MAX: usize = 1000;
const CHECKS_MAX: usize = 32;

/// The methods of a request.
const METHODS: [&str; 6] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"];

/// Most run requests read from one schedule.
const RUNS_MAX: usize = 64;

/// Longer names would make invalid job ids.
const ID_MAX_BYTES: usize = 100;

/// The built-in kinds.
pub(crate) const KINDS: [&str; 4] = ["http", "tcp", "dns", "command"];

/// What is allowed beyond the built-in kinds.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rules {
    /// Custom kinds of checks.
    pub own_kinds: BTreeSet<KindName>,
}

pub(crate) fn file(tree: &Tree, rules: &Rules) -> Result<Vec<Schedule>, Problems> {
    let mut reader = Reader::new(false);
    let Data::List(list) = &tree.data else {
        let rule = format!("must be a list of schedules, not {}", tree.describe());
        return Err(Problems::one(Problem::new(tree.line, "", "", rule)));
    };
    if list.len() > SCHEDULES_MAX {
        let rule = format!("has {} schedules; at most {SCHEDULES_MAX} are allowed", list.len());
        reader.problems.push(Problem::new(tree.line, "", "", rule));
    }
    let (mut schedules, mut names) = (Vec::new(), BTreeSet::new());
    for (place, tree) in list.iter().enumerate().take(SCHEDULES_MAX) {
        let Some(schedule) = schedule(&mut reader, tree, &format!("[{place}]"), rules) else { continue };
        if !names.insert(schedule.id.clone()) {
            reader.problems.push(Problem::new(
                tree.line,
                format!("[{place}].id"),
                &schedule.id,
                "another schedule has this id already",
            ));
        }
        schedules.push(schedule);
    }
    Problems::check(reader.problems)?;
    Ok(schedules)
}

/// What one job of kind `command` or `http` does, by the rules of schedules.
pub(crate) fn job_work(kind: &str, fields: &serde_json::Value) -> Result<Work, Problems> {
    let (tree, mut reader) = (Tree::from_json(fields), Reader::new(false));
    let work = reader.fields(&tree, "job", "job").and_then(|mut fields| {
        let (_, work) = work(&mut reader, &mut fields, 0, &Rules::default());
        reader.rest(&fields, "job");
        work
    });
    Problems::check(reader.problems)?;
    let work = work.filter(|work| work.kind() == kind);
    work.ok_or_else(|| Problems::one(Problem::new(None, "job", "", format!("must be of kind {kind}"))))
}

pub(crate) fn wire(tree: &Tree, rules: &Rules) -> Result<Schedule, Problems> {
    let mut reader = Reader::new(true);
    let schedule = schedule(&mut reader, tree, "schedule", rules);
    Problems::check(reader.problems)?;
    schedule.ok_or_else(|| Problems::one(Problem::new(None, "", "", "is not a schedule")))
}

/// A schedule, as far as it can be read; the reader's problems say whether anything was wrong.
fn schedule(reader: &mut Reader, tree: &Tree, path: &str, rules: &Rules) -> Option<Schedule> {
    let mut fields = reader.fields(tree, path, "schedule")?;
    if reader.wire && !reader.version(&mut fields, VERSION) {
        return None;
    }
    let id: Option<ScheduleId> = reader.id(&mut fields, "id", true);
    if let Some(id) = &id {
        fields.rename(id.as_str());
        if id.as_str().len() > ID_MAX_BYTES {
            reader.fault(&fields, "id", id, format!("must be at most {ID_MAX_BYTES} bytes"));
        }
    }
    let timing = timing(reader, &mut fields);
    let enabled = reader.flag(&mut fields, "enabled", true);
    let priority = reader.number(&mut fields, "priority", 0..=9, 5);
    let overlap = overlap(reader, &mut fields);
    let max_concurrent = reader.number(&mut fields, "maxConcurrent", 1..=100, 1);
    if overlap == Overlap::Forbid && max_concurrent > 1 {
        reader.fault(&fields, "maxConcurrent", max_concurrent, "must be 1 unless overlap is allow");
    }
    // Checks are quick, and old ones are worth little. Other work may take its time.
    let has_checks = fields.has("checks");
    let (timeout_ms, ttl_ms) =
        if has_checks { (30 * SECOND_MS, 60 * SECOND_MS) } else { (3600 * SECOND_MS, DAY_MS) };
    let timeout_max_ms = if has_checks { 3600 * SECOND_MS } else { 30 * DAY_MS };
    let timeout_ms = reader.duration(&mut fields, "timeout", 100..=timeout_max_ms, timeout_ms);
    let (checks, work) = work(reader, &mut fields, timeout_ms, rules);
    let schedule = Schedule {
        timing: timing.unwrap_or(Timing::Manual),
        enabled,
        queue: reader.id(&mut fields, "queue", false).unwrap_or_default(),
        priority,
        max_concurrent,
        timeout_ms,
        ttl_ms: reader.duration(&mut fields, "ttl", SECOND_MS..=30 * DAY_MS, ttl_ms),
        attempts: reader.number(&mut fields, "attempts", 1..=100, 3),
        backoff_ms: reader.duration(&mut fields, "backoff", 0..=DAY_MS, SECOND_MS),
        overlap,
        misfire: misfire(reader, &mut fields),
        misfire_threshold_ms: reader.duration(&mut fields, "misfireThreshold", 0..=3600 * SECOND_MS, 5000),
        late_after_ms: reader.duration(&mut fields, "lateAfter", SECOND_MS..=30 * DAY_MS, 60 * SECOND_MS),
        webhook: webhook(reader, &mut fields),
        needs: needs(reader, &mut fields),
        fail_after: reader.number(&mut fields, "failAfter", 1..=1000, 3),
        recover_after: reader.number(&mut fields, "recoverAfter", 1..=1000, 1),
        since_ms: if reader.wire { reader.number(&mut fields, "since", 0..=u64::MAX, 0) } else { 0 },
        run_now: if reader.wire { run_now(reader, &mut fields) } else { Vec::new() },
        ran: if reader.wire { reader.texts(&mut fields, "ran") } else { Vec::new() },
        checks,
        work,
        extra: reader.rest(&fields, "schedule"),
        // A schedule without an id is refused; this still reads the rest for faults. The line makes the placeholder unique.
        id: id.or_else(|| ScheduleId::new(&format!("unnamed-{}", tree.line.unwrap_or(0))).ok())?,
    };
    let bytes = schedule.job_payload(u64::MAX).len();
    if bytes > PAYLOAD_MAX_BYTES {
        let rule = format!("makes jobs of {bytes} bytes; at most {PAYLOAD_MAX_BYTES} are allowed");
        let field = match &schedule.work {
            None => "checks",
            Some(Work::Command(_)) => "command",
            Some(Work::Http(_)) => "http",
            Some(Work::Other { .. }) => "payload",
        };
        reader.fault(&fields, field, "", rule);
    }
    Some(schedule)
}

/// Faults do not repeat the address: it may be a secret.
fn webhook(reader: &mut Reader, fields: &mut Fields<'_>) -> Option<Webhook> {
    let text = fields.take("webhook")?.as_text().unwrap_or_default();
    Webhook::new(text).map_err(|rule| reader.fault(fields, "webhook", "", rule)).ok()
}

/// Requested jobs. An invalid request is ignored; the schedule still runs.
fn run_now(reader: &mut Reader, fields: &mut Fields<'_>) -> Vec<RunRequest> {
    let list = reader.list(fields, "runNow").iter().map(Tree::to_json);
    let request = |value: serde_json::Value| {
        let name = value.get("name")?.as_str().filter(|name| RunRequest::is_name(name))?.to_owned();
        Some(RunRequest { name, at_ms: value.get("at").and_then(serde_json::Value::as_u64).unwrap_or(0) })
    };
    list.filter_map(request).take(RUNS_MAX).collect()
}

fn timing(reader: &mut Reader, fields: &mut Fields<'_>) -> Option<Timing> {
    let given: Vec<&str> = ["every", "cron", "manual"].into_iter().filter(|key| fields.has(key)).collect();
    match given.as_slice() {
        ["every"] => {
            let every_ms = reader.duration(fields, "every", SECOND_MS..=366 * DAY_MS, 0);
            let offset_ms = reader.duration(fields, "offset", 0..=366 * DAY_MS, 0);
            let jitter_ms = reader.duration(fields, "jitter", 0..=366 * DAY_MS, 0);
            if every_ms == 0 {
                return None;
            }
            for (key, value) in [("offset", offset_ms), ("jitter", jitter_ms)] {
                if value >= every_ms {
                    reader.fault(fields, key, format!("{value} ms"), "must be less than every");
                }
            }
            Some(Timing::Interval(Interval { every_ms, offset_ms, jitter_ms }))
        }
        ["cron"] => {
            let cron = reader.text(fields, "cron", true)?;
            let zone = reader.text(fields, "zone", false).unwrap_or_else(|| "UTC".to_owned());
            match CronTimes::new(&cron, &zone) {
                Ok(times) => Some(Timing::Cron(Box::new(times))),
                Err((CronField::Cron, rule)) => {
                    reader.fault(fields, "cron", format!("{cron:?}"), rule);
                    None
                }
                Err((CronField::Zone, rule)) => {
                    reader.fault(fields, "zone", format!("{zone:?}"), rule);
                    None
                }
            }
        }
        ["manual"] => {
            if !reader.flag(fields, "manual", true) {
                reader.fault(fields, "manual", false, "must be true, or give every or cron instead");
            }
            Some(Timing::Manual)
        }
        several => {
            for key in several {
                fields.take(key);
            }
            let rule = "must have exactly one of every, cron and manual";
            reader.fault(fields, "", several.join(", "), rule);
            None
        }
    }
}

fn overlap(reader: &mut Reader, fields: &mut Fields<'_>) -> Overlap {
    match reader.text(fields, "overlap", false).as_deref() {
        None | Some("forbid") => Overlap::Forbid,
        Some("allow") => Overlap::Allow,
        Some(other) => {
            reader.fault(fields, "overlap", format!("{other:?}"), "must be forbid or allow");
            Overlap::Forbid
        }
    }
}

fn misfire(reader: &mut Reader, fields: &mut Fields<'_>) -> Misfire {
    let Some(text) = reader.text(fields, "misfire", false) else { return Misfire::RunOnce };
    match text.as_str() {
        "skip" => Misfire::Skip,
        "run_once" => Misfire::RunOnce,
        other => {
            let inner = other.strip_prefix("catch_up(").and_then(|rest| rest.strip_suffix(')'));
            match inner.and_then(|count| count.trim().parse::<usize>().ok()) {
                Some(newest @ 1..=100) => Misfire::CatchUp(newest),
                Some(_) | None => {
                    let rule = "must be skip, run_once or catch_up(n) with n from 1 to 100";
                    reader.fault(fields, "misfire", format!("{text:?}"), rule);
                    Misfire::RunOnce
                }
            }
        }
    }
}

fn needs(reader: &mut Reader, fields: &mut Fields<'_>) -> Labels {
    let partition = reader.id(fields, "partition", false);
    let domain = reader.id(fields, "domain", false);
    let mut capabilities = BTreeSet::new();
    for (place, tree) in reader.list(fields, "capabilities").iter().enumerate() {
        let key = format!("capabilities[{place}]");
        match tree.as_text().map(Label::new) {
            Some(Ok(capability)) => drop(capabilities.insert(capability)),
            Some(Err(error)) => reader.fault_at(tree, fields, &key, error.rule),
            None => reader.fault_at(tree, fields, &key, "must be text"),
        }
    }
    if capabilities.len() > 32 {
        reader.fault(fields, "capabilities", capabilities.len(), "must be at most 32");
    }
    Labels { partition, domain, capabilities }
}

/// What each job does: exactly one of these.
fn work(
    reader: &mut Reader,
    fields: &mut Fields<'_>,
    timeout_ms: u64,
    rules: &Rules,
) -> (Vec<CheckSpec>, Option<Work>) {
    let given = ["checks", "command", "http", "kind"].into_iter().filter(|key| fields.has(key));
    let given: Vec<&str> = given.collect();
    let other = match given.as_slice() {
        ["checks"] => return (checks(reader, fields, timeout_ms, rules), None),
        ["command"] => command(reader, fields).map(Work::Command),
        ["http"] => http(reader, fields).map(Work::Http),
        ["kind"] => {
            let payload = fields.take("payload").map_or(serde_json::Value::Null, Tree::to_json);
            reader.id(fields, "kind", true).map(|kind| Work::Other { kind, payload })
        }
        several => {
            for key in several {
                fields.take(key);
            }
            let rule = "must have exactly one of checks, command, http and kind";
            reader.fault(fields, "", several.join(", "), rule);
            None
        }
    };
    (Vec::new(), other)
}

fn command(reader: &mut Reader, fields: &mut Fields<'_>) -> Option<CommandWork> {
    let command = reader.texts(fields, "command");
    let directory = full_path(reader, fields, "directory", false);
    let env = texts_of(reader, fields, "env");
    if !command.first().is_some_and(|program| program.starts_with('/')) {
        let program = command.first().map_or("", String::as_str);
        let rule = "must be a list that begins with the full path of a program";
        reader.fault(fields, "command", format!("{program:?}"), rule);
        return None;
    }
    let is_name = |name: &str| {
        !name.is_empty()
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
            && name != "PWD"
    };
    if let Some(name) = env.keys().find(|name| !is_name(name)) {
        reader.fault(fields, "env", format!("{name:?}"), "is not the name of a variable");
    }
    Some(CommandWork { command, directory, env })
}

fn full_path(reader: &mut Reader, fields: &mut Fields<'_>, key: &str, must: bool) -> Option<String> {
    let path = reader.text(fields, key, must)?;
    if !path.starts_with('/') {
        reader.fault(fields, key, format!("{path:?}"), "must be a full path");
    }
    Some(path)
}

fn http(reader: &mut Reader, fields: &mut Fields<'_>) -> Option<HttpWork> {
    let tree = fields.take("http")?;
    let path = format!("{}.http", fields.path());
    let mut inner = reader.fields(tree, &path, "http")?;
    let url = url(reader, &mut inner, "url");
    let method = reader.text(&mut inner, "method", false).unwrap_or_else(|| "GET".to_owned());
    if !METHODS.contains(&method.as_str()) {
        let rule = format!("must be one of {}", METHODS.join(", "));
        reader.fault(&inner, "method", format!("{method:?}"), rule);
    }
    let headers = texts_of(reader, &mut inner, "headers");
    for (name, rule) in refused_headers(&headers) {
        reader.fault(&inner, "headers", format!("{name:?}"), rule);
    }
    let body = reader.text(&mut inner, "body", false).unwrap_or_default();
    let status = reader.number(&mut inner, "status", 100..=599, 0);
    reader.rest(&inner, "http");
    Some(HttpWork { url: url?, method, headers, body, status: (status > 0).then_some(status) })
}

/// A map of texts.
fn texts_of(reader: &mut Reader, fields: &mut Fields<'_>, key: &str) -> BTreeMap<String, String> {
    let mut texts = BTreeMap::new();
    for (name, value) in reader.map(fields, key) {
        let text = match value {
            serde_json::Value::String(text) => text,
            serde_json::Value::Number(number) => number.to_string(),
            serde_json::Value::Bool(flag) => flag.to_string(),
            serde_json::Value::Null | serde_json::Value::Array(_) | serde_json::Value::Object(_) => {
                reader.fault(fields, &format!("{key}.{name}"), "", "must be text");
                continue;
            }
        };
        texts.insert(name, text);
    }
    texts
}

fn checks(
    reader: &mut Reader,
    fields: &mut Fields<'_>,
    timeout_max_ms: u64,
    rules: &Rules,
) -> Vec<CheckSpec> {
    let list = reader.list(fields, "checks");
    // Checks run at once, and all must report before the job times out: a job without a report says nothing.
    let timeout_max_ms = timeout_max_ms / 10 * 9;
    if !(1..=CHECKS_MAX).contains(&list.len()) {
        let rule = format!("must be a list of 1 to {CHECKS_MAX} checks");
        reader.fault(fields, "checks", format!("a list of {}", list.len()), rule);
    }
    let (mut checks, mut names) = (Vec::new(), BTreeSet::new());
    for (place, tree) in list.iter().enumerate().take(CHECKS_MAX) {
        let path = format!("{}.checks[{place}]", fields.path());
        let Some(mut inner) = reader.fields(tree, &path, "check") else { continue };
        let Some(check) = check(reader, &mut inner, timeout_max_ms, rules) else { continue };
        if !names.insert(check.name.clone()) {
            reader.fault(&inner, "name", &check.name, "another check of this schedule has this name");
        }
        checks.push(check);
    }
    checks
}

/// A single check, as it appears in a job.
pub(crate) fn job_check(tree: &Tree, rules: &Rules) -> Result<CheckSpec, Problems> {
    let mut reader = Reader::new(true);
    let check = match reader.fields(tree, "check", "check") {
        Some(mut fields) => check(&mut reader, &mut fields, 3600 * SECOND_MS, rules),
        None => None,
    };
    Problems::check(reader.problems)?;
    check.ok_or_else(|| Problems::one(Problem::new(None, "", "", "is not a check")))
}

fn check(
    reader: &mut Reader,
    fields: &mut Fields<'_>,
    timeout_max_ms: u64,
    rules: &Rules,
) -> Option<CheckSpec> {
    let name = reader.id(fields, "name", true);
    let default_ms = timeout_max_ms.min(10 * SECOND_MS);
    let timeout_ms = reader.duration(fields, "timeout", 1..=timeout_max_ms, default_ms);
    let action = action(reader, fields, rules);
    // Without a kind, nobody can say which fields are valid.
    let extra = if action.is_some() { reader.rest(fields, "check") } else { Map::new() };
    Some(CheckSpec { name: name?, timeout_ms, action: action?, extra })
}

/// Uses the same parser as the HTTP client.
pub(crate) fn has_credentials(url: &str) -> bool {
    reqwest::Url::parse(url).is_ok_and(|url| !url.username().is_empty() || url.password().is_some())
}

/// Whether it is an address for an HTTP client.
pub(crate) fn is_url(url: &str) -> bool {
    let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
    rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/'))
        && !url.contains(|c: char| c.is_whitespace() || c.is_control())
        && reqwest::Url::parse(url).is_ok()
}

fn url(reader: &mut Reader, fields: &mut Fields<'_>, key: &str) -> Option<String> {
    let url = reader.text(fields, key, true);
    if let Some(url) = url.as_ref().filter(|url| !is_url(url)) {
        reader.fault(fields, key, format!("{url:?}"), "must be an http:// or https:// URL");
    } else if url.as_deref().is_some_and(has_credentials) {
        let rule = "must not contain a user name or password: a schedule is no place for secrets";
        reader.fault(fields, key, "", rule);
    }
    url
}

fn action(reader: &mut Reader, fields: &mut Fields<'_>, rules: &Rules) -> Option<Action> {
    let kind = reader.text(fields, "kind", true)?;
    Some(match kind.as_str() {
        "http" => {
            let url = url(reader, fields, "url");
            let method = reader.text(fields, "method", false).unwrap_or_else(|| "GET".to_owned());
            if !["GET", "HEAD"].contains(&method.as_str()) {
                reader.fault(fields, "method", format!("{method:?}"), "must be GET or HEAD");
            }
            let status = reader.number(fields, "status", 100..=599, 0);
            Action::Http { url: url?, method, status: (status > 0).then_some(status) }
        }
        "tcp" => {
            let (host, port) = (reader.host(fields), reader.number(fields, "port", 1..=65535, 0));
            if port == 0 && !fields.has("port") {
                reader.fault(fields, "port", "", "must be given, 1 to 65535");
            }
            Action::Tcp { host: host?, port }
        }
        "dns" => Action::Dns { host: reader.host(fields)? },
        "command" => {
            let program = full_path(reader, fields, "program", true);
            let args = reader.texts(fields, "args");
            Action::Command { program: program?, args }
        }
        other => match rules.own_kinds.iter().find(|own| own.as_str() == other) {
            Some(own) => {
                let params = reader.map(fields, "params");
                Action::Own { kind: own.clone(), params }
            }
            None => {
                let own = rules.own_kinds.iter().map(KindName::as_str);
                let known: Vec<&str> = KINDS.into_iter().chain(own).collect();
                let rule = format!("is not a known kind of check: {}", known.join(", "));
                reader.fault(fields, "kind", format!("{kind:?}"), rule);
                return None;
            }
        },
    })
}
