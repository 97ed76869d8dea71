//! One read: a range of an object, delivered in pieces, whatever the network does.
//!
//! ```text
//! GET -> 40 KB, connection breaks
//! GET Range: 40 KB.., If-Match: the first response's ETag -> rest       resumed
//! GET -> 503, Retry-After: 2 -> wait -> GET                              retried
//! GET -> nothing for hedge_after -> second GET; whoever ends first wins  hedged
//! ```
//!
//! Each response is checked before its first byte is used: ETag against the index,
//! size against the index. Bytes a retry brings again are the same bytes.

use std::ops::Range;
use std::sync::OnceLock;

use bytes::Bytes;
use forebay_format::hash;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream, TryStreamExt};
use object_store::{GetOptions, GetRange, ObjectMeta, ObjectStoreExt as _};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::retry::{Fault, Patience};
use super::{Remote, UNIT};
use crate::Error;

/// What to read.
#[derive(Debug, Clone)]
pub(crate) struct Want {
    pub(crate) name: String,
    /// Which part of the object.
    pub(crate) range: Range<u64>,
    /// Whether that part is all of it.
    pub(crate) whole: bool,
    /// The object's validator in the index, 0 for none.
    pub(crate) validator: u64,
}

impl Want {
    fn length(&self) -> u64 {
        self.range.end - self.range.start
    }
}

/// A running response: where its next byte belongs, and the bytes to come.
struct Leg<'a> {
    at: u64,
    body: BoxStream<'a, Result<Bytes, Fault>>,
}

