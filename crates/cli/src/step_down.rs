//! `tenure step-down`: asks the leader from outside to hand over, by a mark on the seat.

use crate::args::StepDownArgs;
use crate::exit::Failure;
use crate::out::{complain, say, say_json};
use crate::status::{NO_LEADER, existing};
use serde_json::{Value, json};
use std::process::ExitCode;
use std::time::Duration;
use tenure::Namespace;
use tenure::admin::{Election, HandOver, StepDownAnswer, hand_over, request_step_down};
use tenure::store::Lanes;

/// The leader did not give up in time.
const STILL_LEADS: u8 = 1;

pub(crate) async fn step_down(args: StepDownArgs) -> Result<ExitCode, Failure> {
    let settings = args.settings.load()?.settings;
    let namespace = Namespace::new(&settings.namespace).map_err(Failure::usage)?;
    let election = args.seat.election(&namespace)?;
    let report = Report { json: args.json, namespace, election };
    let Some(lanes) = existing(&settings).await? else {
        return Ok(report.no_leader(&format!("no leader: {} does not exist yet", settings.store)));
    };
    match request_step_down(&lanes, &report.election, &who()).await? {
        StepDownAnswer::NoLeader { epoch: 0 } => Ok(report.no_leader("no leader: there has never been one")),
        StepDownAnswer::NoLeader { epoch } => {
            Ok(report.no_leader(&format!("no leader: the seat has been vacant since epoch {epoch}")))
        }
        StepDownAnswer::Ended { node, epoch } => {
            report.line(&format!("{node} gave up epoch {epoch} before it was asked"));
            report.outcome(&lanes, &node, epoch, args.wait).await
        }
        StepDownAnswer::Asked(asked) => {
            let already = if asked.already { " (it had been asked already)" } else { "" };
            report.line(&format!("asked {} to step down from epoch {}{already}", asked.node, asked.epoch));
            report.outcome(&lanes, &asked.node, asked.epoch, args.wait).await
        }
    }
}

/// Who asks, for people who look at the seat.
fn who() -> String {
    let user = ["USER", "LOGNAME"].into_iter().find_map(|name| std::env::var(name).ok());
    let user = user.as_deref().filter(|user| !user.is_empty()).unwrap_or("somebody");
    format!("{user} with tenure step-down")
}

struct Report {
    json: bool,
    namespace: Namespace,
    election: Election,
}

impl Report {
    fn line(&self, text: &str) {
        if !self.json {
            say!("{text}");
        }
    }

    fn object(&self, asked: Value, outcome: &str, leader: Value) {
        if self.json {
            let namespace = self.namespace.as_str();
            let report =
                json!({"namespace": namespace, "asked": asked, "outcome": outcome, "leader": leader});
            say_json(&report.to_string());
        }
    }

    fn no_leader(&self, text: &str) -> ExitCode {
        self.line(text);
        self.object(Value::Null, "no leader", Value::Null);
        ExitCode::from(NO_LEADER)
    }

    /// What came of it, for as long as it is waited for.
    async fn outcome(
        &self,
        lanes: &Lanes,
        node: &str,
        epoch: u64,
        wait_ms: u64,
    ) -> Result<ExitCode, Failure> {
        let asked = json!({"node": node, "epoch": epoch});
        if wait_ms == 0 {
            self.object(asked, "asked", Value::Null);
            return Ok(ExitCode::SUCCESS);
        }
        match hand_over(lanes, &self.election, epoch, Duration::from_millis(wait_ms)).await? {
            HandOver::Led { node: next, epoch: later } => {
                if next == node {
                    self.line(&format!(
                        "{node} stepped down and leads again in epoch {later}: no other node took the seat"
                    ));
                } else {
                    self.line(&format!("{next} leads in epoch {later}"));
                }
                self.object(asked, "led", json!({"node": next, "epoch": later}));
                Ok(ExitCode::SUCCESS)
            }
            HandOver::Vacant => {
                self.line(&format!("{node} stepped down; nobody leads yet after {wait_ms} ms"));
                self.object(asked, "vacant", Value::Null);
                Ok(ExitCode::SUCCESS)
            }
            HandOver::Held => {
                self.object(asked, "held", json!({"node": node, "epoch": epoch}));
                complain!(
                    "tenure: {node} did not step down within {wait_ms} ms: it is dead (see `tenure status`), its work does \
not stop, or its version does not know the request"
                );
                Ok(ExitCode::from(STILL_LEADS))
            }
        }
    }
}
