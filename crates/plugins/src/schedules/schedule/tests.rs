use super::*;
use crate::schedules::timing::Interval;
use tenure::id::KindName;

const GOOD: &str = "
- id: web
  every: 30s
  offset: 5s
  jitter: 2s
  priority: 7
  overlap: allow
  maxConcurrent: 3
  timeout: 20s
  ttl: 2m
  attempts: 2
  backoff: 500ms
  misfire: catch_up(4)
  misfireThreshold: 10s
  partition: eu
  domain: net
  capabilities: [icmp, v6]
  failAfter: 5
  recoverAfter: 2
  checks:
    - {name: home, kind: http, url: 'https://example.org/', status: 200, timeout: 3s}
    - {name: port, kind: tcp, host: example.org, port: 443}
    - {name: name, kind: dns, host: example.org}
    - {name: disk, kind: command, program: /bin/df, args: [-h, /]}
- id: night
  cron: 30 2 * * *
  zone: Europe/Berlin
  enabled: false
  checks: [{name: own, kind: ping, params: {count: 3, deep: [1, {a: null}]}}]
- id: asked
  manual: true
  checks: [{name: name, kind: dns, host: example.org}]
";

fn rules() -> Rules {
    Rules { own_kinds: [KindName::new("ping").expect("valid")].into() }
}

fn faults(text: &str) -> Vec<String> {
    let problems = read_file(text, &rules()).expect_err("wrong");
    problems.all().iter().map(ToString::to_string).collect()
}

/// Two schedules without an id are each told so, and not that they share one.
#[test]
fn schedules_without_an_id_are_no_others() {
    let check = "{name: a, kind: tcp, host: h, port: 1}";
    let text = format!("- every: 1s\n  checks: [{check}]\n- every: 2s\n  checks: [{check}]\n");
    let told = faults(&text);
    assert!(
        told.len() == 2 && told.iter().all(|text| text.contains("id") && !text.contains("unnamed")),
        "{told:?}"
    );
}

#[test]
fn a_file_is_read_and_survives_the_wire() {
    let schedules = read_file(GOOD, &rules()).expect("valid");
    assert_eq!(schedules.len(), 3);
    let web = &schedules[0];
    assert_eq!(
        web.timing,
        Timing::Interval(Interval { every_ms: 30_000, offset_ms: 5_000, jitter_ms: 2_000 })
    );
    assert_eq!((web.misfire, web.overlap, web.max_concurrent), (Misfire::CatchUp(4), Overlap::Allow, 3));
    assert_eq!((web.ttl_ms, web.backoff_ms, web.misfire_threshold_ms), (120_000, 500, 10_000));
    assert_eq!(web.checks[1].timeout_ms, 10_000, "the default");
    assert_eq!(schedules[1].misfire, Misfire::RunOnce, "the default");
    for schedule in &schedules {
        let wire = schedule.to_wire();
        assert_eq!(&Schedule::from_wire(&wire, &rules()).expect("valid"), schedule);
    }
}

#[test]
fn json_is_yaml() {
    let text = "[\n\t{\"id\": \"web\", \"every\": \"30s\",\n\t \"checks\": [{\"name\": \"a\", \"kind\": \"dns\", \"host\": \"x\"}]}\n]";
    assert_eq!(read_file(text, &rules()).expect("valid").len(), 1);
    let faults = faults(
        "[\n  {\"id\": \"web\", \"manual\": true,\n   \"checks\": [\n  {\"name\": \"a\", \"kind\": \"dns\"}]}\n]",
    );
    assert_eq!(faults, ["line 4: web.checks[0].host: must be given"]);
}

#[test]
fn all_faults_are_told_at_once_with_their_lines() {
    let text = "
- id: web
  every: 0s
  misfire: later
  checks:
    - {name: a, kind: icmp}
    - name: a b
      kind: tcp
      host: example.org
      port: 99999
- id: web
  cron: 0 0 30 2 *
  zone: UTC
  timeoutt: 3s
  checks:
    - {name: a, kind: dns, host: x}
    - {name: a, kind: dns, host: y}
- id: atlantis
  cron: 0 0 * * *
  zone: Europe/Atlantis
  timeout: 30
  checks: []
- id: both
  every: 1s
  cron: 0 0 * * *
  checks: {}
- nonsense
";
    let expected = [
        "line 3: web.every = \"0s\": must be 1s to 366d",
        "line 4: web.misfire = \"later\": must be skip, run_once or catch_up(n) with n from 1 to 100",
        "line 6: web.checks[0].kind = \"icmp\": is not a known kind of check: http, tcp, dns, command, ping",
        "line 7: web.checks[1].name = \"a b\": may contain only letters, digits, '-', '_' and '.'",
        "line 10: web.checks[1].port = 99999: must be a whole number from 1 to 65535",
        "line 11: [1].id = web: another schedule has this id already",
        "line 12: web.cron = \"0 0 30 2 *\": never fires: there is no such day",
        "line 14: web.timeoutt = \"3s\": is not a field of a schedule like this",
        "line 17: web.checks[1].name = a: another check of this schedule has this name",
        "line 20: atlantis.zone = \"Europe/Atlantis\": is not a known time zone: use an IANA name like Europe/Berlin or UTC",
        "line 21: atlantis.timeout = 30: must be a time with its unit: 500ms, 30s, 5m, 2h, 1d, 1h30m",
        "line 22: atlantis.checks = a list of 0: must be a list of 1 to 32 checks",
        "line 23: both = every, cron: must have exactly one of every, cron and manual",
        "line 26: both.checks = a map of 0: must be a list",
        "line 26: both.checks = a list of 0: must be a list of 1 to 32 checks",
        "line 27: [4] = \"nonsense\": must be a schedule: a map of fields",
    ];
    assert_eq!(faults(text), expected);
}

