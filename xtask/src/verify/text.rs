//! Rules about the text of files: length, whitespace, unfinished code, links, and names that do not belong here.

use std::path::{Component, Path};

use anyhow::Result;

use super::Violation;
use crate::workspace::Workspace;

const MAX_LINES: usize = 500;
/// A file may be longer if one of its first lines says why.
const LONG_MARK: &str = "// long: ";
const LONG_MARK_WITHIN: usize = 10;

/// Written in halves, so that this file does not break its own rule.
const UNFINISHED: [&str; 3] = [concat!("todo", "!"), concat!("dbg", "!"), concat!("unimplemented", "!")];

/// Package registries: where a build gets its packages is up to the machine, and a page that says so goes stale.
const REGISTRIES: [&str; 9] = [
    concat!("crates", ".io"),
    concat!("pypi", ".org"),
    concat!("python", "hosted.org"),
    concat!("npm", "js.org"),
    concat!("npm", "js.com"),
    concat!("proxy.golang", ".org"),
    concat!("ruby", "gems.org"),
    concat!("deb.debian", ".org"),
    concat!("docker", ".io"),
];

/// Directories of a particular machine.
const MACHINE_PATHS: [&str; 2] = [concat!("/wo", "rk/"), concat!("/ro", "ot/")];

pub(super) fn check(workspace: &Workspace) -> Result<Vec<Violation>> {
    let mut found = Vec::new();
    for path in workspace.files()? {
        let Some(text) = workspace.text(&path) else { continue };
        found.extend(too_long(&path, &text));
        found.extend(unfinished(&path, &text));
        found.extend(whitespace(&path, &text));
        found.extend(foreign_names(&path, &text));
        found.extend(dead_links(
            &path,
            &text,
            |target| workspace.root.join(target).exists(),
            |target| workspace.text(target),
        ));
    }
    Ok(found)
}

fn has_extension(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|found| found == extension)
}

fn has_component(path: &Path, name: &str) -> bool {
    path.components().any(|component| component.as_os_str() == name)
}

/// Rust and Markdown: the files whose whitespace we control.
pub(crate) fn is_prose_or_rust(path: &Path) -> bool {
    has_extension(path, "rs") || has_extension(path, "md")
}

/// A line without trailing blanks; the line ending stays.
pub(crate) fn without_trailing_whitespace(line: &str) -> String {
    let body = line.trim_end();
    if line.ends_with('\n') { format!("{body}\n") } else { body.to_owned() }
}

fn too_long(path: &Path, text: &str) -> Option<Violation> {
    // Tests next to the code do not count.
    let lines = text.lines().take_while(|line| *line != "#[cfg(test)]").count();
    let is_test = has_component(path, "tests") || path.ends_with("tests.rs");
    if !has_extension(path, "rs") || is_test || lines <= MAX_LINES {
        return None;
    }
    let excused = text
        .lines()
        .take(LONG_MARK_WITHIN)
        .any(|line| line.trim().strip_prefix(LONG_MARK).is_some_and(|reason| !reason.trim().is_empty()));
    let message = format!(
        "{lines} lines, {MAX_LINES} are allowed; split it, or say why not: `{LONG_MARK}reason` in the first \
         {LONG_MARK_WITHIN} lines"
    );
    (!excused).then(|| Violation::new(path, lines, "long-file", message))
}

fn unfinished(path: &Path, text: &str) -> Vec<Violation> {
    if !has_extension(path, "rs") || !has_component(path, "src") {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//")) {
        for name in UNFINISHED.iter().filter(|name| stands_alone(line, name)) {
            found.push(Violation::new(path, index + 1, "unfinished", format!("`{name}` in src")));
        }
    }
    found
}

/// Whether `name` occurs and is not the tail of a longer word or path.
fn stands_alone(line: &str, name: &str) -> bool {
    line.match_indices(name).any(|(at, _)| {
        !line[..at]
            .ends_with(|before: char| before.is_alphanumeric() || matches!(before, '_' | '-' | '.' | '/'))
    })
}

