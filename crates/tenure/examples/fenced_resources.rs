//! A former leader is refused by a bucket, a database and an HTTP service: `cargo run -p tenure --example fenced_resources`.
//!
//! Two pods share a store. The first leads, looks at its guard right before it writes, and then its machine stands still. The
//! second takes over and writes. The first wakes up in the middle of what it was doing, still thinks it leads, and writes:
//! each resource by itself refuses that.
//!
//! The store is a SQLite file, unless `TENURE_STORE` names a bucket. The database is another, unless `FENCED_POSTGRES_URL` is
//! the URL of a PostgreSQL; then the same statements go there, through `psql`.
#![allow(clippy::print_stdout, reason = "an example talks")]

use axum::Router;
use axum::http::Request;
use axum::routing::put;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tenure::clock::{BootClock, Clock, StoppableClock};
use tenure::fence::http::{EPOCH_HEADER, FenceLayer};
use tenure::fence::sql;
use tenure::settings::Preset;
use tenure::{FencedDocument, LeaderGuard, Node, Settings};
use tokio::sync::watch;

type Failed = Box<dyn std::error::Error>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failed> {
    let postgres = std::env::var("FENCED_POSTGRES_URL").ok();
    play(postgres, |line| println!("{line}")).await
}

/// The whole story, told line by line.
pub(crate) async fn play(postgres: Option<String>, say: impl Fn(&str)) -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let file = |name: &str| folder.path().join(name).display().to_string();
    let store = std::env::var("TENURE_STORE").unwrap_or_else(|_| format!("sqlite:{}", file("tenure.db")));
    let database = match postgres {
        Some(url) => Database::Postgres(url),
        None => Database::Sqlite(file("app.db")),
    };
    database.set_up()?;
    let service = Service::start(folder.path()).await?;

    let clock = StoppableClock::new(Arc::new(BootClock));
    let a = join(&store, "pod-a", clock.clone()).await?;
    let guard_a = a.lead().await.ok_or("pod-a was stopped")?;
    let mut of_a = Resources::open(&a, &guard_a, &database, &service).await?;
    say(&format!("pod-a leads in epoch {} and writes", guard_a.epoch()));
    of_a.write(&guard_a, "a report of pod-a").await.iter().for_each(|line| say(line));

    let b = join(&store, "pod-b", Arc::new(BootClock)).await?;
    guard_a.check()?;
    say("pod-a looks at its guard: it leads. Then its machine stands still");
    clock.stop();
    let guard_b = b.lead().await.ok_or("pod-b was stopped")?;
    say(&format!("pod-b leads in epoch {} and writes", guard_b.epoch()));
    let mut of_b = Resources::open(&b, &guard_b, &database, &service).await?;
    of_b.write(&guard_b, "a report of pod-b").await.iter().for_each(|line| say(line));

    say("pod-a wakes up and goes on: it still thinks it leads, and writes");
    assert!(guard_a.is_valid(), "nobody told it");
    let refused = of_a.write(&guard_a, "a late report of pod-a").await;
    refused.iter().for_each(|line| say(line));
    clock.resume();
    say(&format!("pod-a looks at its clock: {}", guard_a.check().err().ok_or("pod-a still leads")?));

    let stands = of_b.read(&b).await?;
    assert_eq!(stands, ["a report of pod-b"; 3], "no resource has what pod-a wrote late");
    let reasons = ["the leader of epoch", "epoch_of_a_former_leader", "412"];
    assert!(refused.iter().zip(reasons).all(|(line, reason)| line.contains(reason)), "and each said why");
    say("each resource has what pod-b wrote");
    drop((guard_a, guard_b));
    a.shutdown().await;
    b.shutdown().await;
    database.clean_up()
}

async fn join(store: &str, name: &str, clock: Arc<dyn Clock>) -> Result<Node, Failed> {
    let settings = Settings::builder().store(store).namespace("fenced-resources").node(name);
    let settings = settings.preset(Preset::Fast).lease_timeout(Duration::from_secs(1));
    Ok(Node::builder(settings.startup_jitter_max(Duration::ZERO).build()?).clock(clock).start().await?)
}

/// What a leader writes to.
struct Resources<'a> {
    document: FencedDocument<Report>,
    database: &'a Database,
    service: &'a Service,
}

#[derive(Serialize, Deserialize)]
struct Report {
    text: String,
}

impl Resources<'_> {
    async fn open<'a>(
        node: &Node,
        guard: &LeaderGuard,
        database: &'a Database,
        service: &'a Service,
    ) -> Result<Resources<'a>, Failed> {
        let document = FencedDocument::open(&node.documents(), &"report".parse()?, guard).await?;
        Ok(Resources { document, database, service })
    }

    /// Writes everywhere, and says what became of it.
    async fn write(&mut self, guard: &LeaderGuard, text: &str) -> [String; 3] {
        let bucket = self.document.put(guard, Report { text: text.to_owned() }).await;
        [
            told("bucket", bucket.map_err(Failed::from)),
            told("database", self.database.write(guard, text)),
            told("HTTP", self.service.write(guard, text).await),
        ]
    }

    async fn read(&self, node: &Node) -> Result<[String; 3], Failed> {
        let document = node.documents().read::<Report>(&"report".parse()?).await?.ok_or("no document")?;
        Ok([document.body.text, self.database.read()?, self.service.read()])
    }
}