/// Anybody who may look at schedules would read the password, and so would anybody who reads the error.
#[test]
fn an_address_with_credentials_is_refused_and_not_repeated() {
    let file =
        |url: &str| format!("- {{id: web, manual: true, checks: [{{name: a, kind: http, url: '{url}'}}]}}");
    let rule = "must not contain a user name or password: a schedule is no place for secrets";
    for url in ["http://u:MARKED@h/", "https://MARKED@h", "http://:MARKED@h", "http://u:a@MARKED@h/x?y#z"] {
        assert_eq!(faults(&file(url)), [format!("line 1: web.checks[0].url: {rule}")], "{url}");
        let wire = json!({"v": 1, "id": "web", "manual": true, "checks": [{"name": "a", "kind": "http", "url": url}]});
        let faults =
            Schedule::from_wire(wire.to_string().as_bytes(), &rules()).expect_err("refused").to_string();
        assert!(faults.contains(rule) && !faults.contains("MARKED"), "{faults}");
    }
    let long = format!("ftp://u:{}MARKED@h/", "x".repeat(66));
    for url in [
        "ftp://u:MARKED@h/",
        "http:///u:MARKED@h/",
        "http://u:MARKED @h/",
        "HTTP://u:MARKED@h",
        "u:MARKED@h",
        "http://u:MARKED@",
        &long,
    ] {
        let faults = faults(&file(url));
        assert_eq!(
            faults,
            ["line 1: web.checks[0].url = (not shown): must be an http:// or https:// URL"],
            "{url}"
        );
    }
    for url in ["http://h/@x", "http://h/?a:b@c", "http://h/#u:p@h"] {
        assert!(read_file(&file(url), &rules()).is_ok(), "{url}");
    }
}

#[test]
fn only_export_tells_the_address_of_a_webhook() {
    let address = "https://hooks.example.org/T0/MARKED?key=MARKED";
    let text = format!("- {{id: web, manual: true, kind: mail, webhook: '{address}'}}");
    let schedule = read_file(&text, &rules()).expect("valid").remove(0);
    let row = schedule.to_row(None, 0);
    let report = json!(schedule.to_report("default", &std::collections::BTreeMap::new(), &[], None, 0));
    for shown in [&row, &report["schedule"]] {
        assert_eq!(shown["webhook"], "https://hooks.example.org/…", "{shown}");
        assert!(!shown.to_string().contains("MARKED"), "{shown}");
    }
    assert!(schedule.to_file_fields().contains(&("webhook".to_owned(), json!(address))));
    assert_eq!(Schedule::from_wire(&schedule.to_wire(), &rules()).expect("valid"), schedule);
}

#[test]
fn the_address_of_a_webhook_is_in_no_fault() {
    let long = format!("hooks.example.org/MARKED{}", "x".repeat(3000));
    for bad in
        ["hooks.example.org/MARKED", "[MARKED]", "https://me:MARKED@example.org/", "{MARKED: 1}", &long]
    {
        let told = faults(&format!("- {{id: web, manual: true, kind: mail, webhook: {bad}}}")).concat();
        assert!(told.contains("web.webhook") && !told.contains("MARKED"), "{told}");
    }
    // What is shown instead of an address is none.
    let told =
        faults("- {id: web, manual: true, kind: mail, webhook: 'https://hooks.example.org/…'}").concat();
    assert!(told.contains("web.webhook") && told.contains("masked"), "{told}");
}

