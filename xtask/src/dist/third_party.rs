//! What of others is in the binary: their licences, and a bill of materials. Both come from what cargo says; a generator would have
//! to be built from three hundred crates first.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::TARGET;
use crate::workspace::Workspace;
use tenure_rig::process;

const LIMIT: Duration = Duration::from_secs(60);

/// A crate that is linked in.
struct Part {
    name: String,
    version: String,
    licence: String,
    repository: Option<String>,
    folder: PathBuf,
}

pub(super) struct Parts(Vec<Part>);

impl Parts {
    pub(super) fn read(workspace: &Workspace) -> Result<Parts> {
        let run = |words: &str| {
            let mut cargo = workspace.cargo();
            cargo.args(words.split(' ')).arg(TARGET);
            process::capture(&mut cargo, LIMIT)?.ok(words)
        };
        // What is linked, without what only builds and tests need.
        let tree =
            run("tree --package tenure-cli --edges normal --prefix none --locked --format {p} --target")?;
        let linked: BTreeSet<(&str, &str)> = tree.lines().filter_map(|line| line.split_once(" v")).collect();
        let metadata: Value =
            serde_json::from_str(&run("metadata --format-version=1 --locked --filter-platform")?)?;
        let packages = metadata["packages"].as_array().context("cargo metadata has no packages")?;
        let mut parts = Vec::new();
        for package in packages.iter().filter(|package| !package["source"].is_null()) {
            let field = |name: &str| package[name].as_str().map(str::to_owned);
            let part = Part {
                name: field("name").context("a package without a name")?,
                version: field("version").context("a package without a version")?,
                licence: field("license").unwrap_or_else(|| "see its files".to_owned()),
                repository: field("repository"),
                folder: field("manifest_path")
                    .and_then(|path| Path::new(&path).parent().map(Path::to_path_buf))
                    .context("a package without a folder")?,
            };
            // A procedural macro's line goes on.
            let is = |(name, rest): &(&str, &str)| {
                *name == part.name && rest.split(' ').next() == Some(part.version.as_str())
            };
            if linked.iter().any(is) {
                parts.push(part);
            }
        }
        parts.sort_by(|one, two| (&one.name, &one.version).cmp(&(&two.name, &two.version)));
        Ok(Parts(parts))
    }

    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    /// Each text once, with all that come under it.
    pub(super) fn licences(&self) -> Result<String> {
        let mut page =
            String::from("# What of others is in `tenure`\n\n| crate | version | licence |\n|---|---|---|\n");
        let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for part in &self.0 {
            writeln!(page, "| {} | {} | {} |", part.name, part.version, part.licence)?;
            for text in part.texts()? {
                texts.entry(text).or_default().push(format!("{} {}", part.name, part.version));
            }
        }
        for (text, parts) in texts {
            write!(page, "\n## {}\n\n```text\n{}\n```\n", parts.join(", "), text.trim_end())?;
        }
        Ok(page)
    }

    /// CycloneDX.
    pub(super) fn sbom(&self, version: &str) -> Result<String> {
        let components: Vec<Value> = self.0.iter().map(Part::component).collect();
        let document = json!({
            "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
            "metadata": {"component": {
                "type": "application", "name": "tenure", "version": version, "bom-ref": "tenure",
                "licenses": [{"expression": "Apache-2.0"}],
            }},
            "components": components,
        });
        Ok(serde_json::to_string_pretty(&document)? + "\n")
    }
}

impl Part {
    fn component(&self) -> Value {
        let purl = format!("pkg:cargo/{}@{}", self.name, self.version);
        let mut component = json!({
            "type": "library", "name": self.name, "version": self.version, "bom-ref": purl, "purl": purl,
            "licenses": [{"expression": self.licence.replace('/', " OR ")}],
        });
        if let Some(repository) = &self.repository {
            component["externalReferences"] = json!([{"type": "vcs", "url": repository}]);
        }
        component
    }

    /// The texts that have to go along.
    fn texts(&self) -> Result<Vec<String>> {
        let mut texts = Vec::new();
        for entry in
            fs::read_dir(&self.folder).with_context(|| format!("cannot read {}", self.folder.display()))?
        {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
            let is_licence = ["LICEN", "COPYING", "NOTICE"].iter().any(|start| name.starts_with(start));
            if is_licence && path.is_file() {
                texts.push(String::from_utf8_lossy(&fs::read(&path)?).replace("\r\n", "\n"));
            }
        }
        Ok(texts)
    }
}
