//! An index gives back what went in, and a damaged one says so.

use forebay_format::{Error, Index, IndexBuilder, Kind, Sample};
use proptest::prelude::*;

fn small() -> Vec<u8> {
    let mut builder = IndexBuilder::new("file:///data/train", "class-folders");
    builder.class("cat");
    builder.class("köter");
    builder.directory("cat", 1_700_000_000_123_456_789);
    builder.directory("köter", -1);
    for i in 0..20u64 {
        let object = format!("cat/img_{i:03}.jpg");
        let sample = Sample {
            object: &object,
            offset: 0,
            length: 1000 + i,
            label: 0,
            validator: i * 77,
        };
        builder.push(sample).unwrap();
    }
    for (i, length) in [0, 5, 70_000].into_iter().enumerate() {
        let object = format!("köter/{i}é.jpg");
        builder
            .push(Sample {
                object: &object,
                offset: 0,
                length,
                label: 1,
                validator: u64::MAX,
            })
            .unwrap();
    }
    builder.finish()
}

/// Everything an index says, or the first error.
fn dump(index: &Index) -> Result<String, Error> {
    let mut text = format!(
        "{} {} {:?} {:?} {} {} {:016x} {}\n",
        index.url(),
        index.layout(),
        index.classes(),
        index.directories()?,
        index.total_bytes(),
        index.max_length(),
        index.fingerprint(),
        index.ranged(),
    );
    for i in 0..index.len() {
        let row = (
            index.name(i)?,
            index.offset(i)?,
            index.length(i)?,
            index.label(i)?,
            index.validator(i)?,
        );
        text += &format!("{row:?}\n");
    }
    Ok(text)
}

#[test]
fn version_1_bytes_are_what_they_always_were() {
    let golden = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/index-v1.bin");
    if std::env::var_os("FOREBAY_WRITE_GOLDEN").is_some() {
        std::fs::write(&golden, small()).unwrap();
    }
    let golden = std::fs::read(golden).unwrap();
    assert!(
        small() == golden,
        "the encoder writes other bytes than version 1 did"
    );
    let index = Index::parse(golden).unwrap();
    assert_eq!(index.len(), 23);
    assert_eq!(index.name(21).unwrap(), "köter/1é.jpg");
    assert_eq!(index.length(22).unwrap(), 70_000);
    assert_eq!(index.label(19).unwrap(), 0);
    assert_eq!(index.classes(), ["cat", "köter"]);
    assert_eq!(
        index.directories().unwrap()[0].mtime,
        1_700_000_000_123_456_789
    );
    assert_eq!(index.fingerprint(), 0x34d4_0c7c_5d67_a75f);
}

#[test]
fn a_flipped_byte_anywhere_is_an_error_and_never_another_value() {
    let good = small();
    let said = dump(&Index::parse(good.clone()).unwrap()).unwrap();
    for at in 0..good.len() {
        for flip in [1, 0x80, 0xff] {
            let mut bad = good.clone();
            bad[at] ^= flip;
            match Index::parse(bad).and_then(|index| index.verify().map(|()| index)) {
                Err(error) => assert_eq!(error.kind(), Kind::Corrupt, "byte {at}: {error}"),
                Ok(_) => panic!("byte {at} flipped by {flip:#x} went unnoticed"),
            }
            let mut bad = good.clone();
            bad[at] ^= flip;
            if let Ok(lazily) = Index::parse(bad).and_then(|index| dump(&index)) {
                assert_eq!(lazily, said, "byte {at}");
            }
        }
    }
}

#[test]
fn a_truncated_or_extended_file_is_an_error() {
    let good = small();
    for length in 0..good.len() {
        assert_eq!(
            Index::parse(good[..length].to_vec()).unwrap_err().kind(),
            Kind::Corrupt
        );
    }
    let mut longer = good;
    longer.push(0);
    assert!(
        Index::parse(longer)
            .unwrap_err()
            .to_string()
            .contains("head says")
    );
}

