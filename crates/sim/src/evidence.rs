//! The figures on the page of evidence, and whether they are clean.

use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Simulated seconds per second of one core. A slower simulator shows too little in its time. This depends on the machine, so
/// only a proof checks it, never a test.
pub const SPEED_LEAST: f64 = 10_000.0;

/// The results, as the programs printed them.
pub struct Figures {
    /// `proof/seat.py`, by solver and mode.
    pub proof: Value,
    /// Random schedules of the core.
    pub schedules: Value,
    /// Random schedules of the production driver.
    pub driver: Value,
    /// The searches of the explorer.
    pub explored: Vec<Value>,
    /// The broken variants in the simulator.
    pub mutants: Vec<Value>,
    /// Real processes under faults, if that was played.
    pub chaos: Option<Value>,
    /// What the judge found of programs that are broken on purpose; empty if chaos was not played.
    pub broken: Vec<Value>,
}

impl Figures {
    /// From one object with a field for each.
    pub fn read(all: &Value) -> Figures {
        let rows = |field: &str| all[field].as_array().cloned().unwrap_or_default();
        Figures {
            proof: all["proof"].clone(),
            schedules: all["schedules"].clone(),
            driver: all["driver"].clone(),
            explored: rows("explored"),
            mutants: rows("mutants"),
            chaos: Some(all["chaos"].clone()).filter(|chaos| !chaos.is_null()),
            broken: rows("broken"),
        }
    }
}

/// Every part of the proof must hold.
fn holds(found: &Value) -> bool {
    let parts = ["z3", "cvc5", "mutants", "needed", "slack", "reachable"];
    parts.iter().all(|part| found[*part]["ok"] == true)
}

impl Figures {
    /// Whether every part was tried, and found nothing.
    pub fn is_clean(&self) -> bool {
        let none = |value: &Value| value.as_u64() == Some(0) || value.as_array().is_some_and(Vec::is_empty);
        // A variant that was not tried shows nothing.
        let caught =
            |variants: &[Value]| !variants.is_empty() && variants.iter().all(|one| one["caught"] == true);
        let searched = |found: &Value| found["violation"].is_null() && found["complete"] == true;
        // Every step of a coordinator must have been compared with the model, or the proof is about something else.
        let followed = |found: &Value| found["followed"]["steps"].as_u64().is_some_and(|steps| steps > 0);
        holds(&self.proof)
            && none(&self.schedules["violations"])
            && followed(&self.schedules)
            && self.speed() >= SPEED_LEAST
            && none(&self.driver["violations"])
            && !self.explored.is_empty()
            && self.explored.iter().all(|found| searched(found) && followed(found))
            && caught(&self.mutants)
            && self.chaos.as_ref().is_none_or(|chaos| none(&chaos["violations"]) && caught(&self.broken))
    }

    /// Simulated seconds per second of one thread; 0 without a figure.
    pub fn speed(&self) -> f64 {
        let (all, threads) = (&self.schedules["simulatedPerWallSecond"], &self.schedules["threads"]);
        all.as_f64().zip(threads.as_f64()).map_or(0.0, |(all, threads)| all / threads)
    }

    /// The figures as Markdown.
    pub fn text(&self, commit: &str) -> String {
        let mut out = String::new();
        let _ = writeln!(out, "Commit `{commit}`.\n\n### The proof\n");
        self.proof_text(&mut out);
        out.push_str("\n### Random schedules\n\n");
        self.schedules_text(&mut out);
        out.push_str("\n### Every state\n\nFrom each of the states somebody leads within the time given, in ms of true time, once faults end.\n\n| nodes | epochs | faults | crashes | pauses | hand-overs | states | held against the model | a leader within | depth | complete | violation |\n|---|---|---|---|---|---|---|---|---|---|---|---|\n");
        for found in &self.explored {
            let cells = [
                "nodes",
                "epochs",
                "faults",
                "crashes",
                "pauses",
                "handOvers",
                "states",
                "depth",
                "complete",
            ];
            let mut cells: Vec<String> = cells.iter().map(|cell| found[*cell].to_string()).collect();
            let model = [&found["followed"]["steps"], &found["longestMs"]].map(Value::to_string);
            cells.splice(7..7, model);
            let violation = found["violation"].as_str().unwrap_or("none");
            let _ = writeln!(out, "| {} | {violation} |", cells.join(" | "));
        }
        self.mutants_text(&mut out);
        self.chaos_text(&mut out);
        self.broken_text(&mut out);
        out
    }

