//! How long the machine itself stood still: a thread that sleeps briefly, again and again, and notes when it wakes late.
//!
//! This never excuses a safety violation. It does excuse timing: a bound holds for a machine that runs, and a shared machine does
//! not always run.

use crate::clock::boot_ms;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

const NAP_MS: u64 = 5;
/// A wake-up this late is normal on a busy machine.
const USUAL_MS: u64 = 10;

/// One late wake-up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Stall {
    /// On the boot-time clock.
    pub until_ms: u64,
    pub stalled_ms: u64,
}

pub fn stalled_ms(stalls: &[Stall], from_ms: u64, until_ms: u64) -> u64 {
    let overlap = |stall: &Stall| {
        let begin = stall.until_ms.saturating_sub(stall.stalled_ms).max(from_ms);
        stall.until_ms.min(until_ms).saturating_sub(begin)
    };
    stalls.iter().map(overlap).sum()
}

#[derive(Debug)]
pub struct StallWatch {
    over: Arc<AtomicBool>,
    stalls: Arc<Mutex<Vec<Stall>>>,
    thread: Option<JoinHandle<()>>,
}

impl StallWatch {
    pub fn start() -> StallWatch {
        let (over, stalls): (Arc<AtomicBool>, Arc<Mutex<Vec<Stall>>>) = Default::default();
        let (end, noted) = (Arc::clone(&over), Arc::clone(&stalls));
        let thread = std::thread::spawn(move || {
            while !end.load(Ordering::Relaxed) {
                let before_ms = boot_ms();
                std::thread::sleep(Duration::from_millis(NAP_MS));
                let now_ms = boot_ms();
                let stalled_ms = (now_ms - before_ms).saturating_sub(NAP_MS);
                if stalled_ms > USUAL_MS {
                    let mut noted = noted.lock();
                    noted.push(Stall { until_ms: now_ms, stalled_ms });
                }
            }
        });
        StallWatch { over, stalls, thread: Some(thread) }
    }

    pub fn so_far(&self) -> Vec<Stall> {
        self.stalls.lock().clone()
    }

    pub fn finish(mut self) -> Vec<Stall> {
        self.end();
        std::mem::take(&mut *self.stalls.lock())
    }

    fn end(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for StallWatch {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_part_inside_counts() {
        let stalls =
            [Stall { until_ms: 1_000, stalled_ms: 300 }, Stall { until_ms: 5_000, stalled_ms: 1_000 }];
        assert_eq!(stalled_ms(&stalls, 0, 10_000), 1_300);
        assert_eq!(stalled_ms(&stalls, 900, 4_200), 300);
        assert_eq!(stalled_ms(&stalls, 1_000, 4_000), 0);
    }
}