#[test]
fn a_file_of_another_version_names_both() {
    let mut file = small();
    file[8] = 2;
    let error = Index::parse(file).unwrap_err();
    assert_eq!(
        error.to_string(),
        "index has format version 2, this build reads version 1"
    );
}

#[test]
fn a_sample_outside_the_index_is_an_error() {
    let index = Index::parse(small()).unwrap();
    let error = index.length(23).unwrap_err();
    assert_eq!(
        error.to_string(),
        "sample 23 is not in the index, which has 23"
    );
    assert_eq!(error.kind(), Kind::Invalid);
}

#[test]
fn a_label_below_minus_one_is_refused() {
    let mut builder = IndexBuilder::new("", "");
    let sample = Sample {
        object: "a",
        offset: 0,
        length: 1,
        label: -2,
        validator: 0,
    };
    assert_eq!(builder.push(sample), Err(Error::Label(-2)));
}

#[test]
fn the_fingerprint_knows_names_lengths_labels_and_order_but_not_validators() {
    let fingerprint = |samples: &[(&str, u64, i64, u64)]| {
        let mut builder = IndexBuilder::new("u", "l");
        for &(object, length, label, validator) in samples {
            builder
                .push(Sample {
                    object,
                    offset: 0,
                    length,
                    label,
                    validator,
                })
                .unwrap();
        }
        Index::parse(builder.finish()).unwrap().fingerprint()
    };
    let base = fingerprint(&[("a", 1, 0, 9), ("b", 2, 1, 9)]);
    assert_eq!(base, fingerprint(&[("a", 1, 0, 8), ("b", 2, 1, 7)]));
    assert_ne!(base, fingerprint(&[("a", 1, 0, 9), ("c", 2, 1, 9)]));
    assert_ne!(base, fingerprint(&[("a", 1, 0, 9), ("b", 3, 1, 9)]));
    assert_ne!(base, fingerprint(&[("a", 1, 0, 9), ("b", 2, 0, 9)]));
    assert_ne!(base, fingerprint(&[("b", 2, 1, 9), ("a", 1, 0, 9)]));
}

