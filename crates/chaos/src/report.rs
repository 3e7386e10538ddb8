//! The findings for people.

use crate::checks::{Findings, Spread};
use comfy_table::{Table, presets};
use std::fmt::Write as _;

/// The table at the end of a run.
pub fn text(findings: &Findings) -> String {
    let mut kinds = Table::new();
    kinds.load_style(presets::NOTHING);
    kinds.set_header(["FAULT", "COUNT", "OF LEADER", "NEW LEADER AFTER", "P50", "P90", "P99", "MAX"]);
    for (kind, figures) in &findings.kinds {
        let mut row = vec![kind.clone(), figures.count.to_string(), figures.hit_leader.to_string()];
        row.extend(cells(&figures.failover));
        kinds.add_row(row);
    }
    let mut text = format!(
        "\n{} s on {} with {} nodes, preset {}, seed {}\n\n{kinds}\n\n",
        findings.seconds, findings.engine, findings.nodes, findings.preset, findings.seed
    );
    let mut line = |name: &str, value: String| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{name:<28}{value}");
    };
    line("faults", findings.faults.to_string());
    line(
        "leaderships",
        format!(
            "{} (highest epoch {}), {} processes",
            findings.leaderships, findings.epochs, findings.processes
        ),
    );
    let (promised_ms, counted_ms) = findings.crash_bound_ms;
    line(
        "crash failover",
        format!(
            "{}; promised {promised_ms} ms, {counted_ms} ms with requests given up and ranks of the dead",
            spread(&findings.crash_failover)
        ),
    );
    line(
        "graceful hand-over",
        format!("{}; promised {} ms", spread(&findings.hand_over), findings.hand_over_bound_ms),
    );
    line(
        "margin between leaders",
        format!(
            "at least {} after an expiry, {} after a hand-over",
            ms(findings.margins.expired_min_ms),
            ms(findings.margins.vacated_min_ms)
        ),
    );
    let named = &findings.leader503;
    if named.count > 0 {
        line(
            "leader alone gets 503",
            format!(
                "{} times, replaced {} times; {}; it had stopped at least {} before the next began, {} before its \
                 deadline",
                named.count,
                named.replaced,
                spread(&named.failover),
                ms(named.margin_min_ms),
                ms(named.before_deadline_min_ms)
            ),
        );
    }
    line("a loss was told late by", format!("at most {} ms", findings.loss_told_late_max_ms));
    line("linearizability", linearizability(findings));
    let steps: Vec<String> =
        findings.transitions.iter().map(|(name, count)| format!("{name} {count}")).collect();
    line("steps of the proof", steps.join(", "));
    line(
        "machine stood still",
        format!("{} ms in all, {} ms at once", findings.machine.stalled_ms, findings.machine.stalled_max_ms),
    );
    for (title, lines) in [
        ("left out", &findings.notices),
        ("late, excused", &findings.excused),
        ("VIOLATION", &findings.violations),
    ] {
        lines.iter().for_each(|text| line(title, text.clone()));
    }
    line("violations", findings.violations.len().to_string());
    text
}

fn cells(spread: &Spread) -> Vec<String> {
    if spread.count == 0 {
        return ["-", "", "", "", ""].map(str::to_owned).to_vec();
    }
    let times = format!("{} times", spread.count);
    let durations = [spread.p50_ms, spread.p90_ms, spread.p99_ms, spread.max_ms].map(|ms| format!("{ms} ms"));
    [vec![times], durations.to_vec()].concat()
}

fn spread(spread: &Spread) -> String {
    let Spread { count, p50_ms, p90_ms, p99_ms, max_ms } = spread;
    match count {
        0 => "not measured".to_owned(),
        _ => format!("p50 {p50_ms}, p90 {p90_ms}, p99 {p99_ms}, max {max_ms} ms ({count} times)"),
    }
}

fn ms(value: Option<i64>) -> String {
    value.map_or_else(|| "-".to_owned(), |ms| format!("{ms} ms"))
}

fn linearizability(findings: &Findings) -> String {
    let figures = &findings.linearizability;
    if !figures.recorded {
        return "not recorded: this store has no network to listen on".to_owned();
    }
    format!(
        "{}: {} operations on the seat, {} reads, {} writes won, {} refused, {} unknown of which {} took effect; {} \
         requests never reached the store",
        if figures.holds { "holds" } else { "BROKEN" },
        figures.operations,
        figures.reads,
        figures.won,
        figures.lost,
        figures.unknown,
        figures.unknown_effective,
        figures.stopped
    )
}
