//! Defaults that depend on where the process runs: its data directory and its name.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use tenure_core::NodeId;

/// The database file of the default store.
const DATABASE_FILE: &str = "tenure.db";

/// The longest node id, as [`NodeId`] has it.
const NODE_BYTES_MAX: usize = 128;

/// What the surroundings say. Gathered once, so that everything after it is a pure function.
#[derive(Clone, Debug)]
pub(super) struct Places {
    pub(super) data_dir: PathBuf,
    pub(super) node: NodeId,
}

impl Places {
    /// Looks the two directory variables up with `var`, and asks the system for host name and process id.
    pub(super) fn gather(var: impl Fn(&str) -> Option<OsString>) -> Places {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        Places { data_dir: data_dir(var), node: node_name(&host, std::process::id()) }
    }

    /// The same, with the variables of this process.
    pub(super) fn of_process() -> Places {
        Places::gather(|name| std::env::var_os(name))
    }
}

/// The store used when none is set: a database file in the data directory.
///
/// The directory is `$TENURE_DATA_DIR`, else `$XDG_DATA_HOME/tenure`, else `$HOME/.local/share/tenure`, else the
/// working directory; `var` looks a variable up (pass `|name| std::env::var_os(name)`).
///
/// ```
/// let store = tenure::settings::default_store(|name| (name == "HOME").then(|| "/home/me".into()));
/// assert_eq!(store, "sqlite:/home/me/.local/share/tenure/tenure.db");
/// ```
pub fn default_store(var: impl Fn(&str) -> Option<OsString>) -> String {
    let chosen = var("TENURE_DATA_DIR").filter(|dir| !dir.is_empty()).map(PathBuf::from);
    store_in(&chosen.unwrap_or_else(|| data_dir(var)))
}

pub(super) fn store_in(data_dir: &Path) -> String {
    format!("sqlite:{}", data_dir.join(DATABASE_FILE).display())
}

/// Relative directories in these two variables are to be ignored, says the XDG specification; two processes started
/// from different places would otherwise use different stores.
fn data_dir(var: impl Fn(&str) -> Option<OsString>) -> PathBuf {
    let absolute = |name| var(name).map(PathBuf::from).filter(|dir| dir.is_absolute());
    match (absolute("XDG_DATA_HOME"), absolute("HOME")) {
        (Some(data), _) => data.join("tenure"),
        (None, Some(home)) => home.join(".local/share/tenure"),
        (None, None) => PathBuf::from("."),
    }
}

/// `host-pid`, bent to the rule of ids. The host keeps machines apart, the process id the nodes of one machine.
fn node_name(host: &str, pid: u32) -> NodeId {
    let suffix = format!("-{pid}");
    let mut name = String::new();
    for c in host.chars().take(NODE_BYTES_MAX - suffix.len()) {
        let allowed = c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let c = if allowed && !(c == '.' && name.ends_with('.')) { c } else { '-' };
        if c.is_ascii_alphanumeric() || !name.is_empty() {
            name.push(c);
        }
    }
    if name.is_empty() {
        name.push_str("node");
    }
    name.push_str(&suffix);
    NodeId::new(&name).expect("the loop above lets only ids through")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dir(vars: &[(&str, &str)]) -> PathBuf {
        data_dir(|name| vars.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into()))
    }

    #[test]
    fn the_data_directory_follows_the_usual_variables() {
        assert_eq!(dir(&[("XDG_DATA_HOME", "/x"), ("HOME", "/h")]), PathBuf::from("/x/tenure"));
        assert_eq!(dir(&[("HOME", "/h")]), PathBuf::from("/h/.local/share/tenure"));
        assert_eq!(dir(&[("XDG_DATA_HOME", "rel"), ("HOME", "")]), PathBuf::from("."));
        assert_eq!(
            default_store(|name| (name == "TENURE_DATA_DIR").then(|| "/d".into())),
            "sqlite:/d/tenure.db"
        );
    }

    #[test]
    fn every_host_name_makes_an_id() {
        assert_eq!(node_name("pod-a", 7).as_str(), "pod-a-7");
        assert_eq!(node_name("a..b/c ä", 7).as_str(), "a.-b-c---7");
        for host in ["", ".", "...", "-", "a.", "ÄÖÜ", &"x".repeat(1 << 20)] {
            assert!(node_name(host, u32::MAX).as_str().len() <= NODE_BYTES_MAX, "{host}");
        }
    }
}