    fn proof_text(&self, out: &mut String) {
        let _ = writeln!(out, "| solver | obligations | proved | seconds |\n|---|---|---|---|");
        for solver in ["z3", "cvc5"] {
            let part = &self.proof[solver];
            let seconds = part["seconds"].as_f64().unwrap_or(0.0);
            let _ =
                writeln!(out, "| {solver} | {} | {} | {seconds:.1} |", part["obligations"], part["proved"]);
        }
        let list = |part: &str, field: &str| self.proof[part][field].as_array().map_or(0, Vec::len);
        let _ = writeln!(
            out,
            "\n{} clauses and {} assumptions, none of which can be dropped; {} weaker models that are still safe; {} runs in which \
             every transition happens. Mutants of the model, by what they break, each with the obligations lost and the steps of the \
             shortest run that shows it:\n\n| breaks | mutants |\n|---|---|",
            list("needed", "clauses"),
            list("needed", "assumptions"),
            list("slack", "slack"),
            list("reachable", "runs"),
        );
        let mutants = self.proof["mutants"]["mutants"].as_array().into_iter().flatten().map(|mutant| {
            let runs: Vec<&Value> = mutant["runs"].as_array().into_iter().flatten().collect();
            let cells = |field: &str| {
                runs.iter().map(|run| run[field].to_string().replace('"', "")).collect::<Vec<_>>().join(", ")
            };
            let lost = mutant["not_proved"].as_array().map_or(0, Vec::len);
            let name = mutant["name"].as_str().unwrap_or("?");
            (cells("goal"), format!("`{name}` {lost} ({})", cells("steps")))
        });
        grouped(out, mutants);
    }

    fn schedules_text(&self, out: &mut String) {
        let (core, driver) = (&self.schedules, &self.driver);
        let _ = writeln!(out, "| | |\n|---|---|");
        for (what, field) in [
            ("first seed", "from"),
            ("schedules", "schedules"),
            ("simulated seconds", "simulatedSeconds"),
            ("simulated seconds per second, all threads", "simulatedPerWallSecond"),
            ("threads", "threads"),
            ("steps", "steps"),
            ("checks of the proof's clauses", "clauseChecks"),
            ("claims", "claims"),
            ("faults", "faultsTotal"),
            ("stale tasks fenced", "staleTasksFenced"),
            ("**violations**", "violations"),
        ] {
            let _ = writeln!(out, "| {what} | {} |", core[field]);
        }
        let _ = writeln!(
            out,
            "| **steps held against the model of the proof** | {} |",
            core["followed"]["steps"]
        );
        let work = &core["leadersWork"];
        let _ = writeln!(
            out,
            "| schedules with leaders' work: scheduled jobs, runs of jobs, late results, restarts of processes | {}: {}, {}, {}, {} |",
            work["schedules"], work["jobs"], work["runs"], work["lateResults"], work["processRestarts"]
        );
        for (what, field) in [("crash", "failoverCrash"), ("graceful", "failoverGraceful")] {
            let spread = &core[field];
            let _ = writeln!(
                out,
                "| failover after a {what} end, in thousandths of the bound (p50 / p90 / p99 / max) | {} / {} / {} / {} |",
                spread["p50"], spread["p90"], spread["p99"], spread["max"]
            );
        }
        let _ = writeln!(
            out,
            "| least margin of a takeover, in thousandths of a lease | {} |",
            core["leastMarginPermilleOfLease"]
        );
        let _ = writeln!(
            out,
            "| with the production driver on paused time: schedules, violations | {}, {} |",
            driver["schedules"],
            driver["violations"].as_array().map_or(0, Vec::len)
        );
        let mut kinds: Vec<String> = core["faults"]
            .as_object()
            .map(|faults| faults.iter().map(|(kind, count)| format!("{kind} {count}")).collect())
            .unwrap_or_default();
        kinds.sort();
        let _ = writeln!(out, "\nFaults by kind: {}.", kinds.join(", "));
    }

