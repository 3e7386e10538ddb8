//! Clients for the three providers, configured from the environment that the providers' own tools read.

use super::aws::PodCredentials;
use super::credentials::{ANSWER_TIMEOUT, SharedCredentials};
use super::wire::ObservedConnector;
use crate::{OpenError, OpenOptions, Provider};
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, S3ConditionalPut};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::client::HttpConnector;
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::{ClientOptions, ObjectStore, RetryConfig};
use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

/// Connections idle for longer than this are closed from this side. Stores close theirs after some 20 s; a write sent at
/// that very moment would have an unknown outcome.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(10);

/// Makes a client with its own connections. All clients made by one of these share the same credentials.
pub(super) type NewClient = Box<dyn Fn() -> Result<Arc<dyn ObjectStore>, OpenError>>;

/// Returns a maker of clients for a bucket, and a description of the bucket for people.
pub(super) fn connect(
    provider: Provider,
    bucket: &str,
    prefix: &str,
    options: &OpenOptions,
) -> Result<(NewClient, String), OpenError> {
    // The TLS provider is set once per process. An error only means that somebody else set it first.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let (client, place) = match provider {
        Provider::S3 => s3(bucket, options)?,
        Provider::Gcs => gcs(bucket, options)?,
        Provider::Azure => azure(bucket, options)?,
    };
    let slash = if prefix.is_empty() { "" } else { "/" };
    Ok((client, format!("{}://{bucket}{slash}{prefix} at {place}", provider.scheme())))
}

fn new_client<T: ObjectStore>(
    provider: Provider,
    build: impl Fn() -> object_store::Result<T> + 'static,
) -> NewClient {
    Box::new(move || match build() {
        Ok(client) => Ok(Arc::new(client)),
        Err(error) => Err(wrong(provider, &error)),
    })
}

fn s3(bucket: &str, options: &OpenOptions) -> Result<(NewClient, String), OpenError> {
    let mut builder = AmazonS3Builder::from_env();
    let endpoint = options.endpoint.clone().or_else(|| s3_endpoint(&builder));
    let plain_http = check_endpoint(Provider::S3, endpoint.as_deref())?;
    if let Some(endpoint) = &endpoint {
        // The S3-specific key wins over the general one, whichever of them the environment has set.
        builder = builder.with_config(AmazonS3ConfigKey::S3Endpoint, endpoint);
    }
    if let Some(credentials) = &options.credentials {
        builder = builder
            .with_access_key_id(&credentials.access_key)
            .with_secret_access_key(&credentials.secret_key);
    }
    let region =
        builder.get_config_value(&AmazonS3ConfigKey::Region).unwrap_or_else(|| "us-east-1".to_owned());
    builder = builder
        .with_bucket_name(bucket)
        .with_region(&region)
        .with_conditional_put(S3ConditionalPut::ETagMatch)
        // Some engines lack the bulk POST; all have the single DELETE.
        .with_disable_bulk_delete(true)
        .with_retry(no_retries())
        .with_client_options(client_options(options, plain_http))
        .with_http_connector(ObservedConnector::default());
    // Only Amazon has them: behind another endpoint, a bucket with such a name is an ordinary bucket.
    let express = is_express(bucket) && endpoint.is_none();
    if express {
        builder = builder.with_s3_express(true);
    }
    let is_static = [AmazonS3ConfigKey::AccessKeyId, AmazonS3ConfigKey::SecretAccessKey]
        .iter()
        .any(|key| builder.get_config_value(key).is_some());
    if !is_static {
        builder = s3_credentials(builder, &region).map_err(|error| wrong(Provider::S3, &error))?;
    }
    let client = new_client(Provider::S3, move || builder.clone().build());
    let place = match endpoint {
        Some(endpoint) => format!("{endpoint} (region {region})"),
        None if express => format!("Amazon S3 Express One Zone (region {region})"),
        None => format!("Amazon S3 (region {region})"),
    };
    Ok((client, place))
}

/// Whether this is the name of a directory bucket (S3 Express One Zone): `<name>--<zone>--x-s3`.
pub(super) fn is_express(bucket: &str) -> bool {
    bucket.ends_with("--x-s3")
}

/// Temporary credentials of the pod or of the machine.
fn s3_credentials(builder: AmazonS3Builder, region: &str) -> object_store::Result<AmazonS3Builder> {
    let connect = || ObservedConnector::default().connect(&credential_options(true));
    let shared = match PodCredentials::of(&builder, region, connect)? {
        Some(pod) => {
            let service = pod.service();
            SharedCredentials::new(Arc::new(pod), service, "no credentials: ")
        }
        None => {
            let service = builder.get_config_value(&AmazonS3ConfigKey::MetadataEndpoint);
            let service = service.unwrap_or_else(|| "http://169.254.169.254".to_owned());
            let source = builder.clone().with_client_options(credential_options(true)).build()?;
            let without = "no credentials in the environment, and ";
            SharedCredentials::new(Arc::clone(source.credentials()), service, without)
        }
    };
    Ok(builder.with_credentials(Arc::new(shared)))
}

fn s3_endpoint(builder: &AmazonS3Builder) -> Option<String> {
    builder
        .get_config_value(&AmazonS3ConfigKey::S3Endpoint)
        .or_else(|| builder.get_config_value(&AmazonS3ConfigKey::Endpoint))
}

