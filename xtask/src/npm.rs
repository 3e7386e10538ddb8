//! JavaScript that checks need, in the target directory. Nothing of it becomes part of the product.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::process;
use crate::workspace::Workspace;

/// axe-core finds what keeps people from using a page with a keyboard or a screen reader; node-cron is what the client for JavaScript
/// coordinates.
const PACKAGES: [&str; 2] = ["axe-core@4.14.0", "node-cron@4.6.0"];
const INSTALL_LIMIT: Duration = Duration::from_secs(120);

/// The folder with the packages, installed if necessary; `None` if they are missing and cannot be installed.
pub(crate) fn modules(workspace: &Workspace) -> Result<Option<PathBuf>> {
    let home = workspace.tools().join("npm");
    let (modules, list) = (home.join("node_modules"), home.join("installed"));
    let wanted = PACKAGES.join(" ");
    if std::fs::read_to_string(&list).is_ok_and(|installed| installed == wanted) {
        return Ok(Some(modules));
    }
    println!("npm: installing {wanted}");
    std::fs::create_dir_all(&home).with_context(|| format!("cannot make {}", home.display()))?;
    let mut install = Command::new("npm");
    install.args(["install", "--silent", "--no-audit", "--no-fund", "--no-save", "--ignore-scripts"]);
    install.arg("--prefix").arg(&home).args(PACKAGES);
    if !process::run(&mut install, INSTALL_LIMIT).unwrap_or(false) {
        crate::interrupt::check()?;
        println!("npm: NOT INSTALLED. npm is needed, and {wanted}");
        return Ok(None);
    }
    // Written last, so that an interrupted installation starts over.
    std::fs::write(&list, wanted).with_context(|| format!("cannot write {}", list.display()))?;
    Ok(Some(modules))
}
