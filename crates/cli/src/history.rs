//! `tenure history`: who led, from when until when, and why it ended. Nothing is written.

use crate::args::HistoryArgs;
use crate::exit::Failure;
use crate::out::{Table, complain, say, say_json};
use crate::schedules::{moment, now_ms, span};
use crate::status::existing;
use std::process::ExitCode;
use std::time::Duration;
use tenure::Namespace;
use tenure::clock::millis;
use tenure_plugins::terms::{TERMS_MAX, TermRow, TermsView};

pub(crate) async fn history(args: HistoryArgs) -> Result<ExitCode, Failure> {
    let settings = args.settings.load()?.settings;
    let namespace = Namespace::new(&settings.namespace).map_err(Failure::usage)?;
    let mut view = match existing(&settings).await? {
        Some(lanes) => TermsView::read_from(&lanes, &namespace).await?,
        None => TermsView::nothing(&namespace),
    };
    let all = view.terms.len();
    view.terms.truncate(usize::try_from(args.limit).unwrap_or(usize::MAX));
    if args.json {
        say_json(&serde_json::to_string_pretty(&view).map_err(Failure::other)?);
        return Ok(ExitCode::SUCCESS);
    }
    if view.terms.is_empty() {
        say!("nobody has led {namespace} yet");
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new(&["EPOCH", "LEADER", "FROM", "LED FOR", "ENDED"]);
    for row in &view.terms {
        table.row(cells(row));
        if row.unrecorded > 0 {
            let last = row.term.epoch - 1;
            let (epochs, words) = match row.unrecorded {
                1 => (last.to_string(), "no record of this epoch"),
                more => (format!("{}-{last}", last + 1 - more), "no record of these epochs"),
            };
            table.row([epochs.as_str(), "-", "-", "-", words]);
        }
    }
    table.say();
    if view.terms.len() < all {
        complain!("tenure: there are {} older ones; see --limit", all - view.terms.len());
    }
    Ok(ExitCode::SUCCESS)
}

fn cells(row: &TermRow) -> [String; 5] {
    let none = || "-".to_owned();
    let term = &row.term;
    let ms = |time: jiff::Timestamp| u64::try_from(time.as_millisecond()).unwrap_or(0);
    let so_far = || Some(Duration::from_millis(now_ms().saturating_sub(ms(term.from?))));
    let led = if row.leads { so_far() } else { term.led_for() };
    [
        term.epoch.to_string(),
        term.leader.clone(),
        term.from.map_or_else(none, |from| moment(ms(from))),
        led.map_or_else(none, |led| span(millis(led))),
        row.why.clone(),
    ]
}

/// As much as there can be.
pub(crate) const LIMIT_MAX: u64 = TERMS_MAX as u64;