fn told(resource: &str, outcome: Result<(), Failed>) -> String {
    match outcome {
        Ok(()) => format!("  {resource:8}  written"),
        Err(error) => format!("  {resource:8}  REFUSED: {error}"),
    }
}

/// The application's own database.
enum Database {
    Sqlite(String),
    Postgres(String),
}

const SET_UP: &str = "drop table if exists report_example; create table report_example (text text);
    insert into report_example values ('nothing')";

fn write_report(
    database: &mut rusqlite::Connection,
    guard: &LeaderGuard,
    text: &str,
) -> rusqlite::Result<()> {
    let transaction = database.transaction()?;
    transaction.execute(sql::FENCE, ("report-example", sql::epoch(guard)))?; // fails if a newer leader was here
    transaction.execute("update report_example set text = $1", [text])?;
    transaction.commit()
}

impl Database {
    fn set_up(&self) -> Result<(), Failed> {
        match self {
            Database::Sqlite(file) => {
                let database = rusqlite::Connection::open(file)?;
                database.execute(sql::CREATE, ())?;
                Ok(database.execute_batch(SET_UP)?)
            }
            Database::Postgres(url) => {
                // What an earlier run left, in which epochs may have been higher.
                let forget = "delete from tenure_fence where resource = 'report-example'";
                psql(url, &format!("{};\n{forget};\n{SET_UP};\n", sql::CREATE)).map(drop)
            }
        }
    }

    fn write(&self, guard: &LeaderGuard, text: &str) -> Result<(), Failed> {
        match self {
            Database::Sqlite(file) => Ok(write_report(&mut rusqlite::Connection::open(file)?, guard, text)?),
            Database::Postgres(url) => {
                let (fence, epoch) = (sql::FENCE, sql::epoch(guard));
                let script = format!(
                    "prepare fence (text, bigint) as\n{fence};\nbegin;\nexecute fence('report-example', {epoch});\n\
                     update report_example set text = '{text}';\ncommit;\n"
                );
                psql(url, &script).map(drop)
            }
        }
    }

    fn read(&self) -> Result<String, Failed> {
        let query = "select text from report_example";
        match self {
            Database::Sqlite(file) => {
                Ok(rusqlite::Connection::open(file)?.query_row(query, (), |row| row.get(0))?)
            }
            Database::Postgres(url) => Ok(psql(url, query)?.trim().to_owned()),
        }
    }

    fn clean_up(&self) -> Result<(), Failed> {
        match self {
            Database::Sqlite(_) => Ok(()), // goes with its folder
            Database::Postgres(url) => psql(url, "drop table report_example").map(drop),
        }
    }
}

/// Runs a script, until the first error.
fn psql(url: &str, script: &str) -> Result<String, Failed> {
    let mut command = Command::new("psql");
    command.args(["-XqAt", "-v", "ON_ERROR_STOP=1", url]).stdin(Stdio::piped());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    // Written whole before anything is read; a script is short. Dropped, so that it ends there.
    child.stdin.take().ok_or("no input")?.write_all(script.as_bytes())?;
    let ended = child.wait_with_output()?;
    match ended.status.success() {
        true => Ok(String::from_utf8(ended.stdout)?),
        false => Err(String::from_utf8(ended.stderr)?.replace('\n', " ").trim().into()),
    }
}

/// A service that keeps a report, on a port of its own.
struct Service {
    url: String,
    client: Client<HttpConnector, String>,
    report: watch::Receiver<String>,
}

impl Service {
    async fn start(folder: &Path) -> Result<Service, Failed> {
        let (kept, report) = watch::channel(String::new());
        let write = move |text| {
            kept.send_replace(text);
            std::future::ready("written")
        };
        let epoch_file = folder.join("epoch");

        let saved = std::fs::read_to_string(&epoch_file).ok().and_then(|text| text.parse().ok());
        let fence = FenceLayer::starting_at(saved.unwrap_or(0));
        let fence = fence.on_new_epoch(move |epoch| std::fs::write(&epoch_file, epoch.to_string()));
        let app = Router::new().route("/report", put(write)).layer(fence);

        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}/report", listener.local_addr()?);
        tokio::spawn(async move { axum::serve(listener, app).await });
        Ok(Service { url, client: Client::builder(TokioExecutor::new()).build_http(), report })
    }

    async fn write(&self, guard: &LeaderGuard, text: &str) -> Result<(), Failed> {
        let request = Request::put(&self.url).header(EPOCH_HEADER, guard.epoch()).body(text.to_owned())?;
        let answer = self.client.request(request).await?;
        let status = answer.status();
        let body = axum::body::to_bytes(axum::body::Body::new(answer.into_body()), 10_000).await?;
        if status.is_success() {
            return Ok(());
        }
        let problem: serde_json::Value = serde_json::from_slice(&body)?;
        Err(format!("{}: {}", status.as_u16(), problem["detail"].as_str().unwrap_or_default()).into())
    }

    fn read(&self) -> String {
        self.report.borrow().clone()
    }
}
