//! `tenure watch`: a namespace as it goes on, from the store alone. Nothing is written.
//!
//! What is shown as having happened is what two looks in a row differ in: what came and went between them is not seen. Nodes
//! tell their own events with `tenure run --events`.

mod frame;
mod news;

use crate::args::WatchArgs;
use crate::exit::Failure;
use crate::out::{say_json, say_lines};
use crate::run::Signals;
use crate::status::existing;
use frame::Screen;
use news::{News, Sight};
use std::collections::VecDeque;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;
use tenure::admin::Status;
use tenure::worker::WorkerList;
use tenure::{Namespace, Settings};

/// News shown at most.
const NEWS_MAX: usize = 200;

pub(crate) async fn watch(args: WatchArgs) -> Result<ExitCode, Failure> {
    let settings = args.settings.load()?.settings;
    let namespace = Namespace::new(&settings.namespace).map_err(Failure::usage)?;
    if args.json {
        return lines(&args, &settings, &namespace).await;
    }
    if args.once || !std::io::stdout().is_terminal() {
        let sight = look(&settings, &namespace).await?;
        say_lines(&frame::text(&settings, &Ok(sight), &VecDeque::new(), usize::MAX));
        return Ok(ExitCode::SUCCESS);
    }
    live(&args, &settings, &namespace).await
}

/// One look. A store that does not exist yet is an empty one.
async fn look(settings: &Settings, namespace: &Namespace) -> Result<Sight, Failure> {
    let Some(lanes) = existing(settings).await? else { return Ok(Sight::default()) };
    let status = Status::read(&lanes, namespace).await?;
    let workers = WorkerList::read(&lanes, namespace).await?;
    Ok(Sight { status: Some(status), workers: workers.workers })
}

/// One JSON object a line: first what there is, then what changes.
async fn lines(args: &WatchArgs, settings: &Settings, namespace: &Namespace) -> Result<ExitCode, Failure> {
    let mut signals = Signals::new()?;
    let mut before: Option<Sight> = None;
    loop {
        match look(settings, namespace).await {
            Ok(sight) => {
                match &before {
                    Some(before) => {
                        let news = news::between(before, &sight);
                        news.iter().for_each(|news| say_json(&news.json().to_string()));
                    }
                    None => say_json(&sight.json(settings).to_string()),
                }
                before = Some(sight);
            }
            // The first look says whether there is anything to be had at all; later ones may fail and be mended.
            Err(failure) if before.is_none() || args.once => return Err(failure),
            Err(failure) => say_json(&News::trouble(&failure.to_string()).json().to_string()),
        }
        if args.once || crate::out::closed() {
            return Ok(ExitCode::SUCCESS);
        }
        tokio::select! {
            _ = signals.next() => return Ok(ExitCode::SUCCESS),
            () = tokio::time::sleep(Duration::from_millis(args.interval)) => {}
        }
    }
}

async fn live(args: &WatchArgs, settings: &Settings, namespace: &Namespace) -> Result<ExitCode, Failure> {
    let mut signals = Signals::new()?;
    // Restores the terminal however this ends.
    let mut screen = Screen::open();
    let mut quit = Screen::quit();
    let mut before: Option<Sight> = None;
    let mut told = VecDeque::new();
    loop {
        let sight = tokio::select! {
            biased;
            _ = signals.next() => return Ok(ExitCode::SUCCESS),
            Ok(()) = &mut quit => return Ok(ExitCode::SUCCESS),
            sight = look(settings, namespace) => sight.map_err(|failure| failure.to_string()),
        };
        if let (Some(before), Ok(sight)) = (&before, &sight) {
            for news in news::between(before, sight) {
                told.push_front((jiff::Zoned::now().strftime("%H:%M:%S").to_string(), news));
            }
            told.truncate(NEWS_MAX);
        }
        if !screen.show(&frame::text(settings, &sight, &told, Screen::rows())) {
            return Ok(ExitCode::SUCCESS); // Nobody looks any more.
        }
        before = sight.ok().or(before);
        tokio::select! {
            _ = signals.next() => return Ok(ExitCode::SUCCESS),
            Ok(()) = &mut quit => return Ok(ExitCode::SUCCESS),
            () = tokio::time::sleep(Duration::from_millis(args.interval)) => {}
        }
    }
}
