//! Every policy passes the one suite.

use forebay_policy::{NAMES, Settings, by_name, conformance};

#[test]
fn every_policy_conforms_with_every_setting() {
    for name in NAMES {
        for epoch in [None, Some(1), Some(60)] {
            for sole_copy in [false, true] {
                conformance::run(&|| by_name(name, Settings { epoch, sole_copy }).unwrap());
            }
        }
    }
}
