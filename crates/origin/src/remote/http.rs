//! The HTTP client, wrapped so that refusals keep what a retry needs to know.
//!
//! `object_store` drops the headers of a failed response, and for some requests its
//! status. Here each response passes first: one that says no becomes an error that
//! carries status, `Retry-After` and the start of the body.

use futures_util::StreamExt;
use std::fmt;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
    ReqwestConnector,
};
use object_store::{ClientOptions, HeaderMap};

/// A response that says no.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) status: u16,
    pub(crate) retry_after: Option<Duration>,
    body: String,
}

impl Refusal {
    /// Whether the same request may succeed later.
    pub(crate) fn may_pass(&self) -> bool {
        self.status >= 500 && self.status != 501 || matches!(self.status, 408 | 425 | 429)
    }

    pub(crate) fn body(&self) -> &str {
        &self.body
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "server answered {}", self.status)?;
        if self.body.is_empty() {
            Ok(())
        } else {
            write!(f, ": {}", self.body)
        }
    }
}

impl std::error::Error for Refusal {}

#[derive(Debug)]
pub(crate) struct Connector;

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(Watched(
            ReqwestConnector::default().connect(options)?,
        )))
    }
}

#[derive(Debug)]
struct Watched(HttpClient);

/// Bytes of a refusal's body that are looked at.
const KEPT: usize = 4096;
/// Characters of a plain one that are shown.
const SHOWN: usize = 400;

#[async_trait]
impl HttpService for Watched {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        // Other methods are the credential providers', which look at statuses themselves.
        let is_read = matches!(request.method().as_str(), "GET" | "HEAD" | "PROPFIND");
        let response = self.0.execute(request).await?;
        let status = response.status();
        if !is_read || !(status.is_client_error() || status.is_server_error()) {
            return Ok(response);
        }
        let retry_after = retry_after(response.headers());
        let body = reason(&first_bytes(response).await);
        let refusal = Refusal {
            status: status.as_u16(),
            retry_after,
            body,
        };
        Err(HttpError::new(HttpErrorKind::Unknown, refusal))
    }
}

/// The beginning of a refusal's body. One that does not come, or does not end, is no
/// reason to forget the status.
async fn first_bytes(response: HttpResponse) -> Vec<u8> {
    let mut frames = response.into_body().bytes_stream();
    let mut body = Vec::new();
    while body.len() < KEPT {
        match frames.next().await {
            Some(Ok(bytes)) => body.extend_from_slice(&bytes[..bytes.len().min(KEPT)]),
            Some(Err(_)) | None => break,
        }
    }
    body.truncate(KEPT);
    body
}

/// What a refusal says, without what it may repeat of the request: S3 answers a bad
/// token or signature with the token or key itself, in elements of their own.
fn reason(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let element = |name: &str| {
        let (_, rest) = text.split_once(&format!("<{name}>"))?;
        Some(rest.split('<').next().unwrap_or_default().to_owned())
    };
    let mut reason = match (element("Code"), element("Message")) {
        (None, None) if text.contains('<') => String::new(),
        (None, None) => text.chars().take(SHOWN).collect(),
        (code, message) => {
            let parts: Vec<_> = code.into_iter().chain(message).collect();
            parts.join(": ")
        }
    };
    reason.retain(|c| !c.is_control());
    reason
}

/// `Retry-After`, in seconds or as a date.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get("retry-after")?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = httpdate::parse_http_date(text).ok()?;
    Some(date.duration_since(SystemTime::now()).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(value: &str) -> Option<Duration> {
        let mut headers = HeaderMap::new();
        headers.insert("retry-after", value.parse().unwrap());
        retry_after(&headers)
    }

    #[test]
    fn of_a_refusal_only_its_code_and_message_are_kept() {
        let body = "<Error><Code>ExpiredToken</Code><Message>The token has expired</Message>\
                    <Token-0>secret</Token-0></Error>";
        assert_eq!(
            reason(body.as_bytes()),
            "ExpiredToken: The token has expired"
        );
        assert_eq!(reason(b"<html>secret</html>"), "");
        assert_eq!(reason(b"slow down"), "slow down");
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        assert_eq!(parse("7"), Some(Duration::from_secs(7)));
        assert_eq!(parse("Wed, 21 Oct 2015 07:28:00 GMT"), Some(Duration::ZERO));
        let later = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(100));
        assert!(parse(&later).unwrap() > Duration::from_secs(10));
        assert_eq!(parse("soon"), None);
    }
}
