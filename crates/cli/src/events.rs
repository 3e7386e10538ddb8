//! `tenure events`: what a node says happened, by way of its HTTP.

mod frames;

use crate::args::EventsArgs;
use crate::exit::Failure;
use crate::out::{complain, say};
use crate::run::Signals;
use frames::{Frame, Frames};
use serde_json::Value;
use std::process::ExitCode;
use std::time::Duration;

/// The node must begin to answer within this.
const PATIENCE: Duration = Duration::from_secs(10);

/// A node says something every 15 s, if only that it is there.
const SILENCE: Duration = Duration::from_secs(45);

/// Between two tries to reach a node that went away.
const AGAIN: Duration = Duration::from_secs(1);

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
        if !self.args.follow {
            return self.recent().await;
        }
        let mut reached = false;
        while !crate::out::closed() {
            match self.stream(None).await {
                Ok(()) => reached = true,
                Err(failure) if !reached => return Err(failure),
                Err(failure) => complain!("tenure: {failure}; trying again"),
            }
            tokio::time::sleep(AGAIN).await;
        }
        Ok(())
    }

    /// What the node has, up to the newest there is now.
    async fn recent(&mut self) -> Result<(), Failure> {
        let answer = self.ask("v1/overview", &[]).await?;
        let text = answer.text().await.map_err(|error| self.away(&error))?;
        let newest = serde_json::from_str::<Value>(&text)
            .ok()
            .and_then(|view| Some(view["lastEventId"].as_str()?.to_owned()));
        match newest.filter(|_| self.args.recent > 0) {
            Some(newest) => self.stream(Some(&newest)).await,
            None => Ok(()),
        }
    }

    /// Prints events until the stream ends, or until this one.
    async fn stream(&mut self, until: Option<&str>) -> Result<(), Failure> {
        let recent = self.args.recent.to_string();
        let mut answer = self.ask("v1/events", &[("recent", &recent)]).await?;
        let mut frames = Frames::default();
        while let Some(piece) = answer.chunk().await.map_err(|error| self.away(&error))? {
            for frame in frames.take(&piece) {
                let done = until.is_some_and(|until| frame.id.as_deref() == Some(until));
                self.print(&frame);
                self.last = frame.id.or(self.last.take());
                if done || crate::out::closed() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    async fn ask(&self, path: &str, query: &[(&str, &str)]) -> Result<reqwest::Response, Failure> {
        let mut url = self.args.url.join(path).map_err(|error| Failure::usage(format!("--url: {error}")))?;
        if self.last.is_none() && !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
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

    fn print(&self, frame: &Frame) {
        if frame.name.as_deref() == Some("missed") {
            let why = frame.data["why"].as_str().unwrap_or("");
            let count = frame.data["missed"].as_u64().map_or("some".to_owned(), |count| count.to_string());
            complain!("tenure: {count} events are missing here: {why}");
            return;
        }
        let name = frame.data["event"].as_str().unwrap_or("");
        if self.args.only.as_deref().is_some_and(|wanted| !name.contains(wanted)) {
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