#[test]
fn a_check_must_have_spoken_before_its_job_is_over() {
    let file = |timeout: &str| {
        format!(
            "- {{id: web, manual: true, timeout: 20s, checks: [{{name: a, kind: dns, host: x, timeout: {timeout}}}]}}"
        )
    };
    assert!(read_file(&file("18s"), &rules()).is_ok());
    assert_eq!(faults(&file("19s")), ["line 1: web.checks[0].timeout = \"19s\": must be 1ms to 18s"]);
    let short = "- {id: web, manual: true, timeout: 1s, checks: [{name: a, kind: dns, host: x}]}";
    assert_eq!(read_file(short, &rules()).expect("valid")[0].checks[0].timeout_ms, 900);
}

#[test]
fn what_is_no_document_is_refused_with_its_line() {
    for (text, words) in [
        ("", "line 1: must be a list of schedules, not null"),
        ("a: 1", "line 1: must be a list of schedules, not a map of 1"),
        ("- id: web\n  id: web\n", "line 2: id: is given twice"),
        ("- [a\n- b", "not YAML"),
        ("- &x a\n- *x", "line 2: aliases"),
        ("- !!str a", "line 1: tags"),
        ("- a\n---\n- b", "line 2: must be one document"),
        (&"[".repeat(100), "nested deeper than 32"),
        ("- ? [a]\n  : b", "line 1: a key must be text"),
        (&" ".repeat(2_000_000), "2000000 bytes"),
    ] {
        let faults = faults(text);
        assert!(faults.iter().any(|fault| fault.contains(words)), "{words}: {faults:?}");
    }
}

#[test]
fn a_job_that_would_be_too_large_is_refused() {
    let url = format!("https://example.org/{}", "x".repeat(1900));
    let check = |n: usize| format!("    - {{name: c{n}, kind: http, url: '{url}'}}\n");
    let file = |checks: usize| {
        format!("- id: web\n  manual: true\n  checks:\n{}", (0..checks).map(check).collect::<String>())
    };
    assert!(read_file(&file(8), &rules()).is_ok());
    let faults = faults(&file(9));
    assert_eq!(faults.len(), 1);
    assert!(faults[0].starts_with("line 3: web.checks: makes jobs of "), "{faults:?}");
    assert!(faults[0].ends_with("at most 16384 are allowed"), "{faults:?}");
    let long = "x".repeat(101);
    let faults = read_file(
        &format!("- id: {long}\n  manual: true\n  checks: [{{name: a, kind: dns, host: x}}]"),
        &rules(),
    );
    assert!(faults.expect_err("too long").to_string().contains("at most 100 bytes"));
}

#[test]
fn the_wire_keeps_what_it_does_not_know_and_refuses_what_is_newer() {
    let wire = |v: u64| {
        json!({"v": v, "id": "web", "every": 1000, "contact": {"team": 7, "big": 18_446_744_073_709_551_615_u64},
               "checks": [{"name": "a", "kind": "dns", "host": "x", "ttl": 5}]})
        .to_string()
    };
    let schedule = Schedule::from_wire(wire(1).as_bytes(), &rules()).expect("valid");
    let again: Value = serde_json::from_slice(&schedule.to_wire()).expect("JSON");
    assert_eq!(again["contact"], json!({"team": 7, "big": 18_446_744_073_709_551_615_u64}));
    assert_eq!(again["checks"][0]["ttl"], 5);
    let newer = Schedule::from_wire(wire(2).as_bytes(), &rules()).expect_err("newer");
    assert!(newer.to_string().starts_with("schedule.v = 2: must be 1 to 1"), "{newer}");
    let with_owner = |owner: Value| {
        let mut wire: Value = serde_json::from_str(&wire(1)).expect("JSON");
        (wire["owner"], wire["epoch"], wire["nonce"]) = (owner, json!(0), json!("00000000000000ab-1"));
        Schedule::from_wire(wire.to_string().as_bytes(), &rules())
    };
    assert_eq!(with_owner(json!("00000000000000ab")), Ok(schedule), "the envelope is no part of it");
    let foreign = with_owner(json!({"team": 7})).expect_err("a write would lose it");
    assert!(foreign.to_string().contains("schedule.owner"), "{foreign}");
    for broken in ["", "[]", "{}", "{\"v\": 1}", "{\"v\":1,\"id\":\"web\",\"every\":\"30s\",\"checks\":[]}"] {
        assert!(Schedule::from_wire(broken.as_bytes(), &rules()).is_err(), "{broken}");
    }
}

proptest::proptest! {
    /// Reading answers whatever the input.
    #[test]
    fn reading_never_panics(text in "[-a-z:{}\\[\\], \n\t'\"0-9*&!|>#?]{0,200}") {
        let _ = read_file(&text, &rules());
        let _ = Schedule::from_wire(text.as_bytes(), &rules());
    }
}

