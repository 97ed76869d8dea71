//! The client of an object store: from the url, the environment, and the user's options.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::Arc;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::http::HttpBuilder;
use object_store::path::Path;
use object_store::{ClientConfigKey, ObjectStore, ObjectStoreScheme, RetryConfig};
use secrecy::{ExposeSecret, SecretString};
use url::Url;

use super::http::Connector;
use crate::Error;

type Options = BTreeMap<String, SecretString>;

pub(crate) struct Built {
    pub(crate) store: Arc<dyn ObjectStore>,
    pub(crate) prefix: Path,
    pub(crate) identity: String,
}

/// No limit of its own for a whole request: the read's deadline is the limit.
const NO_TIMEOUT: &str = "30 days";

/// Options that a builder takes one by one, whatever the store.
macro_rules! configured {
    ($builder:expr, $key:ty, $timeout:expr, $options:expr) => {{
        let mut builder = $builder.with_http_connector(Connector).with_retry(once());
        builder = builder.with_config($timeout, NO_TIMEOUT);
        for (name, value) in $options {
            let key = key::<$key>(name)?;
            builder = builder.with_config(key, value.expose_secret());
        }
        builder
    }};
}

pub(crate) fn build(url: &Url, options: &Options) -> Result<Built, Error> {
    use_ring();
    let (scheme, prefix) = ObjectStoreScheme::parse(url).map_err(|error| {
        Error::url(
            url.as_str(),
            super::retry::without_secrets(&error.to_string()),
        )
    })?;
    let wrong = |error: object_store::Error| {
        Error::url(
            url.as_str(),
            super::retry::without_secrets(&error.to_string()),
        )
    };
    let mut identity = String::new();
    let store: Arc<dyn ObjectStore> = match scheme {
        ObjectStoreScheme::AmazonS3 => {
            let timeout = AmazonS3ConfigKey::Client(ClientConfigKey::Timeout);
            let builder = AmazonS3Builder::from_env().with_url(url.as_str());
            let builder = configured!(builder, AmazonS3ConfigKey, timeout, options);
            identity = builder
                .get_config_value(&AmazonS3ConfigKey::Endpoint)
                .unwrap_or_default();
            let allow =
                builder.get_config_value(&AmazonS3ConfigKey::Client(ClientConfigKey::AllowHttp));
            check_http(&identity, allow.as_deref())?;
            check_credentials(url, |key| builder.get_config_value(&key))?;
            Arc::new(builder.build().map_err(wrong)?)
        }
        ObjectStoreScheme::GoogleCloudStorage => {
            let timeout = GoogleConfigKey::Client(ClientConfigKey::Timeout);
            let builder = GoogleCloudStorageBuilder::from_env().with_url(url.as_str());
            Arc::new(
                configured!(builder, GoogleConfigKey, timeout, options)
                    .build()
                    .map_err(wrong)?,
            )
        }
        ObjectStoreScheme::MicrosoftAzure => {
            let timeout = AzureConfigKey::Client(ClientConfigKey::Timeout);
            let builder = MicrosoftAzureBuilder::from_env().with_url(url.as_str());
            let builder = configured!(builder, AzureConfigKey, timeout, options);
            identity = builder
                .get_config_value(&AzureConfigKey::Endpoint)
                .unwrap_or_default();
            let allow =
                builder.get_config_value(&AzureConfigKey::Client(ClientConfigKey::AllowHttp));
            check_http(&identity, allow.as_deref())?;
            Arc::new(builder.build().map_err(wrong)?)
        }
        ObjectStoreScheme::Http => {
            let base = &url[..url::Position::BeforePath];
            let builder = HttpBuilder::new()
                .with_url(base)
                .with_config(ClientConfigKey::AllowHttp, "true");
            Arc::new(
                configured!(builder, ClientConfigKey, ClientConfigKey::Timeout, options)
                    .build()
                    .map_err(wrong)?,
            )
        }
        _ => return Err(Error::url(url.as_str(), "not an object store")),
    };
    Ok(Built {
        store,
        prefix,
        identity,
    })
}

/// The one retry policy is ours.
fn once() -> RetryConfig {
    RetryConfig {
        max_retries: 0,
        ..RetryConfig::default()
    }
}

fn key<K: FromStr>(name: &str) -> Result<K, Error> {
    let what = || "this store has no such option".to_owned();
    name.to_ascii_lowercase()
        .parse()
        .map_err(|_| Error::StorageOption {
            option: name.to_owned(),
            what: what(),
        })
}

/// An http endpoint must be allowed by name: the credentials' signature crosses the wire in the open.
fn check_http(endpoint: &str, allow: Option<&str>) -> Result<(), Error> {
    if endpoint.starts_with("http://") && !is_true(allow) {
        let what = format!(
            "set it to \"true\" (or AWS_ALLOW_HTTP=true) to use {}",
            crate::redact(endpoint)
        );
        return Err(Error::StorageOption {
            option: "allow_http".to_owned(),
            what,
        });
    }
    Ok(())
}

