//! Layers become settings: defaults, preset, file, environment, flags or builder; the later one wins.

use super::error::{Problem, Problems, SettingsError, Source, shown};
use super::field::{Fallback, Field, Raw};
use super::file::{self, Node};
use super::given::Given;
use super::places::{Places, store_in};
use super::rules::{Grade, RULES};
use super::show::{Origin, Resolved};
use super::suggest::nearest;
use super::table::{DEPRECATED, FIELDS};
use super::{CoordinationMode, Preset, Settings, StoreUrl};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The object of a file that holds the service's settings.
const BLOCK: &str = "globalCoordinator";

/// Variables with our prefix that are somebody's, though no setting; `*` stands for any ending.
///
/// Kubernetes gives every pod `TENURE_SERVICE_…` and `TENURE_PORT…` once a Service is called `tenure`.
const KNOWN_VARIABLES: &[&str] = &[
    "TENURE_CONFIG",
    "TENURE_EPOCH*",
    "TENURE_EXEC*",
    "TENURE_HTTP_*",
    "TENURE_LOCK*",
    "TENURE_LOG",
    "TENURE_NO_HTTP",
    "TENURE_RECORD",
    "TENURE_SEED*",
    "TENURE_TEST_*",
    "TENURE_SERVICE_*",
    "TENURE_PORT*",
    "TENURE_WEBHOOK*",
];

/// Gathers settings from all layers; [`load`](Loader::load) resolves and validates them.
///
/// Nothing is read before `load`, and nothing that was not handed over: the environment is whatever
/// [`env`](Loader::env) was given. Only without it the default data directory is looked up in the process's own.
///
/// ```
/// use tenure::settings::{Settings, Source};
///
/// let resolved = Settings::loader()
///     .file_text("tenure.toml", "preset = \"fast\"\nleaseTimeout = 1500")
///     .env([("TENURE_NAMESPACE", "reports")])
///     .flag("leaseTimeout", "2000")
///     .load()?;
/// assert_eq!(resolved.settings.lease_timeout, std::time::Duration::from_secs(2));
/// assert_eq!(resolved.source("leaseTimeout"), Some(&Source::Flag("--lease-timeout".into())));
/// assert_eq!(resolved.source("heartbeatInterval"), Some(&Source::Preset("fast")));
/// # Ok::<(), tenure::settings::SettingsError>(())
/// ```
#[derive(Clone, Default, Debug)]
pub struct Loader {
    files: Vec<(PathBuf, Option<String>)>,
    env: Option<BTreeMap<String, OsString>>,
    overrides: Vec<(String, Raw, Source)>,
}

impl Loader {
    /// Adds a file, TOML or JSON by its name, otherwise by its content; a missing file is an error. Of several files
    /// the later one wins.
    pub fn file(mut self, path: impl Into<PathBuf>) -> Loader {
        self.files.push((path.into(), None));
        self
    }

    /// Adds a file whose text is already known; `name` stands for it in messages and says its format.
    pub fn file_text(mut self, name: impl Into<PathBuf>, text: impl Into<String>) -> Loader {
        self.files.push((name.into(), Some(text.into())));
        self
    }

    /// Adds an environment, such as [`std::env::vars_os`].
    pub fn env<K: Into<OsString>, V: Into<OsString>>(
        mut self,
        variables: impl IntoIterator<Item = (K, V)>,
    ) -> Loader {
        let env = self.env.get_or_insert_default();
        // A name that is no text cannot be one of ours.
        let named = variables.into_iter().filter_map(|(k, v)| Some((k.into().into_string().ok()?, v.into())));
        env.extend(named);
        self
    }

    /// Adds a flag of the command line, by the setting's name (`leaseTimeout`) or the flag's (`--lease-timeout`).
    pub fn flag(mut self, name: &str, value: impl Into<String>) -> Loader {
        let field = FIELDS.iter().find(|field| field.name == name || field.flag == name);
        let (name, flag) = field.map_or((name, name), |field| (field.name, field.flag));
        self.overrides.push((name.to_owned(), Raw::Text(value.into()), Source::Flag(flag.to_owned())));
        self
    }

    /// Adds a value from the embedding program.
    pub(super) fn built(&mut self, name: &'static str, raw: Raw) {
        self.overrides.push((name.to_owned(), raw, Source::Builder));
    }

