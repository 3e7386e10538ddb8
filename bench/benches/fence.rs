//! What a verdict costs on one thread.

use divan::{Bencher, black_box};
use std::sync::{Arc, Mutex};
use tenure::clock::BootClock;
use tenure::fence::FenceRule;
use tenure::{Fence, TaskStamp, Verdict};

fn main() {
    divan::main();
}

fn fence() -> Fence {
    let fence = Fence::new(FenceRule::default(), Arc::new(BootClock));
    fence.observe(7);
    fence
}

/// The usual case: the task comes from the known leader.
#[divan::bench]
fn check_current(bencher: Bencher<'_, '_>) {
    let fence = fence();
    bencher.bench_local(|| black_box(&fence).check(black_box(7)));
}

/// The slow path: a task from a former leader. Reads the clock, counts, and writes to the log, which nobody reads here.
#[divan::bench]
fn check_stale(bencher: Bencher<'_, '_>) {
    let fence = fence();
    assert_eq!(fence.check(6), Verdict::RejectStale, "what is measured is a rejection");
    bencher.bench_local(|| black_box(&fence).check(black_box(6)));
}

/// Switched off, for any epoch.
#[divan::bench]
fn check_disabled(bencher: Bencher<'_, '_>) {
    let fence = Fence::new(FenceRule { enabled: false, grace_ms: 0 }, Arc::new(BootClock));
    bencher.bench_local(|| black_box(&fence).check(black_box(6)));
}

/// A whole stamp. Its age is read only if it does not come from the known leader.
#[divan::bench]
fn check_task_current(bencher: Bencher<'_, '_>) {
    let fence = fence();
    let stamp = TaskStamp { id: "task".to_owned(), epoch: 7, dispatched_at: 0, deadline: None };
    bencher.bench_local(|| black_box(&fence).check_task(black_box(&stamp)));
}

/// A stamp from a former leader: reads the wall clock for its age.
#[divan::bench]
fn check_task_stale(bencher: Bencher<'_, '_>) {
    let fence = fence();
    let stamp = TaskStamp { id: "task".to_owned(), epoch: 6, dispatched_at: 0, deadline: None };
    bencher.bench_local(|| black_box(&fence).check_task(black_box(&stamp)));
}

/// What the same question would cost behind an uncontended lock.
#[divan::bench]
fn behind_a_mutex(bencher: Bencher<'_, '_>) {
    let known = Mutex::new(7u64);
    bencher.bench_local(|| black_box(&known).lock().is_ok_and(|known| *known == black_box(7)));
}
