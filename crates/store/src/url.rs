//! Store URLs: how an operator says where the arbiter is.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// The forms that [`StoreUrl`] understands, for error messages and help texts.
pub const URL_FORMS: &str = "memory:[name], sqlite:<path>, s3://<bucket>[/<prefix>], gs://<bucket>[/<prefix>], az://<container>[/<prefix>]";

/// The longest prefix below a bucket, in bytes: S3 keys end at 1,024, and the rest belongs to the objects.
const PREFIX_MAX_BYTES: usize = 512;

/// The longest bucket name that any provider allows, in bytes.
const BUCKET_MAX_BYTES: usize = 222;

/// A validated store URL. It cannot contain a secret: credentials come only from the environment.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum StoreUrl {
    /// `memory:` is a new store; `memory:name` is the one with that name in this process.
    Memory {
        /// The shared name; `None` for a new store.
        name: Option<String>,
    },
    /// `sqlite:path`, a database file shared by the processes of one machine.
    Sqlite {
        /// Absolute, or relative to the working directory.
        path: PathBuf,
    },
    /// A bucket in an object store.
    Bucket {
        /// The service that hosts it.
        provider: Provider,
        /// The name of the bucket or container.
        bucket: String,
        /// Prefix of every key, without slashes at either end; may be empty.
        prefix: String,
    },
}

/// The supported object stores.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Provider {
    /// Amazon S3 and anything that speaks its protocol.
    S3,
    /// Google Cloud Storage.
    Gcs,
    /// Azure Blob Storage.
    Azure,
}

impl Provider {
    /// The scheme of this provider's URLs.
    pub fn scheme(self) -> &'static str {
        match self {
            Provider::S3 => "s3",
            Provider::Gcs => "gs",
            Provider::Azure => "az",
        }
    }
}

/// The name of a service that accepts only about one write per second to one object and refuses more with 429; `None` for
/// every other store. `endpoint` is the one from the options; without it, the environment's applies.
pub fn one_write_a_second(url: &StoreUrl, endpoint: Option<&str>) -> Option<&'static str> {
    match url {
        StoreUrl::Bucket { provider: Provider::Gcs, .. } => Some("Google Cloud Storage"),
        StoreUrl::Bucket { provider: Provider::S3, .. } => {
            let endpoint = endpoint.map(str::to_owned).or_else(s3_endpoint_from_env)?;
            is_r2(&endpoint).then_some("Cloudflare R2")
        }
        StoreUrl::Bucket { provider: Provider::Azure, .. }
        | StoreUrl::Memory { .. }
        | StoreUrl::Sqlite { .. } => None,
    }
}

/// The endpoint that the environment sets for S3.
fn s3_endpoint_from_env() -> Option<String> {
    ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"]
        .iter()
        .find_map(|name| std::env::var(name).ok())
}

fn is_r2(endpoint: &str) -> bool {
    let url = url::Url::parse(endpoint).ok();
    url.as_ref().and_then(url::Url::host_str).is_some_and(|host| host.ends_with(".r2.cloudflarestorage.com"))
}

/// Why a store URL was rejected. Names the value and the rule; a part that may be a secret is not repeated.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("store URL {value}: {rule}")]
pub struct UrlError {
    /// The URL, or as much of it as is safe to print.
    pub value: String,
    /// The rule it breaks.
    pub rule: String,
}

impl UrlError {
    fn new(value: impl fmt::Display, rule: impl Into<String>) -> UrlError {
        // Whatever is printed came from outside, and rules repeat parts of it: limit its length and strip control
        // characters.
        let told =
            |text: &str| text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(300).collect();
        UrlError { value: told(&value.to_string()), rule: told(&rule.into()) }
    }
}

impl FromStr for StoreUrl {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<StoreUrl, UrlError> {
        let Some((scheme, rest)) = text.split_once(':') else {
            return Err(UrlError::new(
                format!("{text:?}"),
                format!("has no scheme; known forms are {URL_FORMS}"),
            ));
        };
        match scheme.to_ascii_lowercase().as_str() {
            "memory" => memory(text, rest),
            "sqlite" => sqlite(text, rest),
            "s3" => bucket(Provider::S3, rest),
            "gs" => bucket(Provider::Gcs, rest),
            "az" => bucket(Provider::Azure, rest),
            // The rest is not repeated: an https URL pasted here may well contain credentials.
            _ => Err(UrlError::new(
                format!("{:?}", format!("{scheme}:…")),
                format!("unknown scheme {:?}; known forms are {URL_FORMS}", cut(scheme)),
            )),
        }
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreUrl::Memory { name } => write!(f, "memory:{}", name.as_deref().unwrap_or_default()),
            StoreUrl::Sqlite { path } => {
                let path = path.display().to_string();
                // A path that begins with two slashes needs two more, because parsing strips the first two.
                let slashes = if path.starts_with("//") { "//" } else { "" };
                write!(f, "sqlite:{slashes}{path}")
            }
            StoreUrl::Bucket { provider, bucket, prefix } => {
                write!(f, "{}://{bucket}", provider.scheme())?;
                if prefix.is_empty() { Ok(()) } else { write!(f, "/{prefix}") }
            }
        }
    }
}

