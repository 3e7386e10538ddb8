//! What the screen shows, and the screen itself.

use super::news::{News, Sight};
use crate::out::{line, lines};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use tenure::Settings;
use tokio::sync::oneshot;

/// Workers shown at most: the rest is counted.
const WORKERS_MAX: usize = 15;

/// One picture. Never more than `rows` lines: the news are cut first.
pub(crate) fn text(
    settings: &Settings,
    sight: &Result<Sight, String>,
    told: &VecDeque<(String, News)>,
    rows: usize,
) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(text, "namespace {} on {}", settings.namespace, settings.store);
    match sight {
        Ok(sight) => show(&mut text, sight),
        Err(trouble) => {
            let _ = writeln!(text, "\n{}", line(trouble));
        }
    }
    if !told.is_empty() {
        text.push_str("\nSINCE THEN\n");
        for (at, news) in told {
            let _ = writeln!(text, "  {at}  {}", line(&news.to_string()));
        }
    }
    let lines: Vec<&str> = text.trim_end().lines().take(rows).collect();
    lines.join("\n")
}

fn show(text: &mut String, sight: &Sight) {
    let Some(status) = &sight.status else {
        text.push_str("leader    none: the store does not exist yet\n");
        return;
    };
    let _ = match &status.leader {
        Some(leader) => {
            let life = if leader.live { "live" } else { "SILENT" };
            writeln!(text, "leader    {} ({life}, {} renewals)", leader.node, leader.renewals)
        }
        None => writeln!(text, "leader    none"),
    };
    let _ = writeln!(text, "epoch     {}", status.epoch);
    let _ = writeln!(text, "\nNODES {}", status.nodes.len());
    for node in &status.nodes {
        let _ = writeln!(
            text,
            "  {:<24} {:<8} {:>7.1} s ago",
            node.node,
            node.role,
            node.last_seen_ms_ago as f64 / 1000.0
        );
    }
    if sight.workers.is_empty() {
        return;
    }
    let _ = writeln!(text, "\nWORKERS {}", sight.workers.len());
    for worker in sight.workers.iter().take(WORKERS_MAX) {
        let pod = worker.pod.as_deref().unwrap_or("-");
        let ago = worker.last_seen_ms_ago as f64 / 1000.0;
        let _ = writeln!(
            text,
            "  {:<24} {:<8} {:>7.1} s ago  {pod}",
            worker.worker_id,
            worker.state.as_str(),
            ago
        );
    }
    if sight.workers.len() > WORKERS_MAX {
        let _ = writeln!(text, "  and {} more: `tenure workers`", sight.workers.len() - WORKERS_MAX);
    }
}

/// The terminal's second screen, without a cursor. The first comes back when this is dropped.
pub(crate) struct Screen {
    /// How the terminal took what is typed before.
    typed: Option<Termios>,
}

impl Screen {
    pub(crate) fn open() -> Screen {
        put("\x1b[?1049h\x1b[?25l");
        let typed = tcgetattr(std::io::stdin()).ok();
        if let Some(mut keys) = typed.clone() {
            // Key by key, and not shown; Ctrl-C is a signal all the same.
            keys.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
            let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &keys);
        }
        Screen { typed }
    }

    /// Ends when somebody types `q`. If nothing can be typed, never.
    pub(crate) fn quit() -> oneshot::Receiver<()> {
        let (quit, quits) = oneshot::channel();
        // A thread of its own: a read of the terminal cannot be called off, and ends with the process.
        std::thread::spawn(move || {
            let typed = std::io::stdin().lock().bytes();
            match typed.map_while(Result::ok).any(|key| key == b'q' || key == b'Q') {
                true => drop(quit.send(())),
                false => std::mem::forget(quit),
            }
        });
        quits
    }

    pub(crate) fn rows() -> usize {
        match rustix::termios::tcgetwinsize(std::io::stdout()) {
            Ok(size) if size.ws_row > 0 => usize::from(size.ws_row),
            // A terminal that does not say has what terminals used to have.
            Ok(_) | Err(_) => 24,
        }
    }

    /// Draws over what was there, without a flicker; false if nobody looks any more.
    pub(crate) fn show(&mut self, text: &str) -> bool {
        put(&format!("\x1b[H{}\x1b[K\x1b[J", lines(text).replace('\n', "\x1b[K\r\n")))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if let Some(typed) = &self.typed {
            let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, typed);
        }
        put("\x1b[?25h\x1b[?1049l");
    }
}

fn put(text: &str) -> bool {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_ok()
}

#[cfg(test)]
mod tests {
    use super::super::news::{between, tests::sight};
    use super::*;

    fn settings() -> Settings {
        Settings::loader().flag("store", "memory:").flag("node", "a").load().expect("valid").settings
    }

    #[test]
    fn a_picture_has_leader_nodes_and_news_and_fits_its_rows() {
        let (old, new) =
            (sight(1, None, &[]), sight(2, Some(("b", true)), &[("a", "standby"), ("b", "leader")]));
        let told = between(&old, &new).into_iter().map(|news| ("12:00:00".to_owned(), news)).collect();
        let picture = text(&settings(), &Ok(new.clone()), &told, usize::MAX);
        for words in
            ["leader    b (live, 7 renewals)", "epoch     2", "NODES 2", "12:00:00  leader_changed  b"]
        {
            assert!(picture.contains(words), "{words:?} is not in\n{picture}");
        }
        assert_eq!(text(&settings(), &Ok(new), &told, 5).lines().count(), 5);
        assert!(text(&settings(), &Err("it is away".to_owned()), &told, 99).contains("it is away"));
    }
}
