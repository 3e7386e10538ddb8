//! Ctrl-C and SIGTERM: waiting loops notice them, so that every guard runs; a second signal ends the program at once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use anyhow::{Context, Result, bail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

static FLAG: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Installs the handlers. Call it once, before starting anything that needs a guard.
pub fn install() -> Result<()> {
    let pending = FLAG.get_or_init(Arc::default);
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        // Order matters: the shutdown looks at the flag before the next line sets it, so it acts on the second signal.
        flag::register_conditional_shutdown(signal, 130, Arc::clone(pending)).context("signal handler")?;
        flag::register(signal, Arc::clone(pending)).context("signal handler")?;
    }
    Ok(())
}

/// Whether a signal asked us to stop.
pub fn pending() -> bool {
    FLAG.get().is_some_and(|flag| flag.load(Ordering::SeqCst))
}

/// An error once a signal asked us to stop; for loops that wait.
pub fn check() -> Result<()> {
    if pending() {
        bail!("interrupted");
    }
    Ok(())
}