/// Object, offset, length, label, validator.
type Told = (&'static str, u64, u64, i64, u64);

fn of_rows(mut builder: IndexBuilder, rows: &[Told]) -> Index {
    for &(object, offset, length, label, validator) in rows {
        let sample = Sample {
            object,
            offset,
            length,
            label,
            validator,
        };
        builder.push(sample).unwrap();
    }
    Index::parse(builder.finish()).unwrap()
}

#[test]
fn the_digest_knows_objects_ranges_lengths_validators_and_order_and_nothing_else() {
    let digest = |mtime: i64, ranged: bool, samples: &[Told]| {
        let mut builder = IndexBuilder::new("u", "l");
        builder.ranged(ranged);
        builder.class(if mtime > 0 { "new" } else { "old" });
        builder.directory("", mtime);
        of_rows(builder, samples).digest()
    };
    // Every column but that of the lengths has one value, which is not in the file's body.
    let (a, b) = (("a", 5, 1, 0, 9), ("b", 5, 2, 0, 9));
    let base = digest(i64::MIN, true, &[a, b]);
    let same = [("a", 5, 1, -1, 9), ("b", 5, 2, 7, 9)];
    assert_eq!(base, digest(i64::MIN, true, &[a, b]));
    assert_eq!(base, digest(77, true, &[a, b]), "when it was listed");
    assert_eq!(base, digest(77, true, &same), "labels");
    assert_ne!(base, digest(i64::MIN, false, &[a, b]), "whole objects");
    for (what, other) in [
        ("order", vec![b, a]),
        ("fewer", vec![a]),
        ("an object", vec![a, ("c", 5, 2, 0, 9)]),
        ("an offset", vec![a, ("b", 6, 2, 0, 9)]),
        ("all offsets", vec![("a", 6, 1, 0, 9), ("b", 6, 2, 0, 9)]),
        ("a length", vec![a, ("b", 5, 3, 0, 9)]),
        ("a validator", vec![a, ("b", 5, 2, 0, 8)]),
        ("all validators", vec![("a", 5, 1, 0, 8), ("b", 5, 2, 0, 8)]),
    ] {
        assert_ne!(base, digest(i64::MIN, true, &other), "{what}");
    }
}

#[test]
fn the_numbering_is_what_each_number_stands_for() {
    let numbering = |mtime: i64, class: &str, rows: &[Told]| {
        let mut builder = IndexBuilder::new("x", "x");
        builder.class(class);
        builder.directory("a", mtime);
        of_rows(builder, rows).numbering()
    };
    let (a, b) = (("a", 5, 1, 0, 9), ("b", 5, 2, 0, 9));
    let base = numbering(1, "cat", &[a, b]);
    assert_eq!(base, numbering(2, "cat", &[a, b]), "when it was listed");
    let newer = [("a", 5, 1, 0, 8), ("b", 5, 2, 0, 7)];
    assert_eq!(base, numbering(1, "cat", &newer), "versions of objects");
    assert_ne!(base, numbering(1, "dog", &[a, b]), "a class");
    for (what, other) in [
        ("order", vec![b, a]),
        ("fewer", vec![a]),
        ("an object", vec![a, ("c", 5, 2, 0, 9)]),
        ("an offset", vec![a, ("b", 6, 2, 0, 9)]),
        ("a length", vec![a, ("b", 5, 3, 0, 9)]),
        ("a label", vec![a, ("b", 5, 2, 1, 9)]),
    ] {
        assert_ne!(base, numbering(1, "cat", &other), "{what}");
    }
}

#[test]
fn one_object_of_unknown_version_is_noticed() {
    let lacks = |validators: &[u64]| {
        let mut builder = IndexBuilder::new("x", "x");
        for &validator in validators {
            let sample = Sample {
                object: "a",
                offset: 0,
                length: 1,
                label: 0,
                validator,
            };
            builder.push(sample).unwrap();
        }
        Index::parse(builder.finish()).unwrap().lacks_validators()
    };
    assert!(lacks(&[0]) && lacks(&[0, 0]) && lacks(&[5, 0, 7]));
    assert!(!lacks(&[]) && !lacks(&[5, 5]) && !lacks(&[5, 6]));
}

#[test]
fn name_into_reuses_its_string() {
    let index = Index::parse(small()).unwrap();
    let mut name = String::with_capacity(64);
    let at = name.as_ptr();
    for i in 0..index.len() {
        index.name_into(i, &mut name).unwrap();
        assert_eq!(name, index.name(i).unwrap());
    }
    assert_eq!(name.as_ptr(), at);
}

type Row = (String, u64, u64, i64, u64);

fn rows() -> impl Strategy<Value = Vec<Row>> {
    let number = || prop_oneof![Just(0u64), 0..300u64, any::<u64>()];
    let label = prop_oneof![-1..5i64, Just(i64::MAX)];
    proptest::collection::vec(("[ab/é]{0,12}", number(), number(), label, number()), 0..70)
}

proptest! {
    #[test]
    fn every_row_comes_back(rows in rows(), ranged: bool) {
        let mut builder = IndexBuilder::new("s3://bucket/é", "x");
        builder.ranged(ranged);
        for (object, offset, length, label, validator) in &rows {
            let sample = Sample { object, offset: *offset, length: *length, label: *label, validator: *validator };
            builder.push(sample).unwrap();
        }
        let index = Index::parse(builder.finish()).unwrap();
        index.verify().unwrap();
        prop_assert_eq!(index.len() as usize, rows.len());
        prop_assert_eq!(index.ranged(), ranged);
        for (i, row) in rows.iter().enumerate() {
            let i = i as u32;
            let found = (index.name(i)?, index.offset(i)?, index.length(i)?, index.label(i)?, index.validator(i)?);
            prop_assert_eq!(&found, row);
        }
    }

    #[test]
    fn hostile_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..600), keep in 0usize..72) {
        let good = small();
        let keep = keep.min(bytes.len());
        bytes[..keep].copy_from_slice(&good[..keep]);
        let _ = Index::parse(bytes).and_then(|index| dump(&index));
    }
}