fn whitespace(path: &Path, text: &str) -> Vec<Violation> {
    if !is_prose_or_rust(path) {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (index, line) in text.split('\n').enumerate() {
        if line.ends_with(char::is_whitespace) {
            found.push(Violation::new(path, index + 1, "trailing-whitespace", "run `cargo xtask fix`"));
        }
        if line.contains('\t') {
            found.push(Violation::new(path, index + 1, "tab", "spaces only"));
        }
    }
    found
}

fn foreign_names(path: &Path, text: &str) -> Vec<Violation> {
    let is_lock_file = path.file_name().is_some_and(|name| name == "Cargo.lock");
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        for host in REGISTRIES.iter().filter(|host| !is_lock_file && line.contains(**host)) {
            found.push(Violation::new(
                path,
                index + 1,
                "registry",
                format!("names the package registry {host}"),
            ));
        }
        for directory in MACHINE_PATHS.iter().filter(|directory| stands_alone(line, directory)) {
            found.push(Violation::new(
                path,
                index + 1,
                "machine-path",
                format!("names {directory} of some machine"),
            ));
        }
    }
    found
}

fn dead_links(
    path: &Path,
    text: &str,
    exists: impl Fn(&Path) -> bool,
    read: impl Fn(&Path) -> Option<String>,
) -> Vec<Violation> {
    if !has_extension(path, "md") {
        return Vec::new();
    }
    let base = path.parent().unwrap_or(Path::new(""));
    let mut found = Vec::new();
    let mut fenced = false;
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        if fenced {
            continue;
        }
        for target in link_targets(&without_code(line)) {
            let (file, place) = target.split_once('#').map_or((&*target, ""), |(file, place)| (file, place));
            if file.contains(':') {
                continue;
            }
            let wanted = match file.strip_prefix('/') {
                Some(from_root) => from_root.into(),
                None if file.is_empty() => path.to_path_buf(),
                None => base.join(file),
            };
            let page = || if file.is_empty() { Some(text.to_owned()) } else { read(&wanted) };
            let is_place = || page().is_none_or(|page| has_place(&page, place));
            if leaves_the_root(&wanted)
                || !file.is_empty() && !exists(&wanted)
                || !place.is_empty() && has_extension(&wanted, "md") && !is_place()
            {
                found.push(Violation::new(path, index + 1, "dead-link", format!("{target} does not exist")));
            }
        }
    }
    found
}

/// Whether a page has a heading that is linked to like this: its words in lower case, joined by hyphens.
fn has_place(page: &str, place: &str) -> bool {
    let slug = |heading: &str| -> String {
        let words = heading.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
        words.chars().filter(|letter| letter.is_alphanumeric() || matches!(letter, '-' | '_')).collect()
    };
    page.lines().any(|line| line.starts_with('#') && slug(line) == place)
        || page.contains(&format!("id=\"{place}\""))
}

/// Whether a relative path climbs above where it starts.
fn leaves_the_root(path: &Path) -> bool {
    let mut depth = 0_i32;
    path.components().any(|component| {
        match component {
            Component::ParentDir => depth -= 1,
            Component::Normal(_) => depth += 1,
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
        depth < 0
    })
}

/// The line without the parts in backticks.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join("`")
}

