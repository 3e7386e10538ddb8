//! The data directory: the default store and the token of HTTP are in it, so it is for this user alone.

use std::fs::{DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Once;
use tenure::settings::{Resolved, Source};

/// It is made for the store and for the token, and complained of once.
static SAID: Once = Once::new();

/// Makes it if it is not there. One that others could look into is closed to them if nobody named it, and else complained of.
pub(crate) fn make(resolved: &Resolved) -> io::Result<()> {
    let folder = resolved.settings.data_dir.as_path();
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let usual = matches!(resolved.source("dataDir"), Some(Source::Default));
    // Without a home it is the working directory, which is not ours to close.
    if folder == Path::new(".") {
        return Ok(());
    }
    let found = std::fs::metadata(folder)?;
    let mode = found.mode() & 0o7777;
    match mode & 0o077 {
        0 => {}
        _ if usual && found.uid() == rustix::process::geteuid().as_raw() => {
            std::fs::set_permissions(folder, Permissions::from_mode(0o700))?;
        }
        _ => SAID.call_once(|| {
            let folder = folder.display();
            tracing::warn!("{folder} has mode {mode:04o}: other users can read it; run chmod 700 {folder}");
        }),
    }
    Ok(())
}
