//! One schedule to look at: as text, and as a picture.

use crate::run::Outcome;
use crate::trace::{Note, Noted};
use std::fmt::Write;
use tenure_core::Event;

/// Everything except standbys' looks and successful renewals.
pub fn text(outcome: &Outcome) -> String {
    let mut said = String::new();
    for Note { at, node, what } in &outcome.notes {
        if matches!(what, Noted::Event(Event::ElectionCheck { .. } | Event::LeaseRenewed { .. })) {
            continue;
        }
        let (who, line) = (outcome.nodes.get(*node).map_or("registry", String::as_str), what.line());
        let _ = writeln!(said, "{at:>7} {who}: {line}");
    }
    for violation in &outcome.violations {
        let _ = writeln!(said, "VIOLATION at {}: {}: {}", violation.at, violation.check, violation.what);
    }
    let _ = writeln!(said, "trace {:016x}", outcome.trace);
    said
}

const LEFT: f64 = 90.0;
const WIDTH: f64 = 1500.0;
const ROW: f64 = 46.0;

/// A row per node: bars while its work may run, marks for requests, faults, deaths and pauses.
pub fn svg(outcome: &Outcome, title: &str) -> String {
    let end = outcome.simulated_ms.max(1) as f64;
    let x = |at: u64| LEFT + at as f64 / end * WIDTH;
    let height = ROW * outcome.nodes.len() as f64 + 60.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{height}\" font-family=\"monospace\" \
         font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n<text x=\"10\" y=\"18\">{title}</text>\n",
        LEFT + WIDTH + 20.0
    );
    for second in (0..=outcome.simulated_ms / 1000).step_by(10) {
        let at = x(second * 1000);
        let _ =
            writeln!(svg, "<line x1=\"{at:.1}\" y1=\"28\" x2=\"{at:.1}\" y2=\"{height}\" stroke=\"#eee\"/>");
        let _ = writeln!(svg, "<text x=\"{at:.1}\" y=\"{:.1}\" fill=\"#888\">{second}s</text>", height - 6.0);
    }
    for (node, name) in outcome.nodes.iter().enumerate() {
        let y = 40.0 + ROW * node as f64;
        let _ = writeln!(svg, "<text x=\"8\" y=\"{:.1}\">{name}</text>", y + 14.0);
        let _ = writeln!(
            svg,
            "<line x1=\"{LEFT}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"#ccc\"/>",
            y + 20.0,
            LEFT + WIDTH,
            y + 20.0
        );
        row(&mut svg, outcome, node, y, &x);
    }
    for violation in &outcome.violations {
        let at = x(violation.at);
        let _ = writeln!(
            svg,
            "<line x1=\"{at:.1}\" y1=\"28\" x2=\"{at:.1}\" y2=\"{height}\" stroke=\"red\" stroke-width=\"2\"/>\
             <text x=\"{at:.1}\" y=\"30\" fill=\"red\">{}</text>",
            violation.check
        );
    }
    svg + "</svg>\n"
}

fn row(svg: &mut String, outcome: &Outcome, node: usize, y: f64, x: &impl Fn(u64) -> f64) {
    let bar = |svg: &mut String, from: u64, to: u64, colour: &str, text: &str| {
        let (left, width) = (x(from), (x(to) - x(from)).max(1.0));
        let _ = writeln!(
            svg,
            "<rect x=\"{left:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"18\" fill=\"{colour}\"/>\
             <text x=\"{left:.1}\" y=\"{:.1}\">{text}</text>",
            y + 13.0
        );
    };
    let mut began: Option<(u64, String)> = None;
    for Note { at, what, .. } in outcome.notes.iter().filter(|note| note.node == node) {
        let mark = |svg: &mut String, colour: &str, low: f64| {
            let _ = writeln!(
                svg,
                "<line x1=\"{0:.1}\" y1=\"{1:.1}\" x2=\"{0:.1}\" y2=\"{2:.1}\" stroke=\"{colour}\"/>",
                x(*at),
                y + 20.0,
                y + 20.0 + low
            );
        };
        match what {
            Noted::Began(epoch) => began = Some((*at, format!("{epoch:?}"))),
            Noted::Ending(_) | Noted::Crashed => {
                if let Some((from, epoch)) = began.take() {
                    bar(svg, from, *at, "#9fd49f", &epoch);
                }
                if matches!(what, Noted::Crashed) {
                    let _ = writeln!(
                        svg,
                        "<text x=\"{:.1}\" y=\"{:.1}\" fill=\"#900\">x</text>",
                        x(*at),
                        y + 14.0
                    );
                }
            }
            Noted::Paused(ms) => bar(svg, *at, *at + ms, "#ddd8", ""),
            Noted::Sent(kind, _) => mark(svg, if kind.is_seat() { "#36c" } else { "#bbb" }, 8.0),
            Noted::Landed(..) => mark(svg, "#063", 12.0),
            Noted::Fault(_) => mark(svg, "#e33", 18.0),
            Noted::Work(_) => mark(svg, "#93c", 4.0),
            Noted::Event(_) | Noted::Rests | Noted::Restarted | Noted::Resumed | Noted::Worker(_) => {}
        }
    }
    if let Some((from, epoch)) = began {
        bar(svg, from, outcome.simulated_ms, "#9fd49f", &epoch);
    }
}
