//! Clients for the three providers, from the environment that their own tools read.

use super::wire::ObservedConnector;
use crate::{OpenError, OpenOptions, Provider};
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, S3ConditionalPut};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::{ClientOptions, ObjectStore, RetryConfig};
use std::sync::Arc;
use std::time::Duration;

/// Connections idle for longer are closed from this side. Stores close theirs after some 20 s; a write sent at that very
/// moment would be one of unknown outcome.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(10);

/// Builds the client and its description.
pub(super) fn connect(
    provider: Provider,
    bucket: &str,
    prefix: &str,
    options: &OpenOptions,
) -> Result<(Arc<dyn ObjectStore>, String), OpenError> {
    // The TLS provider is chosen once for the process; whoever was first, it is there now.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let (store, place) = match provider {
        Provider::S3 => s3(bucket, options)?,
        Provider::Gcs => gcs(bucket, options)?,
        Provider::Azure => azure(bucket, options)?,
    };
    let slash = if prefix.is_empty() { "" } else { "/" };
    Ok((store, format!("{}://{bucket}{slash}{prefix} at {place}", provider.scheme())))
}

fn s3(bucket: &str, options: &OpenOptions) -> Result<(Arc<dyn ObjectStore>, String), OpenError> {
    let mut builder = AmazonS3Builder::from_env();
    let from_env = builder
        .get_config_value(&AmazonS3ConfigKey::S3Endpoint)
        .or_else(|| builder.get_config_value(&AmazonS3ConfigKey::Endpoint));
    let endpoint = options.endpoint.clone().or(from_env);
    let plain_http = check_endpoint(Provider::S3, endpoint.as_deref())?;
    if let Some(endpoint) = &endpoint {
        // The S3-specific key wins over the general one, whichever of them the environment set.
        builder = builder.with_config(AmazonS3ConfigKey::S3Endpoint, endpoint);
    }
    if let Some(credentials) = &options.credentials {
        builder = builder
            .with_access_key_id(&credentials.access_key)
            .with_secret_access_key(&credentials.secret_key);
    }
    let region =
        builder.get_config_value(&AmazonS3ConfigKey::Region).unwrap_or_else(|| "us-east-1".to_owned());
    let store = builder
        .with_bucket_name(bucket)
        .with_region(&region)
        .with_conditional_put(S3ConditionalPut::ETagMatch)
        // The bulk POST is missing on some engines; a single DELETE is on all.
        .with_disable_bulk_delete(true)
        .with_retry(no_retries())
        .with_client_options(client_options(options, plain_http))
        .with_http_connector(ObservedConnector::default())
        .build()
        .map_err(|error| wrong(Provider::S3, &error))?;
    let place = match endpoint {
        Some(endpoint) => format!("{endpoint} (region {region})"),
        None => format!("Amazon S3 (region {region})"),
    };
    Ok((Arc::new(store), place))
}

fn gcs(bucket: &str, options: &OpenOptions) -> Result<(Arc<dyn ObjectStore>, String), OpenError> {
    let mut builder = GoogleCloudStorageBuilder::from_env();
    let endpoint = options.endpoint.clone().or_else(|| builder.get_config_value(&GoogleConfigKey::BaseUrl));
    let plain_http = check_endpoint(Provider::Gcs, endpoint.as_deref())?;
    if let Some(endpoint) = &endpoint {
        builder = builder.with_base_url(endpoint);
    }
    let store = builder
        .with_bucket_name(bucket)
        .with_retry(no_retries())
        .with_client_options(client_options(options, plain_http))
        .with_http_connector(ObservedConnector::default())
        .build()
        .map_err(|error| wrong(Provider::Gcs, &error))?;
    Ok((Arc::new(store), endpoint.unwrap_or_else(|| "Google Cloud Storage".to_owned())))
}

fn azure(container: &str, options: &OpenOptions) -> Result<(Arc<dyn ObjectStore>, String), OpenError> {
    let mut builder = MicrosoftAzureBuilder::from_env();
    let endpoint = options.endpoint.clone().or_else(|| builder.get_config_value(&AzureConfigKey::Endpoint));
    let plain_http = check_endpoint(Provider::Azure, endpoint.as_deref())?;
    if let Some(endpoint) = &endpoint {
        builder = builder.with_endpoint(endpoint.clone());
    }
    let store = builder
        .with_container_name(container)
        .with_retry(no_retries())
        .with_client_options(client_options(options, plain_http))
        .with_http_connector(ObservedConnector::default())
        .build()
        .map_err(|error| wrong(Provider::Azure, &error))?;
    Ok((Arc::new(store), endpoint.unwrap_or_else(|| "Azure Blob Storage".to_owned())))
}

/// Whether plain HTTP is to be spoken. An endpoint is printed in descriptions, so it must not hold credentials.
fn check_endpoint(provider: Provider, endpoint: Option<&str>) -> Result<bool, OpenError> {
    let Some(endpoint) = endpoint else { return Ok(false) };
    let wrong = |rule: String| OpenError::Setting { setting: provider.endpoint_setting().to_owned(), rule };
    if endpoint.contains('@') {
        return Err(wrong(
            "must not hold credentials (user:password@…); use the variables for keys".to_owned(),
        ));
    }
    let shown: String = endpoint.chars().take(200).collect();
    let url = url::Url::parse(endpoint).map_err(|error| wrong(format!("{shown:?} is not a URL: {error}")))?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err(wrong(format!("{shown:?} must begin with https:// or http://")));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(wrong("must not have a query or fragment".to_owned()));
    }
    Ok(url.scheme() == "http")
}

/// Never retry: see the module above. The client would otherwise retry for three minutes.
fn no_retries() -> RetryConfig {
    RetryConfig { max_retries: 0, retry_timeout: Duration::ZERO, ..RetryConfig::default() }
}

fn client_options(options: &OpenOptions, plain_http: bool) -> ClientOptions {
    ClientOptions::new()
        .with_timeout(options.request_timeout)
        .with_connect_timeout(options.connect_timeout)
        .with_pool_idle_timeout(POOL_IDLE_TIMEOUT)
        .with_allow_http(plain_http)
}

fn wrong(provider: Provider, error: &object_store::Error) -> OpenError {
    let setting = match provider {
        Provider::S3 => "s3 settings (AWS_…)",
        Provider::Gcs => "gs settings (GOOGLE_…)",
        Provider::Azure => "az settings (AZURE_…)",
    };
    OpenError::Setting { setting: setting.to_owned(), rule: error.to_string().chars().take(400).collect() }
}