    fn mutants_text(&self, out: &mut String) {
        let caught = self.mutants.iter().filter(|variant| variant["caught"] == true).count();
        let _ = writeln!(
            out,
            "\n### Broken variants\n\n{caught} of {} caught; those that only a test can show are caught by \
             `crates/core/tests/teeth.rs` and `crates/tenure/tests/teeth.rs`. By what caught them, each with the schedules it took; in \
             brackets the schedules for the model and the states for the explorer, of those that these must catch:\n\n| caught by | variants |\n|---|---|",
            self.mutants.len()
        );
        let variants = self.mutants.iter().map(|variant| {
            let text = |field: &str| variant[field].as_str().unwrap_or("NOT CAUGHT").to_owned();
            let number = |field: &str| variant[field].as_u64().map(|number| number.to_string());
            let others: Vec<String> = [("model", "modelSchedules"), ("explorer", "explorerStates")]
                .into_iter()
                .filter_map(|(who, field)| Some(format!("{who} {}", number(field)?)))
                .collect();
            let others = if others.is_empty() { String::new() } else { format!(" ({})", others.join(", ")) };
            let schedules = number("schedules").unwrap_or_default();
            (text("check"), format!("`{}` {schedules}{others}", text("variant")))
        });
        grouped(out, variants);
    }

    fn chaos_text(&self, out: &mut String) {
        let Some(chaos) = &self.chaos else {
            out.push_str("\n### Chaos\n\nNot played this time.\n");
            return;
        };
        let text = |field: &str| chaos[field].as_str().unwrap_or("?").to_owned();
        let spread = |spread: &Value| {
            format!(
                "{} / {} / {} / {} ms ({})",
                spread["p50Ms"], spread["p90Ms"], spread["p99Ms"], spread["maxMs"], spread["count"]
            )
        };
        let (margins, line) = (&chaos["margins"], &chaos["linearizability"]);
        let _ = writeln!(
            out,
            "\n### Chaos\n\nReal processes on {}, {} nodes, preset `{}`, {} s, seed {}.\n\n| | |\n|---|---|",
            text("engine"),
            chaos["nodes"],
            text("preset"),
            chaos["seconds"],
            chaos["seed"]
        );
        let rows = [
            ("faults", chaos["faults"].to_string()),
            ("leaderships", chaos["leaderships"].to_string()),
            ("crash failover (p50 / p90 / p99 / max)", spread(&chaos["crashFailover"])),
            ("promised, and with requests given up and ranks of the dead", chaos["crashBoundMs"].to_string()),
            ("hand-over (p50 / p90 / p99 / max)", spread(&chaos["handOver"])),
            ("promised", chaos["handOverBoundMs"].to_string()),
            (
                "leader's own requests answered 503: replaced",
                format!(
                    "{} of {}, {}",
                    chaos["leader503"]["replaced"],
                    chaos["leader503"]["count"],
                    spread(&chaos["leader503"]["failover"])
                ),
            ),
            (
                "least margin between leaders: after expiry, after vacating",
                format!("{} ms, {} ms", margins["expiredMinMs"], margins["vacatedMinMs"]),
            ),
            ("linearizable, operations", format!("{}, {}", line["holds"], line["operations"])),
            ("the machine stood still for", format!("{} ms", chaos["machine"]["stalledMs"])),
            ("**violations**", chaos["violations"].as_array().map_or(0, Vec::len).to_string()),
        ];
        for (what, value) in rows {
            let _ = writeln!(out, "| {what} | {value} |");
        }
        let kinds: Vec<String> = chaos["kinds"]
            .as_object()
            .map(|kinds| kinds.iter().map(|(kind, figures)| format!("{kind} {}", figures["count"])).collect())
            .unwrap_or_default();
        let _ = writeln!(out, "\nFaults by kind: {}.", kinds.join(", "));
    }
}

impl Figures {
    fn broken_text(&self, out: &mut String) {
        out.push_str("\n### Broken binaries under chaos\n\n");
        if self.broken.is_empty() {
            out.push_str("Not played this time.\n");
            return;
        }
        out.push_str("| variant | what is wrong | store | faults played | found by the judge | after |\n|---|---|---|---|---|---|\n");
        for variant in &self.broken {
            let text = |field: &str| variant[field].as_str().unwrap_or("?").replace('|', "/");
            let kinds: Vec<&str> =
                variant["kinds"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            let by = if variant["caught"] == true { text("by") } else { "NOT CAUGHT".to_owned() };
            let _ = writeln!(
                out,
                "| `{}` | {} | {} | {} | {by} | {} s, {} faults |",
                text("variant"),
                text("what"),
                text("engine"),
                kinds.join(", "),
                variant["seconds"],
                variant["faults"]
            );
        }
    }
}

/// A row for each group, in the order of their names.
fn grouped(out: &mut String, rows: impl Iterator<Item = (String, String)>) {
    let mut groups: BTreeMap<String, Vec<String>> = BTreeMap::new();
    rows.for_each(|(group, row)| groups.entry(group).or_default().push(row));
    for (group, rows) in groups {
        let _ = writeln!(out, "| {group} | {} |", rows.join(", "));
    }
}