    /// Resolves all layers and validates the result; reports every problem, not just the first.
    pub fn load(self) -> Result<Resolved, SettingsError> {
        let places = match &self.env {
            Some(env) => Places::gather(|name| env.get(name).cloned()),
            None => Places::of_process(),
        };
        let mut layers = Layers::default();
        for (path, text) in self.files {
            layers.file(&path, text);
        }
        if let Some(env) = &self.env {
            layers.env(env);
        }
        for (name, raw, source) in self.overrides {
            layers.named(&name, raw, source);
        }
        layers.resolve(&places)
    }
}

/// The layers while they are laid over each other.
#[derive(Default)]
struct Layers {
    given: BTreeMap<&'static str, (Raw, Source)>,
    problems: Problems,
    warnings: Vec<String>,
    deprecated: BTreeSet<&'static str>,
}

impl Layers {
    fn file(&mut self, path: &Path, text: Option<String>) {
        let source = Source::File(path.to_owned());
        let entries = text.map_or_else(|| file::read(path), Ok).and_then(|text| file::parse(path, &text));
        let entries = match entries {
            Ok(entries) => entries,
            Err(rule) => return self.problems.push(Problem { field: None, value: None, rule, source }),
        };
        let mut layer = BTreeMap::new();
        for (name, node) in entries {
            match (name.as_str(), node) {
                (BLOCK, Node::Table(block)) => {
                    for (name, node) in block {
                        self.file_entry(&mut layer, Some(BLOCK), &name, node, &source);
                    }
                }
                (BLOCK, Node::Leaf(raw)) => {
                    let rule = format!("`{BLOCK}` must be a table of settings for the service");
                    self.refuse(BLOCK, Some(raw.shown()), rule, &source);
                }
                (name, node) => self.file_entry(&mut layer, None, name, node, &source),
            }
        }
        self.given.extend(layer.into_iter().map(|(name, raw)| (name, (raw, source.clone()))));
    }

    fn file_entry(
        &mut self,
        layer: &mut BTreeMap<&'static str, Raw>,
        block: Option<&str>,
        name: &str,
        node: Node,
        source: &Source,
    ) {
        let path = block.map_or_else(|| shown(name), |block| format!("{block}.{}", shown(name)));
        let Some(field) = self.known(name, &path, source) else { return };
        let raw = node.into_raw();
        if block.is_some() && !field.shared {
            let rule = format!("`{name}` belongs to the node, not to the service: set it outside `{BLOCK}`");
            return self.refuse(&path, Some(raw.shown()), rule, source);
        }
        let Some(first) = layer.get(field.name) else {
            layer.insert(field.name, raw);
            return;
        };
        // Said twice is harmless as long as it means the same; a value of the wrong type means nothing.
        let same = field.parse(first).is_ok_and(|first| field.parse(&raw).is_ok_and(|raw| raw == first));
        if !same {
            let rule =
                format!("`{name}` is given twice with different values; the first is {}", first.shown());
            self.refuse(&path, Some(raw.shown()), rule, source);
        }
    }

    fn env(&mut self, env: &BTreeMap<String, OsString>) {
        for field in FIELDS {
            let mut set = std::iter::once(&field.env)
                .chain(field.also)
                .filter_map(|name| env.get(*name).map(|value| (*name, value)));
            let Some((name, value)) = set.next() else { continue };
            for (older, ignored) in set {
                if ignored != value {
                    self.warnings.push(format!("{older} is ignored because {name} is set"));
                }
            }
            let source = Source::Env(name.to_owned());
            match value.to_str() {
                Some(text) => drop(self.given.insert(field.name, (Raw::Text(text.to_owned()), source))),
                None => {
                    let rule = format!("`{}` must be UTF-8 text", field.name);
                    self.refuse(field.name, None, rule, &source);
                }
            }
        }
        for name in env.keys() {
            self.strange_variable(name);
        }
    }

