//! `cargo xtask fix`: everything a machine can repair.

use std::time::Duration;

use anyhow::Result;

use crate::verify::text;
use crate::workspace::Workspace;
use tenure_rig::process;

const LIMIT: Duration = Duration::from_secs(900);

pub(crate) fn run(workspace: &Workspace) -> Result<bool> {
    strip_trailing_whitespace(workspace)?;
    let clippy = ["clippy", "--fix", "--allow-dirty", "--allow-staged", "--workspace", "--all-targets"];
    let mended = process::run(workspace.cargo().args(clippy), LIMIT)?;
    let formatted = process::run(workspace.cargo().args(["fmt", "--all"]), LIMIT)?;
    Ok(mended && formatted)
}

fn strip_trailing_whitespace(workspace: &Workspace) -> Result<()> {
    for path in workspace.files()?.iter().filter(|path| text::is_prose_or_rust(path)) {
        let Some(old) = workspace.text(path) else { continue };
        let new: String = old.split_inclusive('\n').map(text::without_trailing_whitespace).collect();
        if new != old {
            std::fs::write(workspace.root.join(path), new)?;
            println!("{}: trailing whitespace removed", path.display());
        }
    }
    Ok(())
}
