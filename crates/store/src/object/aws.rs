//! Credentials of a pod or task on Amazon's platforms: from a container service, or for a web identity.
//!
//! object_store supports both, but uses a token file as it is: a trailing newline makes it panic or send a token that nobody
//! accepts.

use super::credentials::NoCredentials;
use super::wire::element;
use async_trait::async_trait;
use object_store::CredentialProvider;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, AwsCredential};
use object_store::client::{HttpClient, HttpRequest, HttpRequestBody};
use std::sync::Arc;

/// Where an ECS task gets its credentials.
const TASK_SERVICE: &str = "http://169.254.170.2";

/// A source that is asked again at every call.
#[derive(Debug)]
pub(super) struct PodCredentials {
    http: HttpClient,
    source: Source,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Source {
    Container { url: String, token_file: Option<String> },
    WebIdentity { endpoint: String, role: String, session: String, token_file: String },
}

impl PodCredentials {
    /// The source that the environment names, in the same order of precedence as object_store; `None` if it names none.
    pub(super) fn of(
        builder: &AmazonS3Builder,
        region: &str,
        connect: impl FnOnce() -> object_store::Result<HttpClient>,
    ) -> object_store::Result<Option<PodCredentials>> {
        use AmazonS3ConfigKey as Key;
        let value = |key: Key| builder.get_config_value(&key).filter(|value| !value.is_empty());
        let source =
            if let (Some(token_file), Some(role)) = (value(Key::WebIdentityTokenFile), value(Key::RoleArn)) {
                Source::WebIdentity {
                    endpoint: value(Key::StsEndpoint)
                        .unwrap_or_else(|| format!("https://sts.{region}.amazonaws.com")),
                    role,
                    session: value(Key::RoleSessionName).unwrap_or_else(|| "tenure".to_owned()),
                    token_file,
                }
            } else if let Some(path) = value(Key::ContainerCredentialsRelativeUri) {
                Source::Container { url: format!("{TASK_SERVICE}{path}"), token_file: None }
            } else if let Some(url) = value(Key::ContainerCredentialsFullUri) {
                Source::Container { url, token_file: value(Key::ContainerAuthorizationTokenFile) }
            } else {
                return Ok(None);
            };
        Ok(Some(PodCredentials { http: connect()?, source }))
    }

    /// The service that is asked: scheme and host.
    pub(super) fn service(&self) -> String {
        let url = match &self.source {
            Source::Container { url, .. } => url,
            Source::WebIdentity { endpoint, .. } => endpoint,
        };
        match url::Url::parse(url) {
            Ok(url) => url.origin().ascii_serialization(),
            Err(_) => "the credentials service".to_owned(),
        }
    }

    /// Sends one request and returns the text of a successful answer.
    async fn ask(&self, mut request: HttpRequest, url: &str) -> object_store::Result<String> {
        let Ok(target) = url.parse() else {
            return Err(NoCredentials::lasting("the URL of the credentials service is not a URL").into());
        };
        *request.uri_mut() = target;
        let failed = |error| object_store::Error::Generic { store: "credentials", source: error };
        let response = self.http.execute(request).await.map_err(|error| failed(error.into()))?;
        let status = response.status();
        let body = response.into_body().bytes().await.map_err(|error| failed(error.into()))?;
        // What was answered, and by whom, is noted on the wire; the body may contain secrets.
        if !status.is_success() {
            return Err(failed(format!("answered {status}").into()));
        }
        String::from_utf8(body.to_vec()).map_err(|_| failed("not text".into()))
    }

    async fn container(&self, url: &str, token_file: Option<&str>) -> object_store::Result<AwsCredential> {
        let mut request = HttpRequest::new(HttpRequestBody::empty());
        if let Some(file) = token_file {
            const SETTING: &str = "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE";
            let token = read_token(SETTING, file).await?;
            let Ok(token) = token.parse() else {
                let text = format!("{SETTING} = {file:?} must hold one line of visible characters");
                return Err(NoCredentials::lasting(text).into());
            };
            request.headers_mut().insert("authorization", token);
        }
        let text = self.ask(request, url).await?;
        let answer: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
        self.credential(["AccessKeyId", "SecretAccessKey", "Token"], |name| {
            answer.get(name)?.as_str().map(str::to_owned)
        })
    }

