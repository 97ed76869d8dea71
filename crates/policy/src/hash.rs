//! A hash map for keys that are dense ids.
//!
//! Sample ids are chosen by us, not by an attacker, so one multiplication that
//! folds the high half of the product back in is enough, and several times faster
//! than the default hasher.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::Key;

pub(crate) type KeyMap<V> = HashMap<Key, V, BuildHasherDefault<KeyHasher>>;

#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn write_u64(&mut self, key: u64) {
        let product = u128::from(self.0 ^ key) * 0x9E37_79B9_7F4A_7C15;
        self.0 = (product >> 64) as u64 ^ product as u64;
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
