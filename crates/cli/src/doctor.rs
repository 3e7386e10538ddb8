//! `tenure doctor`: the conformance suite on the user's own store.

mod presets;
mod report;

use crate::args::{DoctorArgs, SettingsArgs};
use crate::exit::Failure;
use crate::out::{Table, complain, say, say_json};
use presets::PresetFit;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tenure::id::Label;
use tenure::store::conformance::{self, Plan, Probe, Progress, Report, Verdict};
use tenure::store::{OpenOptions, Store, StoreUrl, one_write_a_second, open};

/// Contended writes on some engines take seconds; the doctor wants to see them end, not to hurry them.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);

/// Everything happens below this prefix.
const PREFIX: &str = "tenure-doctor";

/// How long another machine may take to come.
const PEER_PATIENCE: Duration = Duration::from_secs(120);

pub(crate) async fn doctor(args: DoctorArgs) -> Result<ExitCode, Failure> {
    let resolved = args.settings.load()?;
    SettingsArgs::prepare_store(&resolved)?;
    let url = &resolved.settings.store;
    let name = args.peer.as_deref().map(str::parse::<Label>).transpose();
    let peer = name.map_err(|error| Failure::usage(format!("--peer: {error}")))?;
    if let (Some(_), StoreUrl::Memory { .. }) = (&peer, url) {
        return Err(Failure::usage(
            "--peer: no other process reaches a store in this one's memory".to_owned(),
        ));
    }
    let options = OpenOptions::with_request_timeout(REQUEST_TIMEOUT);
    let mut endpoints = vec![open(url, &options).await?.lease];
    if let Some(second) = args.second_endpoint {
        if let StoreUrl::Memory { .. } | StoreUrl::Sqlite { .. } = url {
            return Err(Failure::usage(format!(
                "--second-endpoint = {second:?}: only a bucket has endpoints; {url} is not a bucket"
            )));
        }
        let options = OpenOptions { endpoint: Some(second), ..options };
        endpoints.push(open(url, &options).await?.lease);
    }
    let unique = format!("{:016x}", rand::random::<u64>());
    reachable(&*endpoints[0], &unique).await?;
    let mut report = examine(&endpoints, &unique, args.full).await;
    if let Some(name) = &peer {
        complain!("waiting up to {} s for another `tenure doctor --peer {name}` …", PEER_PATIENCE.as_secs());
        let check = conformance::run_with_peer(&endpoints[0], PREFIX, name.as_str(), &unique, PEER_PATIENCE);
        report.checks.push(check.await);
    }
    // Which presets fit is worth telling only of a store that can be trusted.
    let seldom = one_write_a_second(url, None).is_some();
    let fit = report.is_safe().then(|| PresetFit::of(report.writes.p99, seldom));
    if args.json {
        say_json(&serde_json::to_string_pretty(&json(&report, fit.as_ref())).map_err(Failure::other)?);
    } else {
        print(&report, fit.as_ref());
    }
    if let Some(file) = &args.report {
        report::write(file, &resolved.settings, &report, fit.as_ref())?;
    }
    verdict(&report)
}

/// One short question first: a store that refuses or is away needs no table.
async fn reachable(store: &dyn Store, unique: &str) -> Result<(), Failure> {
    match conformance::probe(store, "", unique).await {
        Probe::Denied(trouble) => {
            Err(Failure::store(format!("{}: the store refuses: {trouble}", store.describe())))
        }
        Probe::Unavailable(trouble) => {
            Err(Failure::store(format!("{}: the store does not answer: {trouble}", store.describe())))
        }
        // The suite says the same, with more to show for it.
        Probe::Safe { .. } | Probe::Unsafe(_) => Ok(()),
    }
}

async fn examine(endpoints: &[Arc<dyn Store>], unique: &str, full: bool) -> Report {
    let plan = if full { Plan::default() } else { Plan::quick() };
    let live = std::io::stderr().is_terminal();
    let mut progress = |progress: Progress<'_>| match progress {
        Progress::Started { name, number, of } if live => show(&format!("{number}/{of} {name} … ")),
        Progress::Finished(_) if live => show(""),
        Progress::Started { .. } | Progress::Finished(_) => {}
    };
    conformance::run(endpoints, PREFIX, unique, &plan, &mut progress).await
}