fn gcs(bucket: &str, options: &OpenOptions) -> Result<(NewClient, String), OpenError> {
    let mut builder = GoogleCloudStorageBuilder::from_env();
    let endpoint = options.endpoint.clone().or_else(|| builder.get_config_value(&GoogleConfigKey::BaseUrl));
    let plain_http = check_endpoint(Provider::Gcs, endpoint.as_deref())?;
    if let Some(endpoint) = &endpoint {
        builder = builder.with_base_url(endpoint);
    }
    builder = builder
        .with_bucket_name(bucket)
        .with_retry(no_retries())
        .with_client_options(client_options(options, plain_http))
        .with_http_connector(ObservedConnector::default());
    let source = builder.clone().with_client_options(credential_options(plain_http)).build();
    let source = source.map_err(|error| wrong(Provider::Gcs, &error))?;
    let service = "Google's credentials service";
    let shared = SharedCredentials::new(Arc::clone(source.credentials()), service, "no credentials: ");
    builder = builder.with_credentials(Arc::new(shared));
    let client = new_client(Provider::Gcs, move || builder.clone().build());
    Ok((client, endpoint.unwrap_or_else(|| "Google Cloud Storage".to_owned())))
}

fn azure(container: &str, options: &OpenOptions) -> Result<(NewClient, String), OpenError> {
    let mut builder = MicrosoftAzureBuilder::from_env();
    let endpoint = options.endpoint.clone().or_else(|| builder.get_config_value(&AzureConfigKey::Endpoint));
    let plain_http = check_endpoint(Provider::Azure, endpoint.as_deref())?;
    if let Some(endpoint) = &endpoint {
        builder = builder.with_endpoint(endpoint.clone());
    }
    builder = builder
        .with_container_name(container)
        .with_retry(no_retries())
        .with_client_options(client_options(options, plain_http))
        .with_http_connector(ObservedConnector::default());
    let source = builder.clone().with_client_options(credential_options(plain_http)).build();
    let source = source.map_err(|error| wrong(Provider::Azure, &error))?;
    let service = "Microsoft's credentials service";
    let shared = SharedCredentials::new(Arc::clone(source.credentials()), service, "no credentials: ");
    builder = builder.with_credentials(Arc::new(shared));
    let client = new_client(Provider::Azure, move || builder.clone().build());
    Ok((client, endpoint.unwrap_or_else(|| "Azure Blob Storage".to_owned())))
}

/// Whether a variable holds credentials for a store, or says where they are: by the names that the clients above read.
pub fn is_credential(variable: &str) -> bool {
    let name = variable.to_ascii_lowercase();
    match variable.split_once('_') {
        Some(("AWS", _)) => match name.parse() {
            Ok(AmazonS3ConfigKey::Encryption(_)) => name.contains("customer_key"),
            key => matches!(
                key,
                Ok(AmazonS3ConfigKey::AccessKeyId
                    | AmazonS3ConfigKey::SecretAccessKey
                    | AmazonS3ConfigKey::Token
                    | AmazonS3ConfigKey::WebIdentityTokenFile
                    | AmazonS3ConfigKey::ContainerCredentialsRelativeUri
                    | AmazonS3ConfigKey::ContainerCredentialsFullUri
                    | AmazonS3ConfigKey::ContainerAuthorizationTokenFile)
            ),
        },
        Some(("GOOGLE", _)) => matches!(
            name.parse(),
            Ok(GoogleConfigKey::ServiceAccount
                | GoogleConfigKey::ServiceAccountKey
                | GoogleConfigKey::ApplicationCredentials
                | GoogleConfigKey::BearerToken)
        ),
        Some(("AZURE", _)) => matches!(
            name.parse(),
            Ok(AzureConfigKey::AccessKey
                | AzureConfigKey::ClientSecret
                | AzureConfigKey::SasKey
                | AzureConfigKey::Token
                | AzureConfigKey::FederatedTokenFile
                | AzureConfigKey::FabricSessionToken
                | AzureConfigKey::EncryptionKey)
        ),
        _ => variable == "SERVICE_ACCOUNT",
    }
}

/// Whether to speak plain HTTP. Rejects an endpoint that contains credentials, because descriptions print it.
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

/// Never retry; see the module above. The client would otherwise retry for three minutes.
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

/// Options for credential requests, which no store request waits for.
fn credential_options(plain_http: bool) -> ClientOptions {
    ClientOptions::new()
        .with_timeout(ANSWER_TIMEOUT)
        .with_connect_timeout(ANSWER_TIMEOUT / 2)
        .with_pool_idle_timeout(POOL_IDLE_TIMEOUT)
        .with_allow_http(plain_http)
}

fn wrong(provider: Provider, error: &object_store::Error) -> OpenError {
    let setting = match provider {
        Provider::S3 => "s3 settings (AWS_…)",
        Provider::Gcs => "gs settings (GOOGLE_…)",
        Provider::Azure => "az settings (AZURE_…)",
    };
    let mut rule = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_said = cause.to_string();
        if !rule.contains(&cause_said) {
            rule = format!("{rule}: {cause_said}");
        }
        source = cause.source();
    }
    if rule.contains("CA certificates") {
        rule.push_str(
            "; install the package ca-certificates, or name a file of root certificates in SSL_CERT_FILE",
        );
    }
    OpenError::Setting { setting: setting.to_owned(), rule: rule.chars().take(400).collect() }
}