/// Targets of `[text](target "title")` and of `[name]: target`.
fn link_targets(line: &str) -> Vec<String> {
    let inline = line.match_indices("](").filter_map(|(at, found)| {
        let rest = &line[at + found.len()..];
        rest.split_once(')').map(|(target, _)| target)
    });
    let definition =
        line.trim_start().strip_prefix('[').and_then(|rest| rest.split_once("]: ")).map(|(_, target)| target);
    let bare = |target: &str| {
        target.split_whitespace().next().unwrap_or_default().trim_matches(['<', '>']).to_owned()
    };
    inline.chain(definition).map(bare).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(found: impl IntoIterator<Item = Violation>) -> Vec<String> {
        found.into_iter().map(|violation| format!("{}:{}", violation.line, violation.rule)).collect()
    }

    #[test]
    fn a_long_file_needs_a_reason() {
        let long = "x\n".repeat(MAX_LINES + 1);
        assert_eq!(shown(too_long(Path::new("src/a.rs"), &long)), ["501:long-file"]);
        assert_eq!(shown(too_long(Path::new("tests/a.rs"), &long)), [""; 0]);
        assert_eq!(shown(too_long(Path::new("src/a/tests.rs"), &long)), [""; 0]);
        let tested = format!("x\n#[cfg(test)]\nmod tests {{\n{long}}}\n");
        assert_eq!(shown(too_long(Path::new("src/a.rs"), &tested)), [""; 0], "tests are not counted");
        assert_eq!(shown(too_long(Path::new("src/a.rs"), &"x\n".repeat(MAX_LINES))), [""; 0]);
        assert_eq!(
            shown(too_long(Path::new("src/a.rs"), &format!("//! A\n// long: one table\n{long}"))),
            [""; 0]
        );
        assert_eq!(shown(too_long(Path::new("src/a.rs"), &format!("// long: \n{long}"))).len(), 1);
        assert_eq!(shown(too_long(Path::new("src/a.rs"), &format!("{long}// long: too late\n"))).len(), 1);
    }

    #[test]
    fn unfinished_code_bites_in_src_only() {
        for name in UNFINISHED {
            let text = format!("fn f() {{\n    {name}(\"x\")\n}}\n// {name}() in a comment\nmy_{name}()\n");
            assert_eq!(
                shown(unfinished(Path::new("crates/a/src/lib.rs"), &text)),
                ["2:unfinished"],
                "{name}"
            );
            assert_eq!(shown(unfinished(Path::new("crates/a/tests/t.rs"), &text)), [""; 0]);
        }
    }

    #[test]
    fn whitespace_bites_in_rust_and_markdown() {
        let text = "fine\nends \n\tbegins\nreturn\r\nlast ";
        let expected = ["2:trailing-whitespace", "3:tab", "4:trailing-whitespace", "5:trailing-whitespace"];
        assert_eq!(shown(whitespace(Path::new("a.rs"), text)), expected);
        assert_eq!(shown(whitespace(Path::new("a.md"), text)), expected);
        assert_eq!(shown(whitespace(Path::new("a.txt"), text)), [""; 0]);
        let mended: String = text.split_inclusive('\n').map(without_trailing_whitespace).collect();
        assert_eq!(mended, "fine\nends\n\tbegins\nreturn\nlast");
    }

    #[test]
    fn registries_and_machine_paths_bite() {
        for host in REGISTRIES {
            let text = format!("see\nhttps://{host}/x\n");
            assert_eq!(shown(foreign_names(Path::new("README.md"), &text)), ["2:registry"], "{host}");
            assert_eq!(shown(foreign_names(Path::new("Cargo.lock"), &text)), [""; 0]);
        }
        for directory in MACHINE_PATHS {
            let text = format!("cd {directory}x\nhome{directory}x\n");
            assert_eq!(
                shown(foreign_names(Path::new("Cargo.lock"), &text)),
                ["1:machine-path"],
                "{directory}"
            );
        }
    }

    #[test]
    fn dead_links_bite() {
        let exists = |path: &Path| {
            ["docs/guide.md", "docs/../README.md", "LICENSE"].iter().any(|known| path == Path::new(known))
        };
        let read = |_: &Path| Some("# A guide\n\n## The `first` part\n".to_owned());
        let text = "## Here\n[a](guide.md) [b](guide.md#the-first-part) [c](../README.md \"title\") [d](https://x.y/z) [e](#here)\n\
            [gone](missing.md) and `[code](missing.md)`\n\
            ```\n[fenced](missing.md)\n```\n\
            [reference]: missing.md\n\
            [outside](../../elsewhere.md) [root](/LICENSE) [place](guide.md#gone) [here](#there)\n";
        let found = shown(dead_links(Path::new("docs/index.md"), text, exists, read));
        assert_eq!(found, ["3:dead-link", "7:dead-link", "8:dead-link", "8:dead-link", "8:dead-link"]);
        assert_eq!(shown(dead_links(Path::new("docs/index.rs"), text, exists, read)), [""; 0]);
    }
}
