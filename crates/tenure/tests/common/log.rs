//! What a test logged. One subscriber for the whole program, one buffer a thread: a test on a current-thread runtime has a
//! thread to itself. (A subscriber for each test would be simpler, but those that come and go switch each other's off.)
#![allow(dead_code, unreachable_pub, missing_docs)]

use std::cell::RefCell;
use std::io::Write;
use std::sync::Once;

thread_local! {
    static WRITTEN: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

struct ThisThread;

impl Write for ThisThread {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        WRITTEN.with_borrow_mut(|written| written.extend_from_slice(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// From now on everything is kept.
pub fn keep() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| tracing_subscriber::fmt().with_ansi(false).with_writer(|| ThisThread).init());
}

/// What this test logged.
pub fn text() -> String {
    WRITTEN.with_borrow(|written| String::from_utf8(written.clone()).expect("UTF-8"))
}

/// The lines that hold this.
pub fn lines(wanted: &str) -> Vec<String> {
    text().lines().filter(|line| line.contains(wanted)).map(str::to_owned).collect()
}
