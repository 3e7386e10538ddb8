//! JavaScript that checks need, in the target directory. Nothing of it becomes part of the product.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::process;
use crate::workspace::Workspace;

/// Finds what keeps people from using a page with a keyboard or a screen reader.
const AXE: &str = "axe-core@4.14.0";
const INSTALL_LIMIT: Duration = Duration::from_secs(120);

/// Where the script of axe-core is, installed if necessary; `None` if it is missing and cannot be installed.
pub(crate) fn axe(workspace: &Workspace) -> Result<Option<PathBuf>> {
    let home = workspace.tools().join("npm");
    let (script, list) = (home.join("node_modules/axe-core/axe.min.js"), home.join("installed"));
    if script.is_file() && std::fs::read_to_string(&list).is_ok_and(|installed| installed == AXE) {
        return Ok(Some(script));
    }
    println!("npm: installing {AXE}");
    std::fs::create_dir_all(&home).with_context(|| format!("cannot make {}", home.display()))?;
    let mut install = Command::new("npm");
    install.args(["install", "--silent", "--no-audit", "--no-fund", "--no-save", "--ignore-scripts"]);
    install.arg("--prefix").arg(&home).arg(AXE);
    if !process::run(&mut install, INSTALL_LIMIT).unwrap_or(false) || !script.is_file() {
        crate::interrupt::check()?;
        println!("npm: NOT INSTALLED. npm is needed, and {AXE}");
        return Ok(None);
    }
    // Written last, so that an interrupted installation starts over.
    std::fs::write(&list, AXE).with_context(|| format!("cannot write {}", list.display()))?;
    Ok(Some(script))
}