impl Remote {
    /// Reads `want` and hands it over in pieces, each with its place in the range.
    pub(crate) async fn fetch(
        &self,
        want: &Want,
        mut deliver: impl FnMut(u64, &[u8]) + Send,
    ) -> Result<(), Error> {
        if want.length() == 0 && !want.whole {
            return Ok(());
        }
        // A read larger than the whole budget takes all of it, and goes alone.
        let units = want.length().div_ceil(UNIT).clamp(1, self.units());
        let _request = self.requests.acquire().await;
        let _bytes = self.bytes.acquire_many(units as u32).await;
        let mut patience = Patience::new(&self.settings, self.show(&want.name));
        let etag = OnceLock::new();
        let mut received = 0;
        loop {
            let attempt = self.attempt(want, &etag, &mut received, &patience, &mut deliver);
            let fault = match timeout_at(patience.end(), attempt).await {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(fault)) => fault,
                Err(_) => return Err(patience.over()),
            };
            if matches!(fault, Fault::NotPartial) {
                if !want.whole {
                    let cause = "server does not support range requests".to_owned();
                    return Err(Error::Refused {
                        name: self.show(&want.name),
                        cause,
                    });
                }
                received = 0; // the server cannot resume: from the start, then
            }
            patience.wait(fault).await?;
        }
    }

    fn units(&self) -> u64 {
        (self.settings.bytes_in_flight / UNIT).clamp(1, u64::from(u32::MAX))
    }

    /// One attempt from byte `received` on; a second request joins it if it is slow.
    async fn attempt(
        &self,
        want: &Want,
        etag: &OnceLock<String>,
        received: &mut u64,
        patience: &Patience<'_>,
        deliver: &mut (impl FnMut(u64, &[u8]) + Send),
    ) -> Result<(), Fault> {
        let mut legs = vec![self.leg(want, etag, *received)];
        let mut hedge = self
            .settings
            .hedge_after
            .map(|after| Instant::now() + after);
        let mut stalled = Instant::now() + patience.stall();
        loop {
            let (leg, piece) = tokio::select! {
                next = next(&mut legs) => next,
                () = sleep_until(hedge.unwrap_or(stalled)), if hedge.is_some() => {
                    hedge = None;
                    legs.push(self.leg(want, etag, *received));
                    continue;
                }
                () = sleep_until(stalled) => return Err(Fault::transient("no byte came for too long")),
            };
            match piece {
                Some(Ok(bytes)) => {
                    let at = legs[leg].at;
                    let end = at + bytes.len() as u64;
                    if end > want.length() {
                        let cause = "server sent more than was asked for".to_owned();
                        return Err(Fault::Final(Error::Refused {
                            name: self.show(&want.name),
                            cause,
                        }));
                    }
                    deliver(at, &bytes);
                    legs[leg].at = end;
                    if end > *received {
                        *received = end;
                        stalled = Instant::now() + patience.stall();
                    }
                }
                None if legs[leg].at == want.length() => return Ok(()),
                // One leg is lost: if the other runs, it goes on alone.
                failed => {
                    legs.remove(leg);
                    if legs.is_empty() {
                        return Err(match failed {
                            Some(Err(fault)) => fault,
                            _ => Fault::transient(format!(
                                "body ended at byte {received} of {}",
                                want.length()
                            )),
                        });
                    }
                }
            }
        }
    }

    fn leg<'a>(&'a self, want: &'a Want, etag: &'a OnceLock<String>, at: u64) -> Leg<'a> {
        Leg {
            at,
            body: stream::once(self.respond(want, etag, at))
                .try_flatten()
                .boxed(),
        }
    }

    /// Sends the request for all from byte `at` on; gives its body once the response is checked.
    async fn respond<'a>(
        &'a self,
        want: &'a Want,
        etag: &'a OnceLock<String>,
        at: u64,
    ) -> Result<BoxStream<'a, Result<Bytes, Fault>>, Fault> {
        if at > 0 && at == want.length() {
            return Ok(stream::empty().boxed());
        }
        let path = self.path(&want.name).map_err(Fault::Final)?;
        let range = want.range.start + at..want.range.end;
        let options = GetOptions {
            range: (!want.whole || at > 0).then_some(GetRange::Bounded(range)),
            // A weak ETag never matches.
            if_match: etag.get().filter(|etag| !etag.starts_with("W/")).cloned(),
            ..GetOptions::default()
        };
        let response = self
            .store
            .get_opts(&path, options)
            .await
            .map_err(|error| self.classify(&want.name, error))?;
        self.check(want, etag, &response.meta)
            .map_err(Fault::Final)?;
        let body = response
            .into_stream()
            .map_err(|error| self.classify(&want.name, error));
        Ok(body.boxed())
    }

    /// Whether a response is about the object that was indexed, and the same as the response before.
    fn check(&self, want: &Want, etag: &OnceLock<String>, meta: &ObjectMeta) -> Result<(), Error> {
        let name = || self.show(&want.name);
        if want.whole && meta.size != want.length() {
            return Err(Error::Size {
                name: name(),
                found: meta.size,
                expected: want.length(),
            });
        }
        if want.validator != 0 && validator(meta) != want.validator {
            return Err(Error::Changed { name: name() });
        }
        let found = meta.e_tag.clone().unwrap_or_default();
        if found != *etag.get_or_init(|| found.clone()) {
            return Err(Error::Changed { name: name() });
        }
        Ok(())
    }

    /// The whole of a small object that is not in the index.
    pub(crate) async fn read_whole(&self, name: &str) -> Result<Bytes, Error> {
        let path = self.path(name)?;
        self.patiently(name, || async {
            self.store.get(&path).await?.bytes().await
        })
        .await
    }
}

/// A hash of the ETag, or of the time of the last change where there is none.
pub(crate) fn validator(meta: &ObjectMeta) -> u64 {
    match &meta.e_tag {
        // Some stores quote it in a response and not in a listing.
        Some(etag) => hash(etag.trim_start_matches("W/").trim_matches('"').as_bytes()).max(1),
        None => match meta.last_modified.timestamp_nanos_opt() {
            // 1970 stands for a server that tells no time.
            None | Some(0) => 0,
            Some(nanoseconds) => hash(&nanoseconds.to_le_bytes()).max(1),
        },
    }
}

/// The next piece of whichever leg has one; the older leg goes first.
async fn next(legs: &mut [Leg<'_>]) -> (usize, Option<Result<Bytes, Fault>>) {
    match legs {
        [only] => (0, only.body.next().await),
        [first, second, ..] => tokio::select! {
            biased;
            piece = first.body.next() => (0, piece),
            piece = second.body.next() => (1, piece),
        },
        [] => std::future::pending().await,
    }
}
