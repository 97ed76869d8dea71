//! One read: a range of an object, delivered in pieces, whatever the network does.
//!
//! ```text
//! GET -> 40 KB, connection breaks
//! GET Range: 40 KB.., If-Match: the first response's ETag -> rest       resumed
//! GET -> 503, Retry-After: 2 -> wait -> GET                              retried
//! GET -> nothing for hedge_after -> second GET; whoever ends first wins  hedged
//! ```
//!
//! Each response is checked before its first byte is used: version and size against the
//! index, and against the response before. Where a server does not tell versions apart, no
//! two responses are joined: a retry begins at the beginning, and of two requests the one
//! that brings a byte goes on alone.

use std::collections::hash_map::Entry;
use std::ops::Range;
use std::sync::PoisonError;

use bytes::Bytes;
use forebay_format::hash;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream, TryStreamExt};
use object_store::{GetOptions, GetRange, ObjectMeta, ObjectStoreExt as _};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::retry::{Fault, Patience};
use super::version::{Seen, version};
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
        let seen = Seen::default();
        let mut received = 0;
        loop {
            let attempt = self.attempt(want, &seen, &mut received, &mut patience, &mut deliver);
            let Err(fault) = attempt.await else {
                return self.learn(want, &seen);
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
            if !seen.is_exact() {
                seen.forget();
                received = 0;
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
        seen: &Seen,
        received: &mut u64,
        patience: &mut Patience<'_>,
        deliver: &mut (impl FnMut(u64, &[u8]) + Send),
    ) -> Result<(), Fault> {
        let mut legs = vec![self.leg(want, seen, *received)];
        patience.begin(*received);
        let mut hedge = self
            .settings
            .hedge_after
            .map(|after| Instant::now() + after);
        let mut stalled = patience.stalled();
        loop {
            let (leg, piece) = tokio::select! {
                next = next(&mut legs) => next,
                () = sleep_until(hedge.unwrap_or(stalled)), if hedge.is_some() => {
                    hedge = None;
                    let at = if seen.is_exact() { *received } else { 0 };
                    legs.push(self.leg(want, seen, at));
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
                    if !seen.is_exact() && legs.len() > 1 {
                        legs = vec![legs.swap_remove(leg)]; // the other may be of another version
                    }
                    *received = end.max(*received);
                    patience.advance(end);
                    stalled = patience.stalled();
                }
                _ if legs[leg].at == want.length() => return Ok(()),
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

    fn leg<'a>(&'a self, want: &'a Want, seen: &'a Seen, at: u64) -> Leg<'a> {
        Leg {
            at,
            body: stream::once(self.respond(want, seen, at))
                .try_flatten()
                .boxed(),
        }
    }

    /// Sends the request for all from byte `at` on; gives its body once the response is checked.
    async fn respond<'a>(
        &'a self,
        want: &'a Want,
        seen: &'a Seen,
        at: u64,
    ) -> Result<BoxStream<'a, Result<Bytes, Fault>>, Fault> {
        if at > 0 && at == want.length() {
            return Ok(stream::empty().boxed());
        }
        let path = self.path(&want.name).map_err(Fault::Final)?;
        let range = want.range.start + at..want.range.end;
        let options = seen.insist(GetOptions {
            range: (!want.whole || at > 0).then_some(GetRange::Bounded(range)),
            ..GetOptions::default()
        });
        let response = self
            .store
            .get_opts(&path, options)
            .await
            .map_err(|error| self.classify(&want.name, error))?;
        self.check(want, seen, &response.meta)
            .map_err(Fault::Final)?;
        let body = response
            .into_stream()
            .map_err(|error| self.classify(&want.name, error));
        Ok(body.boxed())
    }

    /// Whether a response is about the object that was indexed, and the same as the response before.
    fn check(&self, want: &Want, seen: &Seen, meta: &ObjectMeta) -> Result<(), Error> {
        let name = || self.show(&want.name);
        if want.whole && meta.size != want.length() {
            return Err(Error::Size {
                name: name(),
                found: meta.size,
                expected: want.length(),
            });
        }
        if want.validator != 0 && version(meta) != want.validator || !seen.agrees(meta) {
            return Err(Error::Changed { name: name() });
        }
        Ok(())
    }

    /// Remembers which version was read of an object whose version the index does not tell, so
    /// that all reads of one opening are of one version.
    fn learn(&self, want: &Want, seen: &Seen) -> Result<(), Error> {
        let version = seen.version();
        if want.validator != 0 || version == 0 {
            return Ok(());
        }
        let mut learned = self.learned.lock().unwrap_or_else(PoisonError::into_inner);
        let known = match learned.entry(hash(want.name.as_bytes())) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(empty) => *empty.insert(version),
        };
        if known == version {
            return Ok(());
        }
        Err(Error::Changed {
            name: self.show(&want.name),
        })
    }

    /// The whole of an object that is not in the index.
    pub(crate) async fn read_whole(&self, name: &str) -> Result<Vec<u8>, Error> {
        let mut patience = Patience::new(&self.settings, self.show(name));
        loop {
            match self.read_once(name, &mut patience).await {
                Ok(bytes) => return Ok(bytes),
                Err(fault) => patience.wait(fault).await?,
            }
        }
    }

    async fn read_once(&self, name: &str, patience: &mut Patience<'_>) -> Result<Vec<u8>, Fault> {
        let path = self.path(name).map_err(Fault::Final)?;
        let failed = |error| self.classify(name, error);
        let slow = |_| Fault::transient("no byte came for too long");
        let response = timeout_at(patience.stalled(), self.store.get(&path)).await;
        let mut body = response.map_err(slow)?.map_err(failed)?.into_stream();
        let mut bytes = Vec::new();
        patience.begin(0);
        while let Some(piece) = timeout_at(patience.stalled(), body.next())
            .await
            .map_err(slow)?
        {
            bytes.extend_from_slice(&piece.map_err(failed)?);
            patience.advance(bytes.len() as u64);
        }
        Ok(bytes)
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
