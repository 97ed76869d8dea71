//! What a state says: an epoch, how far it got, and how its order is found again.
//!
//! `consumed` counts positions of the epoch's order that all ranks together have used
//! up: k batches of B on each of R ranks are k*B*R. So the state of one rank is the state
//! of all. `batches` counts what each rank has yielded; only where a sampler's own code
//! makes the order is that all there is.

use serde::Serialize;
use serde_json::{Map, Value};

pub(crate) const KIND: &str = "forebay.DataLoader";
const VERSION: u64 = 1;
/// The largest number that the loader takes.
const MOST: u64 = i64::MAX as u64 - 1;

/// A loader's state.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Position {
    version: u64,
    kind: &'static str,
    /// None of a dataset that does not know.
    pub(crate) samples: Option<u64>,
    pub(crate) fingerprint: Option<String>,
    pub(crate) epoch: u64,
    pub(crate) consumed: u64,
    pub(crate) batches: u64,
    pub(crate) order: Option<Order>,
    /// Kept as found.
    #[serde(flatten)]
    pub(crate) other: Map<String, Value>,
}

/// How an epoch's order is found again.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(transparent)]
pub(crate) struct Order {
    /// Checked when it was read; written as it was found.
    members: Map<String, Value>,
    #[serde(skip)]
    pub(crate) kind: OrderKind,
}

/// What an order comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OrderKind {
    /// Known for all epochs; without a seed it is sequential.
    Planned,
    /// A permutation of a seed that was drawn when the epoch began.
    Drawn,
    /// Drawn from a generator that was in a certain state.
    Generator,
    /// A sampler's own: only its batches can be counted.
    Sampler,
    /// An iterable dataset's own, likewise.
    Stream,
}

impl Order {
    fn of(value: Value) -> Result<Option<Self>, String> {
        let members = match value {
            Value::Null => return Ok(None),
            Value::Object(members) => members,
            other => return Err(format!("order is {other}")),
        };
        let kind = match members.get("kind").and_then(Value::as_str) {
            Some("planned") => OrderKind::Planned,
            Some("drawn") => OrderKind::Drawn,
            Some("generator") => OrderKind::Generator,
            Some("sampler") => OrderKind::Sampler,
            Some("stream") => OrderKind::Stream,
            _ => {
                let found = members.get("kind").unwrap_or(&Value::Null);
                return Err(format!("order.kind is {found}"));
            }
        };
        let order = Self { members, kind };
        let is_whole = |value: &Value| value.is_u64() || value.is_i64();
        if order.is_drawn() {
            match kind {
                OrderKind::Planned => {
                    order.member("seed", |value| value.is_null() || is_whole(value))?;
                    order.member("epoch", Value::is_u64)?;
                }
                OrderKind::Drawn => order.member("seed", is_whole)?,
                OrderKind::Generator => order.member("state", Value::is_string)?,
                OrderKind::Sampler | OrderKind::Stream => {}
            }
        } else {
            order.member("between", Value::is_object)?;
        }
        Ok(Some(order))
    }

    fn member(&self, name: &str, fits: impl Fn(&Value) -> bool) -> Result<(), String> {
        match self.members.get(name) {
            None => Err(format!("it has no order.{name}")),
            Some(value) if !fits(value) => Err(format!("order.{name} is {value}")),
            Some(_) => Ok(()),
        }
    }

    /// Whether it is settled; else the state has where its generators are.
    pub(crate) fn is_drawn(&self) -> bool {
        !self.members.contains_key("between")
    }

    /// Whether only batches can be counted.
    pub(crate) fn is_counted_in_batches(&self) -> bool {
        matches!(self.kind, OrderKind::Sampler | OrderKind::Stream)
    }

    /// The same order's epoch `to`, if that is known.
    fn at_epoch(&self, to: u64) -> Option<Self> {
        let mut order = self.clone();
        match self.kind {
            OrderKind::Planned if self.is_drawn() => {
                order.members.insert("epoch".to_owned(), to.into());
                // What another epoch drew from.
                order
                    .members
                    .retain(|name, _| !OF_ONE_EPOCH.contains(&name.as_str()));
                Some(order)
            }
            OrderKind::Sampler | OrderKind::Stream if self.is_drawn() => {
                order.members.retain(|name, _| name == "kind");
                Some(order)
            }
            _ => None,
        }
    }
}

const OF_ONE_EPOCH: [&str; 3] = ["base_seed", "after", "early"];

impl std::fmt::Display for Order {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if !self.is_drawn() {
            return f.write_str("not drawn yet: the state has its generators");
        }
        let member = |name: &str| self.members.get(name).unwrap_or(&Value::Null);
        match self.kind {
            OrderKind::Planned if member("seed").is_null() => {
                write!(f, "sequential, epoch {}", member("epoch"))
            }
            OrderKind::Planned => {
                let (seed, epoch) = (member("seed"), member("epoch"));
                write!(f, "planned: seed {seed}, epoch {epoch}")
            }
            OrderKind::Drawn => write!(f, "drawn: seed {}", member("seed")),
            OrderKind::Generator => {
                let state = member("state").as_str().unwrap_or_default();
                let hash = forebay_format::hash(state.as_bytes());
                write!(f, "from a generator in state {hash:016x}")
            }
            OrderKind::Sampler => f.write_str("a sampler's own"),
            OrderKind::Stream => f.write_str("an iterable dataset's own"),
        }
    }
}

