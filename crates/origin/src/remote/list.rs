//! What a store has beneath the root.

use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStoreExt as _};
use tokio::time::timeout;

use super::Remote;
use super::retry::{Fault, Patience};
use super::version::validator;
use crate::Error;

/// An object, named relative to the root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Object {
    pub(crate) name: String,
    pub(crate) length: u64,
    pub(crate) validator: u64,
}

/// HEAD requests at a time.
const HEADS: usize = 32;

impl Remote {
    /// Every object beneath the root; none is an error. A listing that breaks goes on after the
    /// last name it gave.
    pub(crate) async fn list(&self, found: impl Fn(u64)) -> Result<Vec<Object>, Error> {
        let mut objects: Vec<Object> = Vec::new();
        let mut last: Option<Path> = None;
        let mut patience = Patience::new(&self.settings, self.url.clone());
        loop {
            let listing = match &last {
                Some(last) => self.store.list_with_offset(Some(&self.prefix), last),
                None => self.store.list(Some(&self.prefix)),
            };
            let before = objects.len();
            let result = self
                .drain(listing, patience.stall(), &mut objects, &mut last, &found)
                .await;
            let fault = match result {
                Ok(()) if objects.is_empty() => {
                    return Err(Error::NoSuchPrefix {
                        url: self.url.clone(),
                    });
                }
                Ok(()) => return Ok(objects),
                Err(fault) => fault,
            };
            if objects.len() > before {
                patience = Patience::new(&self.settings, self.url.clone()); // it does go on
            }
            match fault {
                Fault::Final(Error::Missing { .. }) if !self.is_http => {
                    return Err(Error::NoBucket {
                        url: self.url.clone(),
                    });
                }
                Fault::Final(Error::Refused { cause, .. }) if self.is_http => {
                    return Err(Error::CannotList {
                        url: self.url.clone(),
                        cause,
                    });
                }
                fault => patience.wait(fault).await?,
            }
        }
    }

    async fn drain(
        &self,
        mut listing: stream::BoxStream<'_, object_store::Result<ObjectMeta>>,
        stall: Duration,
        objects: &mut Vec<Object>,
        last: &mut Option<Path>,
        found: &impl Fn(u64),
    ) -> Result<(), Fault> {
        loop {
            let next = timeout(stall, listing.next()).await;
            match next.map_err(|_| Fault::transient("the server does not answer"))? {
                None => return Ok(()),
                Some(Err(error)) => return Err(self.classify("", error)),
                Some(Ok(meta)) => {
                    if let Some(object) = self.object(&meta) {
                        objects.push(object);
                        found(1);
                    }
                    *last = Some(meta.location);
                }
            }
        }
    }

    /// `None` for the root itself, which some stores list as an empty object.
    fn object(&self, meta: &ObjectMeta) -> Option<Object> {
        let name = meta.location.as_ref().strip_prefix(self.prefix.as_ref())?;
        let name = name.strip_prefix('/').unwrap_or(name);
        (!name.is_empty()).then(|| Object {
            name: name.to_owned(),
            length: meta.size,
            validator: validator(meta),
        })
    }

    /// What the store says about each of these, asked one by one.
    pub(crate) async fn heads(
        &self,
        names: Vec<String>,
        found: impl Fn(u64),
    ) -> Result<Vec<Object>, Error> {
        let found = &found;
        stream::iter(names)
            .map(|name| async move {
                let path = self.path(&name)?;
                let meta = self.patiently(&name, || self.store.head(&path)).await?;
                found(1);
                Ok(Object {
                    name,
                    length: meta.size,
                    validator: validator(&meta),
                })
            })
            .buffered(HEADS)
            .try_collect()
            .await
    }

    /// Whether asking for a listing is no use.
    pub(crate) fn is_http(&self) -> bool {
        self.is_http
    }
}
