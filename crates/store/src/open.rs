//! Opening a store by URL.

#[cfg(feature = "object")]
use crate::CloudStore;
#[cfg(feature = "sqlite")]
use crate::SqliteStore;
use crate::{MemoryStore, Store, StoreUrl, UrlError};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Options for opening a store. Each one limits something or overrides the environment; the defaults suit a lease of a few
/// seconds.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// Longest time for a request. Must be shorter than the lease, or one slow request costs the seat; a longer one
    /// tolerates a slower store.
    pub request_timeout: Duration,
    /// Longest time for connecting, which is part of the request's time. A refused connection cannot have written anything,
    /// so a short timeout turns unknown outcomes into known ones.
    pub connect_timeout: Duration,
    /// Overrides the endpoint from the environment (`AWS_ENDPOINT_URL`, `GOOGLE_BASE_URL`, `AZURE_ENDPOINT`). Plain HTTP is
    /// used only for an endpoint that begins with `http://`.
    pub endpoint: Option<String>,
    /// Overrides the S3 credentials from the environment.
    pub credentials: Option<Credentials>,
}

impl OpenOptions {
    /// Options for a request timeout, with the others derived from it.
    pub fn with_request_timeout(request_timeout: Duration) -> OpenOptions {
        OpenOptions {
            request_timeout,
            connect_timeout: request_timeout / 2,
            endpoint: None,
            credentials: None,
        }
    }
}

impl Default for OpenOptions {
    fn default() -> OpenOptions {
        OpenOptions::with_request_timeout(Duration::from_secs(2))
    }
}

/// A pair of S3 keys. Its `Debug` shows neither.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The access key id.
    pub access_key: String,
    /// Never shown by `Debug`.
    pub secret_key: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials(…)")
    }
}

/// One store through two doors: work in one lane never queues behind work in the other.
#[derive(Clone, Debug)]
pub struct Lanes {
    /// For the seat: claims, renewals, polls. Has its own connections.
    pub lease: Arc<dyn Store>,
    /// For everything else.
    pub bulk: Arc<dyn Store>,
}

impl Lanes {
    /// Both lanes on one store, for stores where nothing queues.
    pub fn same(store: Arc<dyn Store>) -> Lanes {
        Lanes { lease: Arc::clone(&store), bulk: store }
    }
}

/// Why a store could not be opened. Nothing was written.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OpenError {
    /// The URL is wrong.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// A setting of the environment or the options is wrong.
    #[error("{setting}: {rule}")]
    Setting {
        /// The name of the setting.
        setting: String,
        /// What the setting must be.
        rule: String,
    },
    /// The database file cannot be used.
    #[error("sqlite database {}: {reason}", path.display())]
    File {
        /// The database file.
        path: PathBuf,
        /// What is wrong with the file and what to do about it.
        reason: String,
    },
    /// The database file is fine, but somebody held it too long.
    #[error("sqlite database {} is busy: {reason}", path.display())]
    Busy {
        /// The database file.
        path: PathBuf,
        /// What the opening waited for.
        reason: String,
    },
}

impl OpenError {
    /// Whether the user's input is at fault (URL, setting, file), so that trying again is pointless.
    pub fn is_usage(&self) -> bool {
        match self {
            OpenError::Url(_) | OpenError::Setting { .. } | OpenError::File { .. } => true,
            OpenError::Busy { .. } => false,
        }
    }

    /// Whether trying again later may help.
    pub fn is_retryable(&self) -> bool {
        !self.is_usage()
    }
}

/// Opens the store a URL names. Does not talk to an object store yet: whether it answers, permits and honours conditions is
/// for [`probe`](crate::conformance::probe) to find out.
pub async fn open(url: &StoreUrl, options: &OpenOptions) -> Result<Lanes, OpenError> {
    check(options)?;
    match url {
        StoreUrl::Memory { name: None } => Ok(Lanes::same(Arc::new(MemoryStore::new()))),
        StoreUrl::Memory { name: Some(name) } => Ok(Lanes::same(Arc::new(MemoryStore::named(name)))),
        #[cfg(feature = "sqlite")]
        StoreUrl::Sqlite { path } => {
            let (lease, bulk) = SqliteStore::open_two(path, options.request_timeout).await?;
            Ok(Lanes { lease: Arc::new(lease), bulk: Arc::new(bulk) })
        }
        #[cfg(feature = "object")]
        StoreUrl::Bucket { provider, bucket, prefix } => {
            let (lease, bulk) = CloudStore::connect_two(*provider, bucket, prefix, options)?;
            Ok(Lanes { lease: Arc::new(lease), bulk: Arc::new(bulk) })
        }
        #[cfg(not(all(feature = "sqlite", feature = "object")))]
        _ => Err(OpenError::Setting {
            setting: "store".to_owned(),
            rule: format!("{url}: this program was built without that backend"),
        }),
    }
}

/// Parses a store URL and opens the store; see [`open`].
pub async fn open_str(url: &str, options: &OpenOptions) -> Result<Lanes, OpenError> {
    open(&url.parse::<StoreUrl>()?, options).await
}

fn check(options: &OpenOptions) -> Result<(), OpenError> {
    let wrong = |setting: &str, rule: String| Err(OpenError::Setting { setting: setting.to_owned(), rule });
    if options.request_timeout < Duration::from_millis(10)
        || options.request_timeout > Duration::from_secs(600)
    {
        return wrong("request timeout", format!("must be 10 ms to 600 s, is {:?}", options.request_timeout));
    }
    if options.connect_timeout.is_zero() || options.connect_timeout > options.request_timeout {
        let rule = format!(
            "must be above 0 and at most the request timeout ({:?}), is {:?}",
            options.request_timeout, options.connect_timeout
        );
        return wrong("connect timeout", rule);
    }
    Ok(())
}

#[cfg(feature = "object")]
impl crate::Provider {
    pub(crate) fn endpoint_setting(self) -> &'static str {
        match self {
            crate::Provider::S3 => "AWS_ENDPOINT_URL",
            crate::Provider::Gcs => "GOOGLE_BASE_URL",
            crate::Provider::Azure => "AZURE_ENDPOINT",
        }
    }
}
