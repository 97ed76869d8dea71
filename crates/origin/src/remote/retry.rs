//! Which failures are worth another try, and when.
//!
//! Waits double from `backoff` to `backoff_limit`, each cut by up to half so that
//! clients do not come back in step; a server's `Retry-After` is a least wait. The jitter is a
//! hash of who waits and how often it did, so that a run can be repeated.
//!
//! What bounds the whole is the deadline, not a count: a wait that would pass it fails at once.
//! The deadline is for progress, however long the whole takes: bytes that never came before
//! begin it anew, and the time in which bytes come again, because a read had to start over, is
//! not counted. So a read that goes on never fails at its deadline, and one that starts over
//! again and again does.

use std::error::Error as StdError;
use std::time::Duration;

use forebay_format::hash;
use object_store::client::HttpError;
use tokio::time::Instant;

use super::Remote;
use super::http::Refusal;
use crate::{Error, ReadSettings};

/// Why an attempt failed.
#[derive(Debug)]
pub(crate) enum Fault {
    /// May pass.
    Transient {
        retry_after: Option<Duration>,
        cause: String,
    },
    /// The server gave the whole object where a part was asked for.
    NotPartial,
    /// Will not pass.
    Final(Error),
}

impl Fault {
    pub(crate) fn transient(cause: impl Into<String>) -> Self {
        Self::Transient {
            retry_after: None,
            cause: cause.into(),
        }
    }
}

/// Bytes that must come within the deadline to move it: a server that sends one now and then
/// does not hold a read up for ever.
const LEAST: u64 = 4096;

/// One operation's tries.
#[derive(Debug)]
pub(crate) struct Patience<'a> {
    settings: &'a ReadSettings,
    name: String,
    end: Instant,
    /// Bytes that had come when the deadline last began anew.
    reached: u64,
    /// Where the bytes of this attempt were when the deadline was last moved, and when that was.
    mark: (u64, Instant),
    attempts: u32,
    cause: String,
}

impl<'a> Patience<'a> {
    pub(crate) fn new(settings: &'a ReadSettings, name: String) -> Self {
        let cause = "the request was not answered".to_owned();
        let now = Instant::now();
        Self {
            settings,
            name,
            end: now + settings.deadline,
            reached: 0,
            mark: (0, now),
            attempts: 1,
            cause,
        }
    }

    /// A request begins that will bring bytes from `at` on.
    pub(crate) fn begin(&mut self, at: u64) {
        self.mark = (at, Instant::now());
    }

    /// A request has brought the bytes up to `at`.
    pub(crate) fn advance(&mut self, at: u64) {
        let (marked, since) = self.mark;
        if at < marked {
            self.begin(at); // another request has taken over, from the start
        } else if at - marked >= LEAST {
            self.mark = (at, Instant::now());
            self.end += since.elapsed();
        }
        if at >= self.reached.saturating_add(LEAST) {
            self.reached = at;
            self.end = Instant::now() + self.settings.deadline;
        }
    }

    /// When an attempt is given up if no byte comes until then.
    pub(crate) fn stalled(&self) -> Instant {
        (Instant::now() + self.stall()).min(self.end)
    }

    /// How long an attempt may go without a byte before it is given up for another.
    pub(crate) fn stall(&self) -> Duration {
        self.settings.deadline / 4
    }

    /// Waits until the next try is due, or gives the error if there shall be none.
    pub(crate) async fn wait(&mut self, fault: Fault) -> Result<(), Error> {
        let retry_after = match fault {
            Fault::Final(error) => return Err(error),
            Fault::NotPartial => None,
            Fault::Transient { retry_after, cause } => {
                self.cause = cause;
                retry_after
            }
        };
        let wait = self.backoff().max(retry_after.unwrap_or_default());
        if wait >= self.end.saturating_duration_since(Instant::now()) {
            return Err(self.over());
        }
        self.attempts += 1;
        tokio::time::sleep(wait).await;
        Ok(())
    }

    /// The error of an operation whose deadline has passed.
    pub(crate) fn over(&self) -> Error {
        Error::Unavailable {
            name: self.name.clone(),
            deadline: self.settings.deadline,
            attempts: self.attempts,
            cause: self.cause.clone(),
        }
    }

    fn backoff(&self) -> Duration {
        let doubled = self
            .settings
            .backoff
            .saturating_mul(1 << (self.attempts - 1).min(16));
        let longest = doubled.min(self.settings.backoff_limit);
        let seed = format!("{} {} {}", std::process::id(), self.name, self.attempts);
        let fraction = (hash(seed.as_bytes()) >> 11) as f64 / (1u64 << 53) as f64;
        longest.mul_f64(0.5 + 0.5 * fraction)
    }
}

