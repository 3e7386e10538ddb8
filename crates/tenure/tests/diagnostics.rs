//! Diagnostics: with `diagnosticsEnabled`, one readable line per heartbeat cycle; without it, none.

use crate::common::{Rig, sleep_ms};
use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tracing_subscriber::fmt::MakeWriter;

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn lines(&self, node: &str) -> Vec<String> {
        let bytes = self.0.lock().expect("unpoisoned").clone();
        let text = String::from_utf8(bytes).expect("UTF-8");
        let of_node =
            |line: &&str| line.contains("diagnostics") && line.contains(&format!("node=\"{node}\""));
        text.lines().filter(of_node).map(str::to_owned).collect()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("unpoisoned").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Log;

    fn make_writer(&'a self) -> Log {
        self.clone()
    }
}

#[tokio::test(start_paused = true)]
async fn one_line_per_cycle_says_what_was_observed_decided_and_sent() {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(log.clone()).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let rig = Rig::new();
    let loud = |settings: tenure::settings::SettingsBuilder| {
        settings.startup_jitter_max(Duration::ZERO).diagnostics_enabled(true)
    };
    let mut a = rig.join_with("pod-a", 0, loud).await;
    a.became_leader().await;
    let b = rig.join_with("pod-b", 0, loud).await;
    let quiet = rig.join("pod-c").await;
    sleep_ms(12_200).await;
    let (leader, standby) = (log.lines("pod-a"), log.lines("pod-b"));
    sleep_ms(12_000).await;
    assert_eq!(log.lines("pod-a").len() - leader.len(), 8, "one line per heartbeat");
    assert_eq!(log.lines("pod-b").len() - standby.len(), 12, "one line per look");
    assert!(log.lines("pod-c").is_empty(), "quiet unless asked");
    let renewal = leader.last().expect("a line");
    for words in ["leader, epoch 1", "observed seat write won", "decided lease renewed", "sent renewal"] {
        assert!(renewal.contains(words), "{words:?} is not in {renewal}");
    }
    let look = standby.last().expect("a line");
    for words in
        ["standby, epoch 1", "seat held by pod-a (epoch 1, renewal", "election check", "read of the seat"]
    {
        assert!(look.contains(words), "{words:?} is not in {look}");
    }
    let first = &leader[0];
    assert!(first.contains("sent") && first.contains("claim of epoch 1"), "{first}");
    assert!(!log.lines("pod-a").iter().any(|line| line.contains("RequestId")), "words, not structures");
    drop((b, quiet));
}