#[test]
fn sc1_a_schedule_does_exactly_one_kind_of_work() {
    let text = "
- id: nightly
  cron: 30 2 * * *
  command: [/usr/local/bin/backup, --all]
  directory: /var
  env: {LEVEL: full, COUNT: 3}
  queue: night
- id: hook
  every: 5m
  http: {url: 'https://example.org/run', method: POST, headers: {Content-Type: application/json}, body: '{}', status: 204}
- id: mails
  every: 1h
  kind: send
  payload: {to: [a, b]}
- id: bare
  manual: true
  kind: tidy
";
    let all = read_file(text, &Rules::default()).expect("valid");
    let kinds: Vec<&str> = all.iter().map(Schedule::job_kind).collect();
    assert_eq!(kinds, ["command", "http", "send", "tidy"]);
    let [nightly, hook, mails, bare] = &all[..] else { panic!("four") };
    let words = ["PWD=/var", "COUNT=3", "LEVEL=full", "/usr/local/bin/backup", "--all"];
    assert_eq!(nightly.commands(), [words.map(str::to_owned).to_vec()]);
    assert_eq!(
        (nightly.timeout_ms, nightly.ttl_ms, nightly.queue.as_str()),
        (3_600_000, 86_400_000, "night")
    );
    let payload = |schedule: &Schedule| String::from_utf8(schedule.job_payload(5)).expect("text");
    assert_eq!(
        payload(nightly),
        r#"{"command":["/usr/local/bin/backup","--all"],"directory":"/var","env":{"COUNT":"3","LEVEL":"full"}}"#
    );
    assert!(payload(hook).contains(r#""method":"POST""#), "{}", payload(hook));
    assert_eq!((payload(mails).as_str(), payload(bare).as_str()), (r#"{"to":["a","b"]}"#, ""));
    let checked = "- {id: c, manual: true, checks: [{name: a, kind: command, program: /bin/x, args: [b]}]}";
    let checked = read_file(checked, &Rules::default()).expect("valid").pop().expect("one");
    assert_eq!(checked.commands(), [["/bin/x", "b"].map(str::to_owned).to_vec()], "sc4");
    for schedule in &all {
        let wire = serde_json::from_slice(&schedule.to_wire()).expect("JSON");
        assert_eq!(&Schedule::from_json(wire, &Rules::default()).expect("its own"), schedule);
        let fields: Map<String, Value> = schedule.to_file_fields().into_iter().collect();
        let again = read_file(&json!([fields]).to_string(), &Rules::default()).expect("a file");
        assert_eq!(&again[0], schedule, "{fields:?}");
    }
    let fault = |text: &str| faults(&format!("- {{id: x, manual: true, {text}}}")).join("; ");
    for (text, says) in [
        ("timeout: 1s", "exactly one of checks, command, http and kind"),
        ("kind: a, http: {url: 'http://h/'}", "exactly one of"),
        ("command: [backup]", "full path of a program"),
        ("command: []", "full path of a program"),
        ("command: [/bin/x], directory: tmp", "must be a full path"),
        ("command: [/bin/x], env: {a=b: c}", "not the name of a variable"),
        ("http: {url: 'ftp://h/'}", "http:// or https://"),
        ("http: {url: 'http://u:p@h/'}", "no place for secrets"),
        ("http: {url: 'http://h/', method: BREW}", "must be one of GET"),
        ("http: {url: 'http://h/', headers: {Authorization: x}}", "no place for secrets"),
        ("http: {url: 'http://h/', headers: {'a b': x}}", "is not a header"),
        ("http: {url: 'http://h/', verb: GET}", "is not a field"),
        (
            "checks: [{name: a, kind: command, program: LEVEL=/evil}]",
            "x.checks[0].program = \"LEVEL=/evil\": must be a full path",
        ),
    ] {
        assert!(fault(text).contains(says), "{text}: {}", fault(text));
    }
}

/// A receiver takes `Tenure-Epoch` for the leader's; the others change what is sent, or to whom.
#[test]
fn headers_that_the_agent_sets_are_refused() {
    let file = |name: &str| {
        format!("- {{id: x, manual: true, http: {{url: 'http://h/', headers: {{{name}: trailers}}}}}}")
    };
    for name in [
        "Tenure-Epoch",
        "tenure-job",
        "TENURE-ATTEMPT",
        "Tenure-Notice",
        "Tenure_Epoch",
        "Host",
        "Connection",
        "Keep-Alive",
        "Proxy-Connection",
        "Proxy-Authenticate",
        "TE",
        "Trailer",
        "Transfer-Encoding",
        "Upgrade",
        "Content-Length",
        "content_length",
    ] {
        let rule = "must not be given: the agent sets Tenure-*, Host and the headers of the connection";
        assert_eq!(faults(&file(name)), [format!("line 1: x.http.headers = {name:?}: {rule}")]);
    }
    for name in ["Content-Type", "X-Tenure-Epoch", "Accept", "X-Host"] {
        assert!(read_file(&file(name), &rules()).is_ok(), "{name}");
    }
}
