//! `tenure events`: what a node says happened, by way of its HTTP.

mod frames;

use crate::args::EventsArgs;
use crate::exit::Failure;
use crate::out::{complain, say};
use crate::run::Signals;
use frames::{Frame, Frames};
use serde_json::Value;
use std::collections::VecDeque;
use std::process::ExitCode;
use std::time::Duration;

/// The node must begin to answer within this.
const PATIENCE: Duration = Duration::from_secs(10);

/// A node says something every 15 s, if only that it is there.
const SILENCE: Duration = Duration::from_secs(45);

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
    client: reqwest::Client,
    token: Option<String>,
    /// The newest event seen.
    last: Option<String>,
}

impl Reader {
    fn new(args: EventsArgs) -> Result<Reader, Failure> {
        if !["http", "https"].contains(&args.url.scheme()) {
            return Err(Failure::usage(format!("--url {}: must begin with http:// or https://", args.url)));
        }
        let token = crate::http::text(args.token_file.as_deref())?.map(|text| text.trim().to_owned());
        // An error means that somebody has installed one, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder()
            .connect_timeout(PATIENCE)
            .read_timeout(SILENCE)
            .redirect(reqwest::redirect::Policy::none())
            .build();
        let client = client.map_err(|error| Failure::other(words(&error)))?;
        Ok(Reader { args, client, token, last: None })
    }

    async fn run(mut self) -> Result<(), Failure> {
        self.past().await?;
        while self.args.follow && !crate::out::closed() {
            if let Err(failure) = self.stream().await {
                complain!("tenure: {failure}; trying again");
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
        while let Some(piece) = answer.chunk().await.map_err(|error| self.away(&error))? {
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

    /// Prints events until the stream ends.
    async fn stream(&mut self) -> Result<(), Failure> {
        // Where there was nothing, whatever is there by now is new.
        let recent = if self.args.recent > 0 { KEPT } else { 0 };
        let mut answer = self.ask(recent, true).await?;
        let mut frames = Frames::default();
        while let Some(piece) = answer.chunk().await.map_err(|error| self.away(&error))? {
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
        let url = self.args.url.join("v1/events");
        let mut url = url.map_err(|error| Failure::usage(format!("--url: {error}")))?;
        url.query_pairs_mut().extend_pairs([
            ("recent", &*recent.to_string()),
            ("level", self.level()),
            ("follow", if follow { "true" } else { "false" }),
        ]);
        let mut request = self.client.get(url);
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        if let Some(last) = &self.last {
            request = request.header("last-event-id", last);
        }
        let answer = tokio::time::timeout(PATIENCE, request.send()).await;
        let answer = answer
            .map_err(|_| Failure::other(format!("{} does not answer", self.args.url)))?
            .map_err(|error| self.away(&error))?;
        match answer.status().as_u16() {
            200 => Ok(answer),
            401 => Err(Failure::other(format!("{} wants another token (--token-file)", self.args.url))),
            other => Err(Failure::other(format!("{} answers {other}", self.args.url))),
        }
    }

    fn away(&self, error: &reqwest::Error) -> Failure {
        Failure::other(format!("{}: {}", self.args.url, words(error)))
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
            true => say!("{}", frame.data),
            false => say!("{}", line(&frame.data)),
        }
    }
}

/// One event for people. What comes from elsewhere cannot move the cursor.
fn line(event: &Value) -> String {
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
    line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// The innermost cause: the outer ones say that something failed.
fn words(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => words(source),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_line_says_what_there_is_and_moves_no_cursor() {
        let event = json!({
            "event": "serviceradar.coordinator.lost_leadership", "namespace": "a", "node": "pod-a", "epoch": 3,
            "time": "12:00", "bootMs": 7, "reason": "step\u{1b}[2J down", "vacated": true,
        });
        let told = line(&event);
        assert_eq!(told, "12:00  pod-a  epoch 3  lost_leadership  reason=step [2J down  vacated=true");
        assert!(line(&json!({"event": "leader:changed", "epoch": 1})).ends_with("leader:changed"));
    }
}