/// Cuts a part to the length that a rule repeats.
fn cut(part: &str) -> String {
    part.chars().take(64).collect()
}

fn memory(text: &str, rest: &str) -> Result<StoreUrl, UrlError> {
    let name = rest.trim_start_matches("//");
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.len() > 64 || !name.chars().all(allowed) {
        let rule = "a memory store's name has at most 64 characters of A-Z a-z 0-9 - _ .";
        return Err(UrlError::new(format!("{text:?}"), rule));
    }
    Ok(StoreUrl::Memory { name: (!name.is_empty()).then(|| name.to_owned()) })
}

fn sqlite(text: &str, rest: &str) -> Result<StoreUrl, UrlError> {
    // `sqlite:///abs` and `sqlite://rel` are common spellings of the same thing.
    let path = rest.strip_prefix("//").unwrap_or(rest);
    if path.is_empty() {
        return Err(UrlError::new(
            format!("{text:?}"),
            "the path of the database file is missing: sqlite:<path>",
        ));
    }
    if path.starts_with(':') || path.contains('?') || path.contains('\0') {
        let rule = "the path must name a plain file: no options (?…), no :memory: (use memory:), no NUL";
        return Err(UrlError::new(format!("{text:?}"), rule));
    }
    Ok(StoreUrl::Sqlite { path: PathBuf::from(path) })
}

fn bucket(provider: Provider, rest: &str) -> Result<StoreUrl, UrlError> {
    let scheme = provider.scheme();
    let Some(rest) = rest.strip_prefix("//") else {
        return Err(UrlError::new(format!("{scheme}:…"), format!("must begin with {scheme}://<bucket>")));
    };
    let (name, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    if name.contains('@') || name.contains(':') {
        let rule = "holds credentials or a port; credentials come from the environment, \
                    an endpoint from AWS_ENDPOINT_URL and its like";
        return Err(UrlError::new(format!("{scheme}://…"), rule));
    }
    if rest.contains(['?', '#']) {
        let rule = "takes no options (?…, #…); region, endpoint and credentials come from the environment";
        return Err(UrlError::new(format!("{scheme}://…"), rule));
    }
    let shown = format!("{:?}", format!("{scheme}://{rest}"));
    if name.is_empty() {
        let rule = format!("the bucket is missing: {scheme}://<bucket>[/<prefix>]");
        return Err(UrlError::new(shown, rule));
    }
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.len() > BUCKET_MAX_BYTES || !name.chars().all(allowed) || matches!(name, "." | "..") {
        let rule = format!(
            "a bucket's name has at most {BUCKET_MAX_BYTES} characters of A-Z a-z 0-9 - _ . (got {:?})",
            cut(name)
        );
        return Err(UrlError::new(shown, rule));
    }
    let prefix = prefix.trim_end_matches('/');
    check_prefix(prefix).map_err(|rule| UrlError::new(shown, rule))?;
    Ok(StoreUrl::Bucket { provider, bucket: name.to_owned(), prefix: prefix.to_owned() })
}

/// A prefix becomes part of keys and signed paths, so only segments that every engine spells the same way are allowed.
fn check_prefix(prefix: &str) -> Result<(), String> {
    if prefix.len() > PREFIX_MAX_BYTES {
        return Err(format!("the prefix has {} bytes; at most {PREFIX_MAX_BYTES} are allowed", prefix.len()));
    }
    if prefix.is_empty() {
        return Ok(());
    }
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '=' | '+' | ',');
    let good =
        |segment: &str| !segment.is_empty() && !matches!(segment, "." | "..") && segment.chars().all(allowed);
    match prefix.split('/').find(|segment| !good(segment)) {
        None => Ok(()),
        Some(segment) => Err(format!(
            "the prefix segment {:?} is refused: segments are not empty, not . or .., \
             and use A-Z a-z 0-9 - _ . = + , only",
            cut(segment)
        )),
    }
}
