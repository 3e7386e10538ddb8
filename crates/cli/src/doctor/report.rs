//! What was found about a store, for others: as a page and for programs.

use super::presets::PresetFit;
use super::{json, ms};
use crate::exit::Failure;
use crate::metrics::{dollars_of_run, is_file};
use crate::out::complain;
use std::fmt::Write;
use std::path::Path;
use tenure::settings::{Preset, Settings};
use tenure::store::conformance::{Report, Verdict};

/// Of a cluster whose cost is told.
const NODES: u64 = 3;

/// Writes both files. Neither holds a secret: a store never shows its credentials.
pub(super) fn write(
    file: &Path,
    settings: &Settings,
    report: &Report,
    fit: Option<&PresetFit>,
) -> Result<(), Failure> {
    let value = serde_json::json!({
        "tenure": env!("CARGO_PKG_VERSION"), "at": now(), "machine": machine(), "found": json(report, fit),
    });
    let text = serde_json::to_string_pretty(&value).map_err(Failure::other)? + "\n";
    let page = page(settings, report, fit).map_err(Failure::other)?;
    for (end, text) in [("md", page), ("json", text)] {
        let path = with_end(file, end);
        std::fs::write(&path, text)
            .map_err(|error| Failure::other(format!("cannot write {}: {error}", path.display())))?;
        complain!("wrote {}", path.display());
    }
    Ok(())
}

/// A name may have dots of its own.
fn with_end(file: &Path, end: &str) -> std::path::PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(format!(".{end}"));
    name.into()
}

fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn machine() -> String {
    format!("{} {}", std::env::consts::OS, std::env::consts::ARCH)
}

fn page(settings: &Settings, report: &Report, fit: Option<&PresetFit>) -> Result<String, std::fmt::Error> {
    let word = match (report.is_safe(), report.is_unsafe()) {
        (true, _) => "**Safe to use**: conditional writes are honoured.",
        (false, true) => "**Not safe**: conditional writes are not honoured. Do not use it.",
        (false, false) => "**Unknown**: some checks did not finish.",
    };
    let mut page = format!("# {}\n\n{word}\n\n", report.store);
    writeln!(
        page,
        "tenure {} on {}, {}. Endpoints: {}.",
        env!("CARGO_PKG_VERSION"),
        machine(),
        now(),
        report.endpoints
    )?;
    if let Some(form) = report.etag_form {
        writeln!(page, "`If-Match` works with {} ETags.", form.as_str())?;
    }
    page.push_str("\n| check | verdict | median | p99 | what it means |\n|---|---|---|---|---|\n");
    for check in &report.checks {
        let (verdict, text) = match &check.verdict {
            Verdict::Pass => ("pass", check.proves),
            Verdict::Fail(why) => ("**FAIL**", why.as_str()),
            Verdict::Skipped(why) => ("not tried", why.as_str()),
        };
        let (median, p99) = (ms(check.latencies.median), ms(check.latencies.p99));
        writeln!(page, "| {} | {verdict} | {median} | {p99} | {} |", check.name, text.replace('|', "\\|"))?;
    }
    let (writes, seconds) = (&report.writes, report.writes.median.as_secs_f64());
    writeln!(
        page,
        "\nSmall conditional writes by one writer: median {}, p99 {} ({} samples), about {:.0} a second on one object.",
        ms(writes.median),
        ms(writes.p99),
        writes.requests,
        if seconds > 0.0 { 1.0 / seconds } else { 0.0 }
    )?;
    let Some(fit) = fit else { return Ok(page) };
    page.push_str("\n| preset | fast enough | three nodes, a month |\n|---|---|---|\n");
    for (name, why) in &fit.presets {
        let fits = why.as_ref().map_or_else(|| "yes".to_owned(), |why| format!("no: {why}"));
        writeln!(page, "| `{name}` | {fits} | {} |", month(settings, name))?;
    }
    if let Some(advice) = &fit.advice {
        writeln!(
            page,
            "\nUse `leaseTimeout = {}`, `heartbeatInterval = {}`.",
            advice.lease_timeout_ms, advice.heartbeat_interval_ms
        )?;
    }
    page.push_str(match is_file(settings) {
        true => "\nThe dollars are those of the same nodes on S3; a file costs nothing.\n",
        false => {
            "\nThe dollars are those of requests, with health and schedules, at the prices that are set.\n"
        }
    });
    Ok(page)
}

/// What a cluster costs at the prices of these settings.
fn month(settings: &Settings, preset: &str) -> String {
    let preset = Preset::ALL.iter().copied().find(|known| known.as_str() == preset);
    let built =
        preset.map(|preset| Settings::builder().preset(preset).store(&settings.store.to_string()).build());
    match built {
        Some(Ok(mut of_preset)) => {
            of_preset.price_write_per_1000_micros = settings.price_write_per_1000_micros;
            of_preset.price_read_per_1000_micros = settings.price_read_per_1000_micros;
            format!("${:.2}", dollars_of_run(&of_preset, NODES))
        }
        Some(Err(_)) | None => "-".to_owned(),
    }
}
