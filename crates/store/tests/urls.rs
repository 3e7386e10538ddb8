//! Store URLs and options, right and wrong.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tenure_store::{
    Condition, Credentials, OpenError, OpenOptions, Provider, Read, StoreUrl, Write, one_write_a_second,
    open_str,
};

fn bucket(provider: Provider, bucket: &str, prefix: &str) -> StoreUrl {
    StoreUrl::Bucket { provider, bucket: bucket.to_owned(), prefix: prefix.to_owned() }
}

#[test]
fn good_urls() {
    let sqlite = |path: &str| StoreUrl::Sqlite { path: PathBuf::from(path) };
    let good = [
        ("memory:", StoreUrl::Memory { name: None }),
        ("memory://", StoreUrl::Memory { name: None }),
        ("memory:demo", StoreUrl::Memory { name: Some("demo".to_owned()) }),
        ("sqlite:t.db", sqlite("t.db")),
        ("sqlite:/var/t.db", sqlite("/var/t.db")),
        ("sqlite:///var/t.db", sqlite("/var/t.db")),
        ("sqlite:C:d", sqlite("C:d")),
        ("sqlite:////var/t.db", sqlite("//var/t.db")),
        ("s3://b", bucket(Provider::S3, "b", "")),
        ("S3://b/", bucket(Provider::S3, "b", "")),
        ("s3://my.bucket/a/b=c/", bucket(Provider::S3, "my.bucket", "a/b=c")),
        ("gs://b/p", bucket(Provider::Gcs, "b", "p")),
        ("az://b/p", bucket(Provider::Azure, "b", "p")),
    ];
    for (text, url) in good {
        assert_eq!(text.parse::<StoreUrl>(), Ok(url.clone()), "{text}");
        assert_eq!(url.to_string().parse::<StoreUrl>(), Ok(url), "{text} printed and read again");
    }
}

#[test]
fn wrong_urls_name_the_value_and_the_rule() {
    let wrong = [
        ("", "known forms are memory:"),
        ("./tenure.db", "has no scheme"),
        ("redis://localhost", "unknown scheme \"redis\""),
        ("https://s3.amazonaws.com/b", "unknown scheme \"https\""),
        ("memory:a/b", "a memory store's name"),
        ("sqlite:", "path of the database file is missing"),
        ("sqlite://", "path of the database file is missing"),
        ("sqlite::memory:", "use memory:"),
        ("sqlite:a.db?mode=ro", "no options"),
        ("s3:bucket", "must begin with s3://"),
        ("s3://", "the bucket is missing"),
        ("gs:///prefix", "the bucket is missing"),
        ("az://", "az://<bucket>"),
        ("s3://bu cket", "a bucket's name"),
        ("s3://../x", "a bucket's name"),
        ("s3://b/a//c", "prefix segment \"\""),
        ("s3://b/../c", "prefix segment \"..\""),
        ("s3://b/ü", "prefix segment"),
        ("s3://b/p?region=x", "takes no options"),
        ("s3://b/p#x", "takes no options"),
    ];
    for (text, rule) in wrong {
        let error = text.parse::<StoreUrl>().expect_err(text).to_string();
        assert!(error.contains(rule), "{text}: {error}");
    }
    for huge in ["x".repeat(100_000) + ":", format!("s3://{}", "b".repeat(100_000)), "ü".repeat(100_000)] {
        let error = huge.parse::<StoreUrl>().expect_err("far too long").to_string();
        assert!(error.chars().count() < 700, "{} characters", error.len());
    }
    let long = format!("s3://b/{}", "x".repeat(513));
    assert!(long.parse::<StoreUrl>().unwrap_err().to_string().contains("513 bytes"));
}

#[test]
fn credentials_in_a_url_are_refused_and_not_repeated() {
    for text in ["s3://AKID:hunter2@bucket/p", "s3://bucket/p?secret=hunter2", "https://u:hunter2@host/b"] {
        let error = text.parse::<StoreUrl>().unwrap_err().to_string();
        assert!(!error.contains("hunter2") && !error.contains("AKID"), "{error}");
    }
    let credentials = Credentials { access_key: "AKID".to_owned(), secret_key: "hunter2".to_owned() };
    let options = OpenOptions { credentials: Some(credentials), ..OpenOptions::default() };
    let shown = format!("{options:?}");
    assert!(!shown.contains("hunter2") && !shown.contains("AKID"), "{shown}");
}