    async fn web_identity(
        &self,
        endpoint: &str,
        role: &str,
        session: &str,
        token_file: &str,
    ) -> object_store::Result<AwsCredential> {
        let token = read_token("AWS_WEB_IDENTITY_TOKEN_FILE", token_file).await?;
        let form = url::form_urlencoded::Serializer::new(String::new())
            .append_pair("Action", "AssumeRoleWithWebIdentity")
            .append_pair("DurationSeconds", "3600")
            .append_pair("RoleArn", role)
            .append_pair("RoleSessionName", session)
            .append_pair("Version", "2011-06-15")
            .append_pair("WebIdentityToken", &token)
            .finish();
        let mut request = HttpRequest::new(HttpRequestBody::from(form));
        if let Ok(post) = "POST".parse() {
            *request.method_mut() = post;
        }
        if let Ok(form) = "application/x-www-form-urlencoded".parse() {
            request.headers_mut().insert("content-type", form);
        }
        let text = self.ask(request, endpoint).await?;
        self.credential(["AccessKeyId", "SecretAccessKey", "SessionToken"], |name| element(&text, name))
    }

    fn credential(
        &self,
        [key_id, secret_key, token]: [&str; 3],
        field: impl Fn(&str) -> Option<String>,
    ) -> object_store::Result<AwsCredential> {
        let field = |name: &str| {
            field(name).ok_or_else(|| {
                NoCredentials::lasting(format!("{} answered without `{name}`", self.service()))
            })
        };
        Ok(AwsCredential {
            key_id: field(key_id)?,
            secret_key: field(secret_key)?,
            token: Some(field(token)?),
        })
    }
}

#[async_trait]
impl CredentialProvider for PodCredentials {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        let credential = match &self.source {
            Source::Container { url, token_file } => self.container(url, token_file.as_deref()).await,
            Source::WebIdentity { endpoint, role, session, token_file } => {
                self.web_identity(endpoint, role, session, token_file).await
            }
        };
        credential.map(Arc::new)
    }
}

/// The token in a file, without the newline that an editor or `echo` appended. Read for every request, because platforms
/// replace the file.
async fn read_token(setting: &str, file: &str) -> object_store::Result<String> {
    let path = file.to_owned();
    let text = tokio::task::spawn_blocking(move || std::fs::read_to_string(path)).await?;
    let text = text.map_err(|error| NoCredentials::lasting(format!("{setting} = {file:?}: {error}")))?;
    match text.trim() {
        "" => Err(NoCredentials::lasting(format!("{setting} = {file:?} is empty")).into()),
        token => Ok(token.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use object_store::client::{HttpConnector, ReqwestConnector};

    fn source(settings: &[(AmazonS3ConfigKey, &str)]) -> Option<Source> {
        let builder = settings
            .iter()
            .fold(AmazonS3Builder::new(), |builder, (key, value)| builder.with_config(*key, *value));
        let _ = rustls::crypto::ring::default_provider().install_default();
        let connect = || ReqwestConnector::default().connect(&object_store::ClientOptions::new());
        PodCredentials::of(&builder, "eu-central-1", connect).ok().flatten().map(|found| found.source)
    }

    #[test]
    fn the_environment_names_the_source() {
        use AmazonS3ConfigKey as Key;
        assert_eq!(source(&[]), None);
        let task = (Key::ContainerCredentialsRelativeUri, "/v2/credentials/x");
        let url = "http://169.254.170.2/v2/credentials/x".to_owned();
        assert_eq!(source(&[task]), Some(Source::Container { url, token_file: None }));
        let full = (Key::ContainerCredentialsFullUri, "http://127.0.0.1/c");
        let file = (Key::ContainerAuthorizationTokenFile, "/t");
        let url = "http://127.0.0.1/c".to_owned();
        let expected = Source::Container { url, token_file: Some("/t".to_owned()) };
        assert_eq!(source(&[full, file]), Some(expected));
        let web = [(Key::WebIdentityTokenFile, "/w"), (Key::RoleArn, "r")];
        let expected = Source::WebIdentity {
            endpoint: "https://sts.eu-central-1.amazonaws.com".to_owned(),
            role: "r".to_owned(),
            session: "tenure".to_owned(),
            token_file: "/w".to_owned(),
        };
        assert_eq!(source(&[web[0], web[1], task]), Some(expected));
    }
}