impl Remote {
    /// Runs an operation until it succeeds, fails for good, or its deadline passes.
    pub(crate) async fn patiently<T, F>(
        &self,
        name: &str,
        mut operation: impl FnMut() -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<T, object_store::Error>>,
    {
        let mut patience = Patience::new(&self.settings, self.show(name));
        loop {
            let fault = match tokio::time::timeout(patience.stall(), operation()).await {
                Ok(Ok(value)) => return Ok(value),
                Ok(Err(error)) => self.classify(name, error),
                Err(_) => Fault::transient("the server does not answer"),
            };
            patience.wait(fault).await?;
        }
    }

    /// What an error of the store means for the object `name`.
    pub(crate) fn classify(&self, name: &str, error: object_store::Error) -> Fault {
        let shown = if name.is_empty() {
            self.url.clone()
        } else {
            self.show(name)
        };
        if let Some(refusal) = find::<Refusal>(&error) {
            return self.refused(refusal, shown);
        }
        let cause = cause(&error);
        if matches!(error, object_store::Error::NotSupported { .. })
            || cause.contains("non-partial response")
        {
            return Fault::NotPartial;
        }
        if find::<HttpError>(&error).is_some() {
            return Fault::transient(cause);
        }
        Fault::Final(Error::Refused { name: shown, cause })
    }

    fn refused(&self, refusal: &Refusal, name: String) -> Fault {
        let cause = refusal.to_string();
        if refusal.may_pass() {
            return Fault::Transient {
                retry_after: refusal.retry_after,
                cause,
            };
        }
        let says = |codes: &[&str]| codes.iter().any(|code| refusal.body().contains(code));
        let bad_key = [
            "ExpiredToken",
            "InvalidToken",
            "InvalidAccessKeyId",
            "AuthorizationHeaderMalformed",
        ];
        Fault::Final(match refusal.status {
            401 | 403 => Error::Denied { name, cause },
            400 if says(&bad_key) => Error::Denied { name, cause },
            404 if says(&["NoSuchBucket", "ContainerNotFound"]) => Error::NoBucket {
                url: self.url.clone(),
            },
            404 => Error::Missing { name },
            // If-Match failed, or the range lies outside of what the object has become.
            412 | 416 => Error::Changed { name },
            _ => Error::Refused { name, cause },
        })
    }
}

fn find<'a, T: StdError + 'static>(error: &'a (dyn StdError + 'static)) -> Option<&'a T> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        next = error.source();
    }
    None
}

/// The causes that say something, in one line: the store layers repeat each other.
fn cause(error: &(dyn StdError + 'static)) -> String {
    const LONGEST: usize = 400;
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(error) = next {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        next = error.source();
    }
    text.retain(|c| !c.is_control());
    text = without_secrets(&text);
    if let Some((at, _)) = text.char_indices().nth(LONGEST) {
        text.truncate(at);
        text.push_str("...");
    }
    text
}

/// The text with every address in it as [`crate::redact`] shows it.
pub(crate) fn without_secrets(text: &str) -> String {
    let is_end = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '(' | ')' | '<' | '>');
    text.split_inclusive(is_end)
        .map(|word| {
            let address = word.trim_end_matches(is_end);
            crate::redact(address) + &word[address.len()..]
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_server_that_asks_for_eternity_ends_the_tries() {
        let settings = ReadSettings::default();
        let mut patience = Patience::new(&settings, "a".to_owned());
        let fault = Fault::Transient {
            retry_after: Some(Duration::from_secs(u64::MAX)),
            cause: "busy".to_owned(),
        };
        let error = patience.wait(fault).await.unwrap_err();
        assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    }

    #[test]
    fn addresses_in_a_cause_lose_their_secrets() {
        assert_eq!(
            without_secrets("error sending request (http://me:pass@host:1/b?sig=x): refused"),
            "error sending request (http://host:1/b): refused"
        );
        assert_eq!(without_secrets("plain words, a/b?c"), "plain words, a/b?c");
    }

    #[test]
    fn waits_double_up_to_their_limit_and_differ_by_name() {
        let settings = ReadSettings::default();
        let mut patience = Patience::new(&settings, "a".to_owned());
        for attempt in 1..30 {
            patience.attempts = attempt;
            let longest = Duration::from_millis(100)
                .saturating_mul(1 << (attempt - 1).min(16))
                .min(settings.backoff_limit);
            let wait = patience.backoff();
            assert!(
                wait >= longest / 2 && wait <= longest,
                "attempt {attempt}: {wait:?}"
            );
        }
        let other = Patience {
            attempts: 29,
            ..Patience::new(&settings, "b".to_owned())
        };
        assert_ne!(patience.backoff(), other.backoff());
    }

    #[tokio::test]
    async fn a_wait_past_the_deadline_fails_at_once() {
        let settings = ReadSettings {
            deadline: Duration::from_secs(5),
            ..ReadSettings::default()
        };
        let mut patience = Patience::new(&settings, "s3://b/x".to_owned());
        let fault = Fault::Transient {
            retry_after: Some(Duration::from_secs(3600)),
            cause: "server answered 503".into(),
        };
        let error = patience.wait(fault).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "s3://b/x: no answer within the deadline of 5s (1 attempts): server answered 503"
        );
    }
}
