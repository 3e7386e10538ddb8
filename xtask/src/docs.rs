//! `cargo xtask docs`: the documentation as a site with search, in `target/book`; every link in it must lead somewhere.
//!
//! The pages lie in the repository as they are read there. For the site they are copied, together with what they link to outside
//! `docs/`, so that the same links work in both. Their examples are run by the tests, `cargo xtask test`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::process;
use crate::tool::Tool;
use crate::workspace::Workspace;

const MDBOOK: Tool = Tool { verb: None, package: "mdbook", version: "0.5.4" };
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
    for folder in [&source, &site] {
        if folder.is_dir() {
            fs::remove_dir_all(folder)?;
        }
    }
    stage(workspace, &source)?;
    let mut mdbook = Command::new("mdbook");
    Tool::reachable(workspace, &mut mdbook)?;
    MDBOOK.prepare(workspace, &mut process::copy_of(&mdbook))?;
    ensure!(
        process::run(mdbook.arg("build").arg("--dest-dir").arg(&site).arg(&source), LIMIT)?,
        "mdbook failed"
    );
    let pages = pages(&site)?;
    let dead = dead_links(&pages, &site);
    dead.iter().for_each(|line| println!("{line}"));
    println!("{} pages in {}, {} dead links", pages.len(), site.display(), dead.len());
    Ok(dead.is_empty())
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

/// The text of each page, by its path.
fn pages(site: &Path) -> Result<BTreeMap<PathBuf, String>> {
    let (mut pages, mut folders) = (BTreeMap::new(), vec![site.to_path_buf()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "html")
                // One is made of all pages, the other is about no place in particular.
                && !["print.html", "404.html", "toc.html"].iter().any(|name| path.ends_with(name))
            {
                let text = fs::read_to_string(&path)?;
                pages.insert(path, text);
            }
        }
    }
    Ok(pages)
}

/// Links that lead to no file, or to no place in it.
fn dead_links(pages: &BTreeMap<PathBuf, String>, site: &Path) -> BTreeSet<String> {
    let mut dead = BTreeSet::new();
    for (page, text) in pages {
        for link in links(text).filter(|link| !link.contains(':') && !link.is_empty()) {
            let (path, place) =
                link.split_once('#').map_or((link, None), |(path, place)| (path, Some(place)));
            let folder = page.parent().unwrap_or(site);
            let target = if path.is_empty() { page.clone() } else { plain(&folder.join(path)) };
            let target = if target.is_dir() { target.join("index.html") } else { target };
            let there = match (pages.get(&target), place) {
                (Some(text), Some(place)) => text.contains(&format!("id=\"{place}\"")),
                (Some(_), None) => true,
                (None, _) => target.is_file(),
            };
            if !there {
                let page = page.strip_prefix(site).unwrap_or(page);
                dead.insert(format!("{}: {link} leads nowhere", page.display()));
            }
        }
    }
    dead
}

fn links(text: &str) -> impl Iterator<Item = &str> {
    let after = |mark: &'static str| text.split(mark).skip(1).filter_map(|rest| rest.split('"').next());
    after("href=\"").chain(after("src=\""))
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

    #[test]
    fn links_that_lead_nowhere_are_found() {
        let folder = tempfile::tempdir().expect("a folder");
        let site = folder.path();
        fs::write(site.join("picture.svg"), "").expect("written");
        let page = |name: &str, text: &str| (site.join(name), text.to_owned());
        let pages = BTreeMap::from([
            page(
                "a.html",
                r##"<a href="sub/b.html#here"><a href="https://else.example/x"><img src="picture.svg"><a href="#top" id="top">"##,
            ),
            page(
                "sub/b.html",
                r##"<h1 id="here"><a href="../a.html#nothing"><a href="../c.html"><a href="#gone">"##,
            ),
        ]);
        let dead: Vec<String> = dead_links(&pages, site).into_iter().collect();
        assert_eq!(dead.len(), 3, "{dead:?}");
        assert!(dead.iter().all(|line| line.starts_with("sub/b.html: ")), "{dead:?}");
    }
}
