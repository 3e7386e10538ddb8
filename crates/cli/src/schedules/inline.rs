//! A schedule from flags: they become the same document a file would have, so that the same rules are applied and told.

use crate::args::ScheduleAddArgs;
use serde_json::{Map, Value, json};
use tenure_plugins::schedules::{Problems, Rules, Schedule, read_file};

/// The fields of a check. A comma before anything else belongs to the value it stands in.
const CHECK_FIELDS: [&str; 11] =
    ["name", "kind", "timeout", "url", "method", "status", "host", "port", "program", "args", "params"];

pub(crate) fn schedule(args: &ScheduleAddArgs) -> Result<Schedule, String> {
    let mut map = Map::new();
    map.insert("id".to_owned(), json!(args.id));
    let texts = [
        ("every", &args.every),
        ("jitter", &args.jitter),
        ("cron", &args.cron),
        ("zone", &args.zone),
        ("partition", &args.partition),
        ("domain", &args.domain),
        ("timeout", &args.timeout),
        ("ttl", &args.ttl),
        ("backoff", &args.backoff),
        ("overlap", &args.overlap),
        ("misfire", &args.misfire),
        ("lateAfter", &args.late_after),
        ("webhook", &args.webhook),
        ("queue", &args.queue),
        ("directory", &args.directory),
        ("kind", &args.kind),
    ];
    let texts = texts.into_iter().filter_map(|(key, text)| Some((key, json!(text.as_ref()?))));
    let numbers =
        [("attempts", args.attempts), ("priority", args.priority), ("maxConcurrent", args.max_concurrent)];
    let numbers = numbers.into_iter().filter_map(|(key, number)| Some((key, json!(number?))));
    map.extend(texts.chain(numbers).map(|(key, value)| (key.to_owned(), value)));
    if args.manual {
        map.insert("manual".to_owned(), json!(true));
    }
    if args.paused {
        map.insert("enabled".to_owned(), json!(false));
    }
    map.insert("capabilities".to_owned(), json!(args.capabilities));
    if !args.checks.is_empty() {
        map.insert("checks".to_owned(), checks(&args.checks)?);
    }
    if !args.command.is_empty() {
        map.insert("command".to_owned(), json!(args.command));
    }
    if let Some(url) = &args.http {
        map.insert("http".to_owned(), json!({"url": url}));
    }
    if let Some(text) = &args.payload {
        let payload = serde_json::from_str(text).unwrap_or_else(|_| json!(text));
        map.insert("payload".to_owned(), payload);
    }
    let text = Value::Array(vec![Value::Object(map)]).to_string();
    let mut schedules = read_file(&text, &Rules::default()).map_err(|problems| told(&problems))?;
    schedules.pop().ok_or_else(|| "there is no schedule".to_owned())
}

/// Every fault without its line: there are no lines here.
fn told(problems: &Problems) -> String {
    let one = |problem: &tenure_plugins::schedules::Problem| {
        tenure_plugins::schedules::Problem { line: None, ..problem.clone() }.to_string()
    };
    problems.all().iter().map(one).collect::<Vec<String>>().join("\ntenure: ")
}

fn checks(given: &[String]) -> Result<Value, String> {
    let mut checks: Vec<Map<String, Value>> = Vec::new();
    for (place, text) in given.iter().enumerate() {
        // By its number: there may be a password in it.
        let mut check = check(text).map_err(|rule| format!("--check number {}: {rule}", place + 1))?;
        if !check.contains_key("name") {
            // Its kind, with a number if that is taken.
            let kind = check.get("kind").and_then(Value::as_str).unwrap_or("check").to_owned();
            let taken = |name: &str| checks.iter().any(|other| other.get("name") == Some(&json!(name)));
            let more = (2..=given.len() + 1).map(|number| format!("{kind}-{number}"));
            let name = std::iter::once(kind.clone()).chain(more).find(|name| !taken(name));
            check.insert("name".to_owned(), json!(name.unwrap_or(kind)));
        }
        checks.push(check);
    }
    Ok(checks.into_iter().map(Value::Object).collect())
}

/// `kind=tcp,host=example.org,port=443`, or a JSON object.
fn check(text: &str) -> Result<Map<String, Value>, String> {
    if text.trim_start().starts_with('{') {
        return serde_json::from_str(text).map_err(|error| format!("is not a JSON object: {error}"));
    }
    let mut fields: Vec<(&str, String)> = Vec::new();
    for piece in text.split(',') {
        let begins = piece.split_once('=').filter(|(key, _)| CHECK_FIELDS.contains(key));
        match (begins, fields.last_mut()) {
            (Some((key, value)), _) => fields.push((key, value.to_owned())),
            (None, Some((_, value))) => {
                value.push(',');
                value.push_str(piece);
            }
            (None, None) => {
                let known = CHECK_FIELDS.join(", ");
                return Err(format!("must be field=value,… or a JSON object; fields are {known}"));
            }
        }
    }
    let mut check = Map::new();
    for (key, value) in fields {
        if key == "args" {
            let args = check.entry(key).or_insert_with(|| json!([]));
            if let Value::Array(args) = args {
                args.push(json!(value));
            }
            continue;
        }
        let value = match key {
            "port" | "status" => value.parse::<u64>().map_or_else(|_| json!(value), |number| json!(number)),
            _ => json!(value),
        };
        if check.insert(key.to_owned(), value).is_some() {
            return Err(format!("{key} is given twice"));
        }
    }
    Ok(check)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_in_one_line() {
        let read = |text: &str| check(text).map(Value::Object);
        assert_eq!(read("kind=tcp,host=h,port=443"), Ok(json!({"kind": "tcp", "host": "h", "port": 443})));
        assert_eq!(
            read("name=n,kind=http,url=https://h/?a=1,b=2,c"),
            Ok(json!({"name": "n", "kind": "http", "url": "https://h/?a=1,b=2,c"}))
        );
        assert_eq!(
            read("kind=command,program=/x,args=-v,args=a,b"),
            Ok(json!({"kind": "command", "program": "/x", "args": ["-v", "a,b"]}))
        );
        assert_eq!(read(r#"{"kind": "dns", "host": "h"}"#), Ok(json!({"kind": "dns", "host": "h"})));
        for (bad, says) in [
            ("", "field=value"),
            ("tcp", "field=value"),
            ("kind=a,kind=b", "twice"),
            ("{", "JSON"),
            ("\u{1b}", "field"),
        ] {
            let error = check(bad).expect_err(bad);
            assert!(error.contains(says) && !error.contains('\u{1b}'), "{error}");
        }
    }

    #[test]
    fn checks_without_a_name_are_named_by_their_kind() {
        let given = ["kind=dns,host=a", "kind=dns,host=b", "kind=dns,host=c,name=dns-2"].map(str::to_owned);
        let named = checks(&given).expect("read");
        let names: Vec<&str> =
            named.as_array().into_iter().flatten().filter_map(|c| c["name"].as_str()).collect();
        // The third collides with what was made up for the second: the reader says so.
        assert_eq!(names, ["dns", "dns-2", "dns-2"]);
    }
}
