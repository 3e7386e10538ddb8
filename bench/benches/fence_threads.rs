//! How many checks several threads complete together on one fence, and on one mutex for comparison.
#![allow(clippy::print_stdout, reason = "a benchmark prints its figures")]

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use tenure::clock::BootClock;
use tenure::fence::FenceRule;
use tenure::{Fence, Verdict};

const ROUNDS: usize = 7;
const ROUND: Duration = Duration::from_millis(300);
const BATCH: u64 = 1024;

fn main() {
    let fence = Fence::new(FenceRule::default(), Arc::new(BootClock));
    fence.observe(7);
    let mutex = Mutex::new(7u64);
    let cores = thread::available_parallelism().map_or(0, usize::from);
    println!("{cores} cores; the best of {ROUNDS} rounds of {} ms\n", ROUND.as_millis());
    println!("                     threads   ns per check and thread   all threads, compared with one");
    report("Fence::check", || assert_eq!(black_box(&fence).check(black_box(7)), Verdict::Accept));
    report("a mutex instead", || assert!(black_box(&mutex).lock().is_ok_and(|known| *known == black_box(7))));
}

fn report(name: &str, check: impl Fn() + Sync) {
    let mut alone = 0.0;
    for threads in [1, 2, 4] {
        let per_second = (0..ROUNDS).map(|_| throughput(threads, &check)).fold(0.0, f64::max);
        if threads == 1 {
            alone = per_second;
        }
        let ns = 1e9 * threads as f64 / per_second;
        println!("{name:<20} {threads:>7}   {ns:>23.2}   {:>30.2}", per_second / alone);
    }
}

/// Checks per second, all threads together.
fn throughput(threads: usize, check: &(impl Fn() + Sync)) -> f64 {
    let (over, start) = (AtomicBool::new(false), Barrier::new(threads + 1));
    thread::scope(|scope| {
        let work = || {
            start.wait();
            let mut done = 0u64;
            while !over.load(Ordering::Relaxed) {
                (0..BATCH).for_each(|_| check());
                done += BATCH;
            }
            done
        };
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        start.wait();
        let began = Instant::now();
        thread::sleep(ROUND);
        over.store(true, Ordering::Relaxed);
        let spent = began.elapsed().as_secs_f64();
        let done: u64 = workers.into_iter().map(|worker| worker.join().unwrap_or(0)).sum();
        done as f64 / spent
    })
}
