//! What a state says: an epoch, how far it got, and how its order is found again.
//!
//! `consumed` counts positions of the epoch's order that all ranks together have used
//! up: k batches of B on each of R ranks are k*B*R. So the state of one rank is the state
//! of all. `batches` counts what each rank has yielded; only where a sampler's own code
//! makes the order is that all there is.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value};

pub(crate) const KIND: &str = "forebay.DataLoader";
const VERSION: u64 = 1;

/// A loader's state.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Position {
    version: u64,
    kind: &'static str,
    pub(crate) samples: u64,
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
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub(crate) enum Order {
    /// Known for all epochs; without a seed it is sequential.
    Planned { seed: Option<Number>, epoch: u64 },
    /// A permutation of a seed that was drawn when the epoch began.
    Drawn { seed: Number },
    /// Drawn from a generator that was in this state.
    Generator { state: String },
    /// A sampler's own: only its batches can be counted.
    Sampler,
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
        let mut number = |name: &str| match object.remove(name) {
            None => Err(format!("state is damaged: it has no {name:?}")),
            Some(value) => value.as_u64().ok_or_else(|| {
                format!("state is damaged: {name} is {value}, not a whole number from 0")
            }),
        };
        let (samples, epoch) = (number("samples")?, number("epoch")?);
        let (consumed, batches) = (number("consumed")?, number("batches")?);
        let fingerprint = match object.remove("fingerprint") {
            Some(Value::String(text)) => Some(text),
            Some(Value::Null) => None,
            other => {
                let found = other.map_or("missing".to_owned(), |value| value.to_string());
                return Err(format!("state is damaged: fingerprint is {found}"));
            }
        };
        let order = object
            .remove("order")
            .ok_or("state is damaged: it has no \"order\"")?;
        let order: Option<Order> = serde_json::from_value(order)
            .map_err(|error| format!("state is damaged: order: {error}"))?;
        if let Some(
            Order::Planned {
                seed: Some(seed), ..
            }
            | Order::Drawn { seed },
        ) = &order
            && seed.is_f64()
        {
            return Err(format!("state is damaged: order: seed is {seed}"));
        }
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
        matches!(self.order, Some(Order::Planned { .. })).then_some(self.samples)
    }
}

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
            json!({"kind": "sampler"}),
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
        let order = wrong("order", json!({"kind": "tarot"}));
        assert!(order.contains("unknown variant `tarot`"), "{order}");
        let order = wrong("order", json!({"kind": "drawn", "seed": 1.5}));
        assert!(order.contains("seed is 1.5"), "{order}");
        let missing = read(|object| {
            object.remove("batches");
        });
        assert_eq!(
            missing.unwrap_err(),
            "state is damaged: it has no \"batches\""
        );
    }
}
