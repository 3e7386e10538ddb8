//! Versions: how each provider spells them, and which spelling of an ETag an engine understands.

use crate::{Condition, EtagForm, Provider, Trouble, TroubleKind, Version};
use object_store::{PutMode, UpdateVersion};
use std::sync::atomic::{AtomicU8, Ordering};

/// What has been learned about one store. Learned once, then kept.
#[derive(Debug, Default)]
pub(super) struct FormMemory(AtomicU8);

impl FormMemory {
    pub(super) fn known(&self) -> Option<EtagForm> {
        match self.0.load(Ordering::Relaxed) {
            1 => Some(EtagForm::Quoted),
            2 => Some(EtagForm::Unquoted),
            _ => None,
        }
    }

    pub(super) fn learn(&self, form: EtagForm) {
        let code = match form {
            EtagForm::Quoted => 1,
            EtagForm::Unquoted => 2,
        };
        self.0.store(code, Ordering::Relaxed);
    }
}

/// How a provider names versions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Dialect {
    /// The ETag without its quotes: engines differ in whether their answers have them.
    S3,
    /// `generation:etag`. Replaces use the generation, reads the ETag.
    Gcs,
    /// Like S3, always quoted.
    Azure,
    /// The ETag exactly as it came.
    Plain,
}

impl Dialect {
    pub(super) fn of(provider: Provider) -> Dialect {
        match provider {
            Provider::S3 => Dialect::S3,
            Provider::Gcs => Dialect::Gcs,
            Provider::Azure => Dialect::Azure,
        }
    }

    pub(super) fn version(self, etag: Option<&str>, generation: Option<&str>) -> Option<Version> {
        let etag = etag.filter(|etag| !etag.is_empty())?;
        match self {
            Dialect::S3 | Dialect::Azure => Some(Version::new(bare(etag))),
            Dialect::Gcs => generation.map(|generation| Version::new(format!("{generation}:{}", bare(etag)))),
            Dialect::Plain => Some(Version::new(etag)),
        }
    }

    /// The ETag to send with a read.
    pub(super) fn tag(self, version: &Version) -> String {
        match self {
            Dialect::S3 | Dialect::Azure => quoted(version.as_str()),
            Dialect::Gcs => quoted(version.as_str().split_once(':').map_or("", |(_, etag)| etag)),
            Dialect::Plain => version.as_str().to_owned(),
        }
    }

    /// The condition of a write, in object_store's terms.
    pub(super) fn mode(self, condition: &Condition, form: EtagForm) -> Result<PutMode, Trouble> {
        let version = match condition {
            Condition::Absent => return Ok(PutMode::Create),
            Condition::Any => return Ok(PutMode::Overwrite),
            Condition::Matches(version) => version,
        };
        let by_etag = |etag: String| Ok(PutMode::Update(UpdateVersion { e_tag: Some(etag), version: None }));
        match (self, form) {
            (Dialect::S3, EtagForm::Unquoted) | (Dialect::Plain, _) => by_etag(version.as_str().to_owned()),
            (Dialect::S3, EtagForm::Quoted) | (Dialect::Azure, _) => by_etag(quoted(version.as_str())),
            (Dialect::Gcs, _) => {
                let Some((generation, etag)) = version.as_str().split_once(':') else {
                    let detail = format!("{version:?} is not a version of this store");
                    return Err(Trouble::new(TroubleKind::Malformed, detail));
                };
                let update =
                    UpdateVersion { e_tag: Some(etag.to_owned()), version: Some(generation.to_owned()) };
                Ok(PutMode::Update(update))
            }
        }
    }
}

fn bare(etag: &str) -> &str {
    etag.strip_prefix('"').and_then(|etag| etag.strip_suffix('"')).unwrap_or(etag)
}

fn quoted(etag: &str) -> String {
    match etag.starts_with("W/") {
        // A weak ETag kept its quotes.
        true => etag.to_owned(),
        false => format!("\"{etag}\""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s3_versions_do_not_depend_on_how_an_answer_quotes() {
        assert_eq!(Dialect::S3.version(Some("\"abc\""), None), Dialect::S3.version(Some("abc"), None));
        assert_eq!(Dialect::S3.version(Some(""), None), None);
        assert_eq!(Dialect::S3.version(None, None), None);
    }

    #[test]
    fn gcs_replaces_by_generation_and_reads_by_etag() {
        let version = Dialect::Gcs.version(Some("\"abc\""), Some("17")).expect("a version");
        assert_eq!(Dialect::Gcs.tag(&version), "\"abc\"");
        let mode = Dialect::Gcs.mode(&Condition::Matches(version), EtagForm::Quoted).expect("a mode");
        let expected = UpdateVersion { e_tag: Some("abc".to_owned()), version: Some("17".to_owned()) };
        assert_eq!(mode, PutMode::Update(expected));
        assert_eq!(
            Dialect::Gcs.version(Some("\"abc\""), None),
            None,
            "without a generation there is no version"
        );
        assert!(Dialect::Gcs.mode(&Condition::Matches(Version::new("x")), EtagForm::Quoted).is_err());
    }

    #[test]
    fn weak_etags_keep_their_quotes() {
        let version = Dialect::S3.version(Some("W/\"abc\""), None).expect("a version");
        assert_eq!(Dialect::S3.tag(&version), "W/\"abc\"");
    }
}