    /// A misspelt variable would otherwise do nothing, silently. Not an error: other programs may share the prefix.
    fn strange_variable(&mut self, name: &str) {
        if let Some(old) = DEPRECATED.iter().find(|old| old.env.contains(&name)) {
            self.deprecated.insert(old.warning);
            return;
        }
        let known = |pattern: &&str| match pattern.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => name == *pattern,
        };
        let ours = FIELDS.iter().any(|field| field.env == name) || KNOWN_VARIABLES.iter().any(known);
        if ours || !name.starts_with("TENURE_") {
            return;
        }
        let hint = nearest(name, FIELDS.iter().map(|field| field.env));
        let hint = hint.map_or_else(String::new, |hint| format!("; did you mean {hint}?"));
        self.warnings
            .push(format!("environment variable {} is not a setting and is ignored{hint}", shown(name)));
    }

    fn named(&mut self, name: &str, raw: Raw, source: Source) {
        if let Some(field) = self.known(name, &shown(name), &source) {
            self.given.insert(field.name, (raw, source));
        }
    }

    /// The setting of a name; notes deprecated names, refuses unknown ones (without their value: who knows what it
    /// was meant to be).
    fn known(&mut self, name: &str, path: &str, source: &Source) -> Option<&'static Field> {
        if let Some(field) = Field::named(name) {
            return Some(field);
        }
        if let Some(old) = DEPRECATED.iter().find(|old| old.names.contains(&name)) {
            self.deprecated.insert(old.warning);
            return None;
        }
        let names = || FIELDS.iter().map(|field| field.name).chain([BLOCK]);
        let hint = if self.problems.is_full() { None } else { nearest(name, names()) };
        let hint = hint.map_or_else(String::new, |hint| format!("; did you mean `{hint}`?"));
        self.refuse(path, None, format!("unknown setting{hint}"), source);
        None
    }

    fn refuse(&mut self, field: &str, value: Option<String>, rule: String, source: &Source) {
        self.problems.push(Problem { field: Some(field.to_owned()), value, rule, source: source.clone() });
    }

    fn resolve(mut self, places: &Places) -> Result<Resolved, SettingsError> {
        let mut settings = defaults(places);
        let mut sources: BTreeMap<&'static str, Source> = BTreeMap::new();
        // Settings whose value is wrong, or follows a wrong one: rules about them would only confuse.
        let mut bad: BTreeSet<&'static str> = BTreeSet::new();
        let mut given = std::mem::take(&mut self.given);
        apply_preset(&mut given);
        for field in FIELDS {
            if given.get(field.name).is_some_and(|(_, source)| !matches!(source, Source::Preset(_))) {
                settings.given.0.insert(field.name);
            }
            let (raw, source) = match (given.remove(field.name), field.default) {
                (Some(given), _) => given,
                (None, Fallback::Text(text)) => (Raw::Text(text.to_owned()), Source::Default),
                (None, Fallback::Computed { needs, compute, .. }) => {
                    if needs.iter().any(|name| bad.contains(name)) {
                        bad.insert(field.name);
                        continue;
                    }
                    (Raw::Text(compute.0(&settings, places)), Source::Default)
                }
            };
            match field.parse(&raw) {
                Ok(value) => (field.slot.set)(&mut settings, value),
                Err(refusal) => {
                    bad.insert(field.name);
                    let value = refusal.safe_value.unwrap_or_else(|| raw.shown());
                    self.refuse(field.name, Some(value), refusal.rule, &source);
                }
            }
            sources.insert(field.name, source);
        }
        check_rules(&settings, &sources, bad, &mut self.problems);
        self.problems.into_result()?;
        self.warnings.extend(self.deprecated.into_iter().map(str::to_owned));
        self.warnings.extend(settings.warnings());
        let origins = FIELDS.iter().map(|field| Origin {
            field,
            value: (field.slot.get)(&settings),
            source: sources.remove(field.name).unwrap_or(Source::Default),
        });
        Ok(Resolved { sources: origins.collect(), warnings: self.warnings, settings })
    }
}

/// Fills what no layer set. An unknown preset fills nothing; it is refused like any other wrong value.
fn apply_preset(given: &mut BTreeMap<&'static str, (Raw, Source)>) {
    let chosen = match given.get("preset") {
        Some((Raw::Text(name) | Raw::Quoted(name), _)) => name.clone(),
        Some(_) | None => return,
    };
    let Some(preset) = Preset::from_word(&chosen) else { return };
    for (name, text) in preset.values() {
        let value = (Raw::Text((*text).to_owned()), Source::Preset(preset.as_str()));
        given.entry(name).or_insert(value);
    }
}

