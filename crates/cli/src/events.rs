//! `tenure events`: what a node says happened, by way of its HTTP.

mod frames;

use crate::args::EventsArgs;
use crate::exit::Failure;
use crate::node_client::NodeClient;
use crate::out::{complain, say, say_json};
use crate::run::Signals;
use frames::{Frame, Frames};
use serde_json::Value;
use std::collections::VecDeque;
use std::process::ExitCode;
use std::time::Duration;

/// Between two tries to reach a node that went away.
const AGAIN: Duration = Duration::from_secs(1);

/// As many as a node keeps, and gives at once.
const KEPT: usize = 1000;

/// Fields that every event has, and that a line says in its own way.
const USUAL: [&str; 7] = ["event", "namespace", "node", "epoch", "time", "bootMs", "plugins"];

pub(crate) async fn events(args: EventsArgs) -> Result<ExitCode, Failure> {
    let reader = Reader::new(args)?;
    let mut signals = Signals::new()?;
    tokio::select! {
        biased;
        _ = signals.next() => Ok(ExitCode::SUCCESS),
        done = reader.run() => done.map(|()| ExitCode::SUCCESS),
    }
}

struct Reader {
    args: EventsArgs,
    node: NodeClient,
    /// The newest event seen.
    last: Option<String>,
}

impl Reader {
    fn new(args: EventsArgs) -> Result<Reader, Failure> {
        let node = NodeClient::new(args.url.clone(), args.token_file.as_deref())?;
        Ok(Reader { args, node, last: None })
    }

    async fn run(mut self) -> Result<(), Failure> {
        self.past().await?;
        // Said once, however long the node is away, and again only if something else is wrong.
        let mut said = None;
        while self.args.follow && !crate::out::closed() {
            if let Err(failure) = self.stream(&mut said).await {
                let failure = failure.to_string();
                if said.as_ref() != Some(&failure) {
                    complain!("tenure: {failure}; trying again");
                    said = Some(failure);
                }
            }
            tokio::time::sleep(AGAIN).await;
        }
        Ok(())
    }

    /// Prints the newest of what the node has. Those that are not wanted do not count.
    async fn past(&mut self) -> Result<(), Failure> {
        let most = usize::try_from(self.args.recent).unwrap_or(KEPT);
        let asked = if self.args.only.is_some() && most > 0 { KEPT } else { most };
        let mut answer = self.ask(asked, false).await?;
        let (mut frames, mut newest) = (Frames::default(), VecDeque::new());
        while let Some(piece) = answer.chunk().await.map_err(|error| self.node.away(&error))? {
            for frame in frames.take(&piece) {
                self.last = frame.id.clone().or(self.last.take());
                if self.wants(&frame) {
                    newest.push_back(frame);
                    newest.drain(..newest.len().saturating_sub(most));
                }
            }
        }
        newest.iter().for_each(|frame| self.print(frame));
        Ok(())
    }

    /// Prints events until the stream ends. `said`: what was wrong before.
    async fn stream(&mut self, said: &mut Option<String>) -> Result<(), Failure> {
        // Where there was nothing, whatever is there by now is new.
        let recent = if self.args.recent > 0 { KEPT } else { 0 };
        let mut answer = self.ask(recent, true).await?;
        if said.take().is_some() {
            complain!("tenure: the node answers again");
        }
        let mut frames = Frames::default();
        while let Some(piece) = answer.chunk().await.map_err(|error| self.node.away(&error))? {
            for frame in frames.take(&piece) {
                if self.wants(&frame) {
                    self.print(&frame);
                }
                self.last = frame.id.or(self.last.take());
                if crate::out::closed() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// What a healthy node repeats all the time is left out, unless it is asked for.
    fn level(&self) -> &'static str {
        if self.args.all { "debug" } else { "info" }
    }

    /// The events after the newest seen; before the first, so many of the past.
    async fn ask(&self, recent: usize, follow: bool) -> Result<reqwest::Response, Failure> {
        let recent = recent.to_string();
        let query = [
            ("recent", recent.as_str()),
            ("level", self.level()),
            ("follow", if follow { "true" } else { "false" }),
        ];
        let last = self.last.as_deref().map(|last| ("last-event-id", last));
        self.node.get("v1/events", &query, last.as_slice()).await
    }

    fn wants(&self, frame: &Frame) -> bool {
        let name = frame.data["event"].as_str().unwrap_or("");
        frame.is_missed() || self.args.only.as_deref().is_none_or(|wanted| name.contains(wanted))
    }

    fn print(&self, frame: &Frame) {
        if frame.is_missed() {
            let why = frame.data["why"].as_str().unwrap_or("");
            let count = frame.data["missed"].as_u64().map_or("some".to_owned(), |count| count.to_string());
            complain!("tenure: {count} events are missing here: {why}");
            return;
        }
        match self.args.json {
            true => say_json(&frame.data.to_string()),
            false => say!("{}", sentence(&frame.data)),
        }
    }
}

/// One event for people.
fn sentence(event: &Value) -> String {
    let text = |field: &str| event[field].as_str().unwrap_or("").to_owned();
    let name = text("event");
    let short = if name.contains(':') { &*name } else { name.rsplit('.').next().unwrap_or(&name) };
    let mut line = format!("{}  {}  epoch {}  {short}", text("time"), text("node"), event["epoch"]);
    for (key, value) in event.as_object().into_iter().flatten() {
        if !USUAL.contains(&key.as_str()) {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            line.push_str(&format!("  {key}={value}"));
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_line_says_what_there_is() {
        let event = json!({
            "event": "serviceradar.coordinator.lost_leadership", "namespace": "a", "node": "pod-a", "epoch": 3,
            "time": "12:00", "bootMs": 7, "reason": "step down", "vacated": true,
        });
        let told = sentence(&event);
        assert_eq!(told, "12:00  pod-a  epoch 3  lost_leadership  reason=step down  vacated=true");
        assert!(sentence(&json!({"event": "leader:changed", "epoch": 1})).ends_with("leader:changed"));
    }
}
