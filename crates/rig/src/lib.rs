//! What checks the product from outside stands on: child processes that leave nothing behind, real S3 engines, and programs that
//! are installed once per machine. It knows nothing of the product but the name of its program.

#![allow(missing_docs, reason = "an internal crate: comment what names and types do not say")]
#![allow(clippy::print_stdout, reason = "a developer's tools talk on the terminal")]

pub mod cache;
pub mod engine;
pub mod install;
pub mod interrupt;
pub mod proc;
pub mod process;

use std::path::{Path, PathBuf};

/// The shipped program, as `cargo build` left it beside the program that asks.
pub fn tenure() -> anyhow::Result<PathBuf> {
    let me = std::env::current_exe()?;
    // Test programs lie in a folder of their own, examples and tools beside it.
    let folders = me.ancestors().skip(1).take(2);
    let found = folders.map(|folder| folder.join("tenure")).find(|program| program.is_file());
    found.ok_or_else(|| anyhow::anyhow!("`tenure` is not there: make it with `cargo build`"))
}

/// The folder that cargo built the program that asks into: cargo keeps a file of its own there.
pub fn target() -> anyhow::Result<PathBuf> {
    let me = std::env::current_exe()?;
    let found =
        me.ancestors().find(|folder| folder.join(".rustc_info.json").is_file()).map(Path::to_path_buf);
    found.ok_or_else(|| anyhow::anyhow!("{} is in no folder of cargo's", me.display()))
}