impl Position {
    /// A state from its JSON, or what is wrong with it.
    pub(crate) fn of(mut object: Map<String, Value>) -> Result<Self, String> {
        let version = object.remove("version").unwrap_or_default();
        if version.as_u64() != Some(VERSION) {
            return Err(format!(
                "state has version {version}, this forebay reads {VERSION}"
            ));
        }
        object.remove("kind");
        let mut take = |name: &str| {
            let found = object.remove(name);
            found.ok_or_else(|| format!("state is damaged: it has no {name:?}"))
        };
        let number = |name: &str, value: Value| {
            let whole = value.as_u64().filter(|&number| number <= MOST);
            whole.ok_or_else(|| {
                format!("state is damaged: {name} is {value}, not a whole number from 0")
            })
        };
        let samples = match take("samples")? {
            Value::Null => None,
            value => Some(number("samples", value)?),
        };
        let epoch = number("epoch", take("epoch")?)?;
        let consumed = number("consumed", take("consumed")?)?;
        let batches = number("batches", take("batches")?)?;
        let fingerprint = match take("fingerprint")? {
            Value::String(text) => Some(text),
            Value::Null => None,
            other => return Err(format!("state is damaged: fingerprint is {other}")),
        };
        let order =
            Order::of(take("order")?).map_err(|what| format!("state is damaged: {what}"))?;
        Ok(Self {
            version: VERSION,
            kind: KIND,
            samples,
            fingerprint,
            epoch,
            consumed,
            batches,
            order,
            other: object,
        })
    }

    /// Positions in the epoch's order, where the state tells: a sampler with its own
    /// number of draws may have more or fewer than the dataset has samples.
    pub(crate) fn epoch_length(&self) -> Option<u64> {
        let order = self.order.as_ref()?;
        (order.kind == OrderKind::Planned).then_some(self.samples)?
    }

    /// Whether a sampler or a dataset of the user's has said in its own words where it is,
    /// which nobody else can move.
    pub(crate) fn has_own_state(&self) -> bool {
        let order = self.order.as_ref().map(|order| &order.members);
        let of_order = ["sampler_state", "sampler_iter_state", "early"];
        OWN_STATES.iter().any(|&name| self.other.contains_key(name))
            || order.is_some_and(|members| of_order.iter().any(|&name| members.contains_key(name)))
    }

    /// Goes to the start of epoch `to`; whether its order is known there.
    pub(crate) fn go_to(&mut self, to: u64) -> bool {
        (self.epoch, self.consumed, self.batches) = (to, 0, 0);
        self.other
            .retain(|name, _| !OWN_STATES.contains(&name.as_str()));
        let Some(order) = self.order.take() else {
            return true;
        };
        self.order = order.at_epoch(to);
        self.order.is_some()
    }
}

/// What a dataset says of itself, under the names of torchdata's `StatefulDataLoader`.
const OWN_STATES: [&str; 3] = ["dataset_state", "fetcher_state", "_snapshot"];

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(change: impl FnOnce(&mut Map<String, Value>)) -> Result<Position, String> {
        let Value::Object(mut object) = json!({
            "version": 1, "kind": KIND, "samples": 100, "fingerprint": "ab", "epoch": 2,
            "consumed": 8, "batches": 1, "order": {"kind": "planned", "seed": 7, "epoch": 2},
            "later": [1, 2],
        }) else {
            unreachable!()
        };
        change(&mut object);
        Position::of(object)
    }

    #[test]
    fn a_state_is_written_as_it_was_read() {
        for order in [
            json!(null),
            json!({"kind": "planned", "seed": null, "epoch": 2}),
            json!({"kind": "planned", "seed": -3, "epoch": 2}),
            json!({"kind": "drawn", "seed": u64::MAX}),
            json!({"kind": "generator", "state": "AAEC"}),
            json!({"kind": "drawn", "between": {"base": "AAEC"}}),
            json!({"kind": "drawn", "seed": 5, "base_seed": 6, "after": {"base": "AAEC"}}),
            json!({"kind": "sampler", "base_seed": 3, "sampler_state": {"i": [1, 2.5]}}),
            json!({"kind": "stream"}),
        ] {
            let mut before = Map::new();
            let position = read(|object| {
                object.insert("order".to_owned(), order);
                before.clone_from(object);
            });
            let after = serde_json::to_value(position.unwrap()).unwrap();
            assert_eq!(after, Value::Object(before));
        }
    }

    #[test]
    fn a_damaged_state_says_where() {
        let wrong = |name: &str, value: Value| {
            read(|object| {
                object.insert(name.to_owned(), value);
            })
            .unwrap_err()
        };
        assert_eq!(
            wrong("consumed", json!(-1)),
            "state is damaged: consumed is -1, not a whole number from 0"
        );
        assert!(wrong("epoch", json!("3")).contains("epoch is \"3\""));
        assert!(wrong("fingerprint", json!(3)).contains("fingerprint is 3"));
        assert_eq!(
            wrong("version", json!(2)),
            "state has version 2, this forebay reads 1"
        );
        for (order, words) in [
            (json!(3), "order is 3"),
            (json!({"kind": "tarot"}), "order.kind is \"tarot\""),
            (json!({"kind": "drawn", "seed": 1.5}), "order.seed is 1.5"),
            (json!({"kind": "drawn"}), "it has no order.seed"),
            (
                json!({"kind": "planned", "seed": 1, "epoch": -1}),
                "order.epoch is -1",
            ),
            (json!({"kind": "generator", "state": 3}), "order.state is 3"),
            (
                json!({"kind": "generator", "between": "x"}),
                "order.between is \"x\"",
            ),
        ] {
            assert_eq!(wrong("order", order), format!("state is damaged: {words}"));
        }
        let missing = read(|object| {
            object.remove("batches");
        });
        assert_eq!(
            missing.unwrap_err(),
            "state is damaged: it has no \"batches\""
        );
    }
}