fn check_rules(
    settings: &Settings,
    sources: &BTreeMap<&'static str, Source>,
    mut bad: BTreeSet<&'static str>,
    problems: &mut Problems,
) {
    let source = |name: &str| sources.get(name).cloned().unwrap_or(Source::Default);
    for rule in RULES.iter().filter(|rule| rule.grade == Grade::Error) {
        if bad.contains(rule.field) || rule.others.iter().any(|name| bad.contains(name)) {
            continue;
        }
        let Some(text) = (rule.broken)(settings) else { continue };
        // What follows from it is not a second mistake.
        bad.insert(rule.field);
        let others: Vec<String> = rule
            .others
            .iter()
            .map(|name| format!("{name} = {} ({})", settings.shown(name), source(name)))
            .collect();
        problems.push(Problem {
            field: Some(rule.field.to_owned()),
            value: Some(settings.shown(rule.field)),
            rule: format!("{text} [{}]", others.join(", ")),
            source: source(rule.field),
        });
    }
}

/// Validates settings that a program changed by hand.
pub(super) fn check(settings: &Settings) -> Result<(), SettingsError> {
    let mut problems = Problems::default();
    let mut bad = BTreeSet::new();
    for field in FIELDS {
        let raw = Raw::Text((field.slot.get)(settings).to_string());
        if let Err(refusal) = field.parse(&raw) {
            bad.insert(field.name);
            problems.push(Problem {
                field: Some(field.name.to_owned()),
                value: Some(refusal.safe_value.unwrap_or_else(|| raw.shown())),
                rule: refusal.rule,
                source: Source::Builder,
            });
        }
    }
    let sources = FIELDS.iter().map(|field| (field.name, Source::Builder)).collect();
    check_rules(settings, &sources, bad, &mut problems);
    problems.into_result()
}

/// The table's defaults. A default that is refused here (a home directory with `?` in its name) keeps the blank's
/// value, and is refused by name when settings are loaded.
pub(super) fn defaults(places: &Places) -> Settings {
    let mut settings = blank(places);
    for field in FIELDS {
        let text = match field.default {
            Fallback::Text(text) => text.to_owned(),
            Fallback::Computed { compute, .. } => compute.0(&settings, places),
        };
        if let Ok(value) = field.parse(&Raw::Text(text)) {
            (field.slot.set)(&mut settings, value);
        }
    }
    settings
}

/// Something for the table to write into.
fn blank(places: &Places) -> Settings {
    let database = store_in(&places.data_dir);
    let path = database.strip_prefix("sqlite:").unwrap_or(&database).into();
    Settings {
        preset: Preset::Default,
        namespace: String::new(),
        node: places.node.clone(),
        data_dir: places.data_dir.clone(),
        store: StoreUrl::Sqlite { path },
        eligible: false,
        coordination_mode: CoordinationMode::PerPlugin,
        heartbeat_interval: Duration::ZERO,
        lease_timeout: Duration::ZERO,
        lease_hold_factor_permille: 0,
        lease_expiry_factor_permille: 0,
        takeover_delay: Duration::ZERO,
        election_interval: Duration::ZERO,
        startup_jitter_min: Duration::ZERO,
        startup_jitter_max: Duration::ZERO,
        election_settle: Duration::ZERO,
        presence_interval: Duration::ZERO,
        worker_heartbeat_interval: Duration::ZERO,
        worker_timeout: Duration::ZERO,
        worker_sweep_interval: Duration::ZERO,
        worker_retention: Duration::ZERO,
        node_retention: Duration::ZERO,
        job_poll_interval: Duration::ZERO,
        job_idle_interval: Duration::ZERO,
        job_claim_timeout: Duration::ZERO,
        job_retention: Duration::ZERO,
        store_clock_margin: Duration::ZERO,
        request_timeout: Duration::ZERO,
        drain_timeout: Duration::ZERO,
        telemetry_prefix: String::new(),
        epoch_fencing_enabled: true,
        epoch_grace_period: Duration::ZERO,
        diagnostics_enabled: false,
        contention_detection_enabled: true,
        contention_threshold_permille: 0,
        price_write_per_1000_micros: 0,
        price_read_per_1000_micros: 0,
        given: Given::default(),
    }
}
