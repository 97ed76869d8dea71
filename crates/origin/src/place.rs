//! Where a dataset is: a directory of this machine, or a store elsewhere.

use std::path::{Path, PathBuf};

use url::Url;

use crate::Error;

/// A dataset's root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    Local(PathBuf),
    Remote(Url),
}

impl Place {
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        if text.is_empty() {
            return Err(Error::url(text, "an address is needed"));
        }
        if !text.contains("://") {
            return Ok(Self::Local(home(text)));
        }
        let url = Url::parse(text).map_err(|error| Error::url(text, error.to_string()))?;
        match url.scheme() {
            "file" => {
                let path = url
                    .to_file_path()
                    .map_err(|()| Error::url(text, "not an absolute path of this machine"))?;
                Ok(Self::Local(path))
            }
            "s3" | "s3a" | "gs" | "az" | "adl" | "azure" | "abfs" | "abfss" | "http" | "https" => {
                if url.host_str().is_none_or(str::is_empty) {
                    return Err(Error::url(text, "no bucket or host in it"));
                }
                let is_http = matches!(url.scheme(), "http" | "https");
                let has_user = !url.username().is_empty() || url.password().is_some();
                if url.query().is_some() || is_http && has_user {
                    return Err(Error::url(
                        text,
                        "user names, passwords and queries in an address are not used; \
                         pass credentials by storage_options",
                    ));
                }
                Ok(Self::Remote(url))
            }
            scheme => {
                let known = "file://, s3://, gs://, az://, http:// or https://";
                Err(Error::url(
                    text,
                    format!("{scheme}:// is not known; use a path, {known}"),
                ))
            }
        }
    }

    /// The address to keep and to show: the same for the same root, without secrets.
    pub(crate) fn show(&self) -> String {
        match self {
            Self::Local(path) => absolute(path).to_string_lossy().into_owned(),
            Self::Remote(url) => redact(url.as_str()).trim_end_matches('/').to_owned(),
        }
    }
}

fn absolute(path: &Path) -> PathBuf {
    path.canonicalize()
        .or_else(|_| std::path::absolute(path))
        .unwrap_or_else(|_| path.to_owned())
}

/// As Python's `expanduser`, for the plain `~` and `~/...`.
fn home(text: &str) -> PathBuf {
    let rest = match text.strip_prefix('~') {
        Some("") => "",
        Some(rest) if rest.starts_with('/') => &rest[1..],
        _ => return PathBuf::from(text),
    };
    std::env::home_dir().map_or_else(|| PathBuf::from(text), |home| home.join(rest))
}

/// An address without user name, password, query and fragment, where secrets hide.
pub fn redact(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else {
        return text.to_owned();
    };
    let end = rest.find(['?', '#']).unwrap_or(rest.len());
    let rest = &rest[..end];
    let host_end = rest.find('/').unwrap_or(rest.len());
    let (host, path) = rest.split_at(host_end);
    // az://container@account.host is an address, not a secret; user:password@ is.
    let host = match host.rsplit_once('@') {
        Some((user, host)) if user.contains(':') || matches!(scheme, "http" | "https") => host,
        _ => host,
    };
    format!("{scheme}://{host}{path}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_in_an_address_are_not_shown() {
        for (text, shown) in [
            ("https://user:pass@host/a?sig=secret#x", "https://host/a"),
            ("https://token@host/a", "https://host/a"),
            ("s3://key:secret@bucket/a", "s3://bucket/a"),
            (
                "abfss://box@account.dfs.core.windows.net/a",
                "abfss://box@account.dfs.core.windows.net/a",
            ),
            ("/plain/path?x", "/plain/path?x"),
        ] {
            assert_eq!(redact(text), shown);
        }
    }

    #[test]
    fn a_path_and_a_file_url_are_the_same_place() {
        assert_eq!(
            Place::parse("/data/train").unwrap(),
            Place::Local("/data/train".into())
        );
        assert_eq!(
            Place::parse("file:///data/my%20train").unwrap(),
            Place::Local("/data/my train".into())
        );
    }

    #[test]
    fn an_unknown_scheme_names_the_known_ones() {
        let error = Place::parse("ftp://host/x").unwrap_err();
        assert!(
            error
                .to_string()
                .contains("ftp:// is not known; use a path, file://, s3://"),
            "{error}"
        );
    }

    #[test]
    fn a_url_without_a_bucket_is_refused() {
        assert!(
            Place::parse("s3:///train")
                .unwrap_err()
                .to_string()
                .contains("no bucket")
        );
    }

    #[test]
    fn an_http_address_with_a_password_is_refused_without_showing_it() {
        let error = Place::parse("http://me:hunter2@host/x?sig=abc")
            .unwrap_err()
            .to_string();
        assert!(
            !error.contains("hunter2") && !error.contains("abc"),
            "{error}"
        );
    }
}
