//! `cargo xtask docs`: the documentation as a site with search, in `target/book`. `verify` checks its links.
//!
//! The pages lie in the repository as they are read there. For the site they are copied, together with what they link to outside
//! `docs/`, so that the same links work in both. Their examples are run by the tests, `cargo xtask test`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::workspace::{Workspace, fresh};
use tenure_rig::install::CargoTool;
use tenure_rig::process;

const MDBOOK: CargoTool = CargoTool { verb: "mdbook", package: "mdbook", version: "0.5.4" };
const LIMIT: Duration = Duration::from_secs(120);

/// Pages outside `docs/` that are part of the site, after its own.
const MORE: [(&str, &str); 5] = [
    ("Architecture", "ARCHITECTURE.md"),
    ("Contributing", "CONTRIBUTING.md"),
    ("Changelog", "CHANGELOG.md"),
    ("Benchmarks, all of them", "bench/README.md"),
    ("Transcripts", "crates/core/testdata/README.md"),
];

pub(crate) fn run(workspace: &Workspace) -> Result<bool> {
    let (source, site) = (workspace.target.join("book-source"), workspace.target.join("book"));
    fresh(&source)?;
    fresh(&site)?;
    stage(workspace, &source)?;
    let mut mdbook = MDBOOK.program(&workspace.cargo())?;
    let built = process::run(mdbook.arg("build").arg("--dest-dir").arg(&site).arg(&source), LIMIT)?;
    println!("{}", site.display());
    Ok(built)
}

/// Copies what git knows, of code only what a page links to, and writes the table of contents for it.
fn stage(workspace: &Workspace, source: &Path) -> Result<()> {
    let files = workspace.files()?;
    let mut linked = BTreeSet::new();
    for page in files.iter().filter(|path| path.extension().is_some_and(|extension| extension == "md")) {
        let text = fs::read_to_string(workspace.root.join(page))?;
        let folder = page.parent().unwrap_or(Path::new(""));
        let targets = text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
        linked.insert(page.clone());
        linked.extend(targets.map(|target| plain(&folder.join(target))));
    }
    for path in files {
        let code = ["crates", "xtask", "fuzz", "bench"].iter().any(|folder| path.starts_with(folder));
        if code && !linked.contains(&path) {
            continue;
        }
        let copy = source.join(&path);
        fs::create_dir_all(copy.parent().context("it lies in a folder")?)?;
        fs::copy(workspace.root.join(&path), &copy)
            .with_context(|| format!("cannot copy {}", path.display()))?;
    }
    fs::rename(source.join("docs/book.toml"), source.join("book.toml"))?;
    let contents = fs::read_to_string(source.join("docs/SUMMARY.md"))?;
    fs::write(source.join("SUMMARY.md"), summary(&contents))?;
    Ok(fs::remove_file(source.join("docs/SUMMARY.md"))?)
}

/// The contents of the site: those of `docs/`, seen from the root, between the front page and what lies outside.
fn summary(contents: &str) -> String {
    let mut lines = Vec::new();
    for line in contents.lines() {
        match line.split_once("](") {
            Some((title, path)) => match path.strip_prefix("../") {
                Some(path) => lines.push(format!("{title}]({path}")),
                None => lines.push(format!("{title}](docs/{path}")),
            },
            None => lines.push(line.to_owned()),
        }
        if line.starts_with("# Summary") {
            lines.push("\n[Tenure](README.md)".to_owned());
        }
    }
    lines.extend(MORE.iter().map(|(title, path)| format!("- [{title}]({path})")));
    lines.join("\n") + "\n"
}

/// Without `.` and `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                plain.pop();
            }
            Component::CurDir => {}
            Component::Prefix(_) | Component::RootDir | Component::Normal(_) => plain.push(part),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_contents_are_seen_from_the_root() {
        let made = summary(
            "# Summary\n\n[Map](README.md)\n\n# Guide\n\n- [Jobs](guide/jobs.md)\n- [JS](../clients/js.md)\n",
        );
        assert!(made.starts_with("# Summary\n\n[Tenure](README.md)\n\n[Map](docs/README.md)"), "{made}");
        assert!(
            made.contains(
                "- [Jobs](docs/guide/jobs.md)\n- [JS](clients/js.md)\n- [Architecture](ARCHITECTURE.md)"
            ),
            "{made}"
        );
    }
}