/// Puts this in place of the line on the terminal.
fn show(text: &str) {
    let _ = write!(std::io::stderr(), "\r\x1b[K{text}");
}

fn print(report: &Report, fit: Option<&PresetFit>) {
    say!("{}", report.store);
    if let Some(form) = report.etag_form {
        say!("If-Match works with {} ETags", form.as_str());
    }
    let mut table = Table::new(&["VERDICT", "CHECK", "MEDIAN", "P99", "WHAT IT MEANS"]).wrapped();
    for check in &report.checks {
        let (word, text) = match &check.verdict {
            Verdict::Pass => ("pass", check.proves),
            Verdict::Fail(why) => ("FAIL", why.as_str()),
            Verdict::Skipped(why) => ("skip", why.as_str()),
        };
        table.row([
            word.to_owned(),
            check.name.to_owned(),
            ms(check.latencies.median),
            ms(check.latencies.p99),
            text.to_owned(),
        ]);
    }
    say!();
    table.say();
    say!();
    if let Some(fit) = fit {
        print_fit(report, fit);
    }
}

fn print_fit(report: &Report, fit: &PresetFit) {
    let writes = &report.writes;
    let told = fit.presets.iter().map(|(name, why)| match why {
        None => format!("{name} yes"),
        Some(why) => format!("{name} no ({why})"),
    });
    say!(
        "small conditional writes: median {}, p99 {} ({} samples)",
        ms(writes.median),
        ms(writes.p99),
        writes.requests
    );
    say!("presets this store is fast enough for: {}", told.collect::<Vec<_>>().join(", "));
    match &fit.advice {
        Some(advice) => say!(
            "use instead: leaseTimeout = {}, heartbeatInterval = {}",
            advice.lease_timeout_ms,
            advice.heartbeat_interval_ms
        ),
        None if fit.presets.iter().all(|(_, why)| why.is_some()) => {
            say!("this store is too slow for any lease");
        }
        None => {}
    }
    say!();
}

fn ms(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1000.0)
}

fn json(report: &Report, fit: Option<&PresetFit>) -> serde_json::Value {
    let checks = report.checks.iter().map(|check| {
        let (verdict, why) = match &check.verdict {
            Verdict::Pass => ("pass", None),
            Verdict::Fail(why) => ("fail", Some(why)),
            Verdict::Skipped(why) => ("skipped", Some(why)),
        };
        serde_json::json!({
            "name": check.name, "verdict": verdict, "why": why, "vital": check.is_vital, "proves": check.proves,
            "requests": check.latencies.requests,
            "medianMs": check.latencies.median.as_secs_f64() * 1000.0,
            "p99Ms": check.latencies.p99.as_secs_f64() * 1000.0,
        })
    });
    let presets = fit.iter().flat_map(|fit| &fit.presets);
    let presets =
        presets.map(|(name, why)| serde_json::json!({ "name": name, "carries": why.is_none(), "why": why }));
    serde_json::json!({
        "store": report.store,
        "safe": report.is_safe(),
        "etagForm": report.etag_form.map(|form| form.as_str()),
        "seatWrites": {
            "requests": report.writes.requests,
            "medianMs": report.writes.median.as_secs_f64() * 1000.0,
            "p99Ms": report.writes.p99.as_secs_f64() * 1000.0,
        },
        "presets": presets.collect::<Vec<_>>(),
        "advice": fit.and_then(|fit| fit.advice).map(|advice| serde_json::json!({
            "leaseTimeout": advice.lease_timeout_ms, "heartbeatInterval": advice.heartbeat_interval_ms,
        })),
        "checks": checks.collect::<Vec<_>>(),
    })
}

fn verdict(report: &Report) -> Result<ExitCode, Failure> {
    if report.is_unsafe() {
        return Err(Failure::unsafe_store(format!(
            "{} does not honour conditional writes: two nodes could lead at once. Do not use it.",
            report.store
        )));
    }
    if !report.is_safe() {
        return Err(Failure::store(
            "some checks did not finish, so the store may or may not be safe; try again",
        ));
    }
    complain!("this store is safe to use: it honours conditional writes");
    Ok(ExitCode::SUCCESS)
}