/// Whether the store's client takes this for true.
fn is_true(value: Option<&str>) -> bool {
    let lower = value.unwrap_or_default().to_ascii_lowercase();
    ["1", "true", "on", "yes", "y"].contains(&lower.as_str())
}

/// Somebody must say where credentials come from. Without a word the client would ask the address
/// where some clouds tell a machine its role, and wait for it in vain everywhere else.
fn check_credentials(
    url: &Url,
    value: impl Fn(AmazonS3ConfigKey) -> Option<String>,
) -> Result<(), Error> {
    use AmazonS3ConfigKey as Key;
    let sources: [&[Key]; 6] = [
        &[Key::AccessKeyId],
        &[Key::SecretAccessKey],
        &[Key::WebIdentityTokenFile, Key::RoleArn],
        &[Key::ContainerCredentialsRelativeUri],
        &[
            Key::ContainerCredentialsFullUri,
            Key::ContainerAuthorizationTokenFile,
        ],
        &[Key::MetadataEndpoint],
    ];
    let is_given = |keys: &&[Key]| keys.iter().all(|&key| value(key).is_some());
    if is_true(value(Key::SkipSignature).as_deref()) || sources.iter().any(is_given) {
        return Ok(());
    }
    Err(Error::NoCredentials {
        url: crate::redact(url.as_str()),
    })
}

/// TLS by ring, unless the program has chosen already.
fn use_ring() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Another thread may have been quicker: then its choice stands.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(url: &str, options: &[(&str, &str)]) -> String {
        let options = options
            .iter()
            .map(|(name, value)| (name.to_string(), SecretString::from(*value)))
            .collect();
        build(&Url::parse(url).unwrap(), &options)
            .err()
            .unwrap()
            .to_string()
    }

    #[test]
    fn an_unknown_option_is_named_without_its_value() {
        let error = error("s3://bucket/x", &[("aws_acess_key_id", "AKIASECRET")]);
        assert_eq!(
            error,
            "storage option \"aws_acess_key_id\": this store has no such option"
        );
    }

    #[test]
    fn an_http_endpoint_must_be_allowed() {
        let error = error(
            "s3://bucket/x",
            &[("endpoint_url", "http://127.0.0.1:9000")],
        );
        assert!(
            error.contains("allow_http") && error.contains("AWS_ALLOW_HTTP=true"),
            "{error}"
        );
    }

    #[test]
    fn s3_asks_no_metadata_address_unless_told_to() {
        let url = Url::parse("s3://bucket/x").unwrap();
        let check = |given: Option<(AmazonS3ConfigKey, &str)>| {
            check_credentials(&url, |key| {
                given
                    .filter(|(set, _)| *set == key)
                    .map(|(_, value)| value.to_owned())
            })
        };
        let error = check(None).unwrap_err();
        assert_eq!(
            error.to_string(),
            "s3://bucket/x: no credentials were given"
        );
        let hint = error.hint().unwrap();
        assert!(hint.contains("AWS_ACCESS_KEY_ID") && hint.contains("AWS_SKIP_SIGNATURE=true"));
        // A token without a role is no use, and would end at that address as well.
        assert!(check(Some((AmazonS3ConfigKey::WebIdentityTokenFile, "/token"))).is_err());
        assert!(check(Some((AmazonS3ConfigKey::SkipSignature, "false"))).is_err());
        for told in [
            (AmazonS3ConfigKey::AccessKeyId, "k"),
            (AmazonS3ConfigKey::SkipSignature, "true"),
            (AmazonS3ConfigKey::SkipSignature, "1"),
            (
                AmazonS3ConfigKey::MetadataEndpoint,
                "http://169.254.169.254",
            ),
            (AmazonS3ConfigKey::ContainerCredentialsRelativeUri, "/role"),
        ] {
            check(Some(told)).unwrap();
        }
    }

    #[test]
    fn every_kind_of_store_can_be_made() {
        let key = "Z2VoZWlt";
        for (url, options) in [
            (
                "s3://bucket/a/b",
                vec![("aws_access_key_id", "k"), ("aws_secret_access_key", "s")],
            ),
            ("gs://bucket/a/b", vec![("skip_signature", "true")]),
            (
                "az://box/a/b",
                vec![("account_name", "me"), ("account_key", key)],
            ),
            ("https://host:1234/a/b", vec![]),
            ("http://host/a/b", vec![]),
        ] {
            let options = options
                .iter()
                .map(|(name, value)| (name.to_string(), SecretString::from(*value)))
                .collect();
            let built = build(&Url::parse(url).unwrap(), &options)
                .unwrap_or_else(|error| panic!("{url}: {error}"));
            assert_eq!(built.prefix.as_ref(), "a/b", "{url}");
        }
    }
}