#[tokio::test]
async fn wrong_settings_are_refused_before_anything_is_opened() {
    let millis = Duration::from_millis;
    let with = |change: &dyn Fn(&mut OpenOptions)| {
        let mut options = OpenOptions::default();
        change(&mut options);
        options
    };
    let endpoint = |text: &str| {
        let text = text.to_owned();
        with(&move |options| options.endpoint = Some(text.clone()))
    };
    let wrong = [
        (with(&|options| options.request_timeout = millis(1)), "request timeout"),
        (with(&|options| options.connect_timeout = millis(0)), "connect timeout"),
        (with(&|options| options.connect_timeout = millis(60_000)), "connect timeout"),
        (endpoint("ftp://x"), "must begin with https:// or http://"),
        (endpoint("nonsense"), "not a URL"),
        (endpoint("http://user:hunter2@host"), "must not hold credentials"),
        (endpoint("http://host/?x=1"), "query"),
    ];
    for (options, rule) in wrong {
        let error = open_str("s3://bucket", &options).await.expect_err(rule);
        assert!(error.is_usage() && matches!(error, OpenError::Setting { .. }), "{error:?}");
        assert!(error.to_string().contains(rule) && !error.to_string().contains("hunter2"), "{error}");
    }
}

#[tokio::test]
async fn a_named_memory_store_is_shared_and_an_unnamed_one_is_not() {
    let options = OpenOptions::default();
    let put = async |url: &str| {
        let lanes = open_str(url, &options).await.unwrap();
        lanes.lease.put("k", "x".into(), Condition::Absent).await
    };
    assert!(matches!(put("memory:urls-test").await, Write::Won(_)));
    assert_eq!(put("memory:urls-test").await, Write::Lost);
    assert!(matches!(put("memory:").await, Write::Won(_)));
    assert!(matches!(put("memory:").await, Write::Won(_)));
    let lanes = open_str("memory:", &options).await.unwrap();
    lanes.lease.put("k", "x".into(), Condition::Absent).await;
    assert!(matches!(lanes.bulk.get("k", None).await, Read::Found(_)), "both lanes are one store");
}

#[tokio::test]
async fn descriptions_say_where_and_hold_no_secret() {
    let credentials = Credentials { access_key: "AKID".to_owned(), secret_key: "hunter2".to_owned() };
    let options = OpenOptions {
        endpoint: Some("http://127.0.0.1:9".to_owned()),
        credentials: Some(credentials),
        ..OpenOptions::default()
    };
    let lanes = open_str("s3://bucket/some/prefix", &options).await.unwrap();
    let text = lanes.lease.describe();
    assert!(text.starts_with("s3://bucket/some/prefix at http://127.0.0.1:9 (region "), "{text}");
    let shown = format!("{lanes:?} {text}");
    assert!(!shown.contains("hunter2") && !shown.contains("AKID"), "{shown}");
    assert!(!Arc::ptr_eq(&lanes.lease, &lanes.bulk), "a bucket has two connection pools");
}

#[test]
fn services_that_take_one_write_a_second_are_known() {
    let limited = |url: &str, endpoint| one_write_a_second(&url.parse().unwrap(), endpoint);
    assert_eq!(limited("gs://b/p", None), Some("Google Cloud Storage"));
    for endpoint in ["https://abc.r2.cloudflarestorage.com", "https://ABC.eu.R2.CloudflareStorage.com/"] {
        assert_eq!(limited("s3://b", Some(endpoint)), Some("Cloudflare R2"));
        assert_eq!(limited("az://b", Some(endpoint)), None);
        assert_eq!(limited("sqlite:x.db", Some(endpoint)), None);
    }
    for endpoint in ["https://s3.amazonaws.com", "https://r2.cloudflarestorage.com.example", "x", ""] {
        assert_eq!(limited("s3://r2.cloudflarestorage.com", Some(endpoint)), None, "{endpoint}");
    }
}
