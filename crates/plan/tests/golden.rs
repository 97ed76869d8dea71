//! The same numbers as torch, index by index: vectors written by `golden/make.py` under
//! the oldest torch that is served and under today's, and under accelerate.

use std::{path::Path, sync::Arc};

use forebay_plan::{
    Deal, Dialect, Epoch, Mt19937, Order, Plan, Sampler, Uneven, multinomial, multinomial_f32,
    randint, randperm_as, randperm_draws_as,
};
use serde_json::Value;

/// The vectors of each torch, and the dialect it speaks.
fn torches() -> impl Iterator<Item = (Value, Dialect)> {
    ["torch-1.13.1", "torch-2.15.0"].into_iter().map(|name| {
        let golden = read(name);
        let version: Vec<u32> = text(&golden["torch"])
            .split('.')
            .map(|part| part.parse().unwrap())
            .collect();
        (golden, Dialect::of_torch(version[0], version[1]))
    })
}

fn read(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/{name}.json"));
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn rows(value: &Value) -> &Vec<Value> {
    let rows = value.as_array().unwrap();
    assert!(!rows.is_empty(), "a section without cases shows nothing");
    rows
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap()
}

fn small(value: &Value) -> u32 {
    number(value).try_into().unwrap()
}

fn flag(value: &Value) -> bool {
    value.as_bool().unwrap()
}

fn numbers(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(small).collect()
}

/// Sum of (value + 1) * odd weight of its position, modulo 2^64.
fn checksum(values: impl IntoIterator<Item = u32>) -> String {
    let sum = values
        .into_iter()
        .zip(1u64..)
        .fold(0u64, |sum, (value, place)| {
            let weight = place.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
            sum.wrapping_add((u64::from(value) + 1).wrapping_mul(weight))
        });
    format!("{sum:016x}")
}

fn assert_listed(found: &[u32], expected: &Value, case: &Value) {
    if expected["all"].is_array() {
        assert_eq!(found, numbers(&expected["all"]), "{case}");
    } else {
        let head = numbers(&expected["head"]);
        assert_eq!(found.len() as u64, number(&expected["len"]), "{case}");
        assert_eq!(found[..head.len()], head, "{case}");
        assert_eq!(
            checksum(found.iter().copied()),
            text(&expected["sum"]),
            "{case}"
        );
    }
}

/// The words of a state, as torch would have stored it.
fn words(bytes: &[u8]) -> impl Iterator<Item = u32> + '_ {
    let word = |chunk: &[u8]| u32::from_le_bytes(chunk.try_into().unwrap());
    bytes.chunks_exact(4).map(word)
}

fn assert_state(engine: &Mt19937, expected: &Value, case: &Value) {
    let mut bytes = vec![0; 5056];
    engine.store_torch_state(&mut bytes).unwrap();
    assert_eq!(
        checksum(words(&bytes[..5016])),
        text(expected),
        "state after {case}"
    );
}

/// The weights of `make.py`: integers, one division, two products.
fn weights(count: u64, salt: u64, zeros: bool) -> Vec<f64> {
    (0..count)
        .map(|i| {
            let u = ((i * 2_654_435_761 + salt) % (1 << 32)) as f64 / (1u64 << 32) as f64;
            if zeros && i % 3 == 1 { 0.0 } else { u * u * u }
        })
        .collect()
}

fn check_randperms(cases: &Value, dialect: Dialect) {
    for case in rows(cases) {
        let mut engine = Mt19937::new(number(&case["seed"]));
        let mut skipped = engine.clone();
        for call in rows(&case["calls"]) {
            let n = small(&call["n"]);
            let mut ids = vec![0; n as usize];
            randperm_as(dialect, &mut engine, &mut ids);
            assert_listed(&ids, &call["ids"], call);
            assert_state(&engine, &call["state"], call);
            skipped.skip(randperm_draws_as(dialect, n));
            assert_eq!(engine, skipped, "skipping a permutation of {n}");
        }
    }
}

#[test]
fn permutations_and_the_state_after_them_are_torchs() {
    for (golden, dialect) in torches() {
        check_randperms(&golden["randperm"], dialect);
    }
}

#[test]
#[allow(clippy::print_stderr)]
fn permutations_about_the_size_where_torch_changes_over_are_torchs() {
    if std::env::var_os("FOREBAY_SLOW_TESTS").is_none_or(|value| value != "1") {
        eprintln!("left out: permutations of 214,748,364; set FOREBAY_SLOW_TESTS=1 to run them");
        return;
    }
    for (golden, dialect) in torches() {
        check_randperms(&golden["slow_randperm"], dialect);
    }
}

#[test]
fn an_int64_is_torchs() {
    for (golden, _) in torches() {
        for case in rows(&golden["int64"]) {
            let mut engine = Mt19937::new(number(&case["seed"]));
            for drawn in rows(&case["drawn"]) {
                assert_eq!(engine.random_i64(), drawn.as_i64().unwrap());
            }
            assert_state(&engine, &case["state"], case);
        }
    }
}

#[test]
fn integers_below_a_bound_are_torchs() {
    for (golden, dialect) in torches() {
        for case in rows(&golden["randint"]) {
            let mut engine = Mt19937::new(number(&case["seed"]));
            for drawn in rows(&case["drawn"]) {
                let found = randint(&mut engine, number(&case["n"]), dialect);
                assert_eq!(found, number(drawn), "{case}");
            }
            assert_state(&engine, &case["state"], case);
        }
    }
}

#[test]
fn weighted_draws_are_torchs() {
    for (golden, _) in torches() {
        for case in rows(&golden["multinomial"]) {
            let (seed, count) = (number(&case["seed"]), number(&case["count"]));
            let weights = weights(number(&case["weights"]), seed, flag(&case["zeros"]));
            let mut engine = Mt19937::new(seed);
            let ids = if text(&case["dtype"]) == "f64" {
                multinomial(&mut engine, &weights, count)
            } else {
                let narrow: Vec<f32> = weights.iter().map(|&weight| weight as f32).collect();
                multinomial_f32(&mut engine, &narrow, count)
            };
            assert_listed(&ids.unwrap(), &case["ids"], case);
            assert_state(&engine, &case["state"], case);
        }
    }
}

fn sampler(case: &Value, dialect: Dialect) -> Sampler {
    let samples = small(&case["samples"]);
    match text(&case["kind"]) {
        "sequential" => Sampler::Sequential { samples },
        "random" => Sampler::Random {
            samples,
            count: number(&case["count"]),
            replacement: flag(&case["replacement"]),
            dialect,
        },
        "subset" => Sampler::Subset {
            indices: (0..samples).map(|i| 3 * i + 1).collect(),
            dialect,
        },
        "weighted" => Sampler::Weighted {
            weights: weights(u64::from(samples), number(&case["seed"]), true).into(),
            count: number(&case["count"]),
        },
        other => panic!("no sampler {other}"),
    }
}

#[test]
fn samplers_stream_as_torchs_and_leave_the_generator_so_wherever_they_stop() {
    for (golden, dialect) in torches() {
        for case in rows(&golden["samplers"]) {
            let sampler = sampler(case, dialect);
            let start = Mt19937::new(number(&case["seed"]));
            let mut engine = start.clone();
            let indices = sampler.indices(&mut engine).unwrap();
            assert_listed(&indices, &case["ids"], case);
            assert_state(&engine, &case["state"], case);
            for stop in rows(&case["stops"]) {
                let mut engine = start.clone();
                engine.skip(sampler.draws(number(&stop["requests"])));
                assert_state(&engine, &stop["state"], stop);
            }
        }
    }
}

#[test]
fn batches_broken_off_leave_the_generator_as_torch_does() {
    for (golden, _) in torches() {
        for case in rows(&golden["batch_samplers"]) {
            let samples = small(&case["samples"]);
            let size = Some(small(&case["batch_size"]));
            let sampler = Sampler::shuffled(samples);
            let start = Mt19937::new(u64::from(samples));
            let order: Arc<[u32]> = sampler.indices(&mut start.clone()).unwrap().into();
            let deal = Deal::Strided {
                uneven: Uneven::Pad,
            };
            let given = Order::Given(order);
            let plan = Plan::new(samples, given, deal, 1, size, flag(&case["drop_last"]));
            let epoch = plan.unwrap().epoch(0);
            let taken = number(&case["taken"]);
            let batches = batches(&epoch, 0, taken);
            let expected: Vec<Vec<u32>> = case["batches"]
                .as_array()
                .unwrap()
                .iter()
                .map(numbers)
                .collect();
            assert_eq!(batches, expected, "{case}");
            let mut engine = start;
            engine.skip(sampler.draws(sampler.requests(taken, size)));
            assert_state(&engine, &case["state"], case);
        }
    }
}

fn batches(epoch: &Epoch, rank: u32, at_most: u64) -> Vec<Vec<u32>> {
    (0..epoch.batches(rank).min(at_most))
        .map(|index| epoch.batch(rank, index).collect())
        .collect()
}

#[test]
fn ranks_are_dealt_what_a_distributed_sampler_deals_them() {
    for (golden, dialect) in torches() {
        for case in rows(&golden["distributed"]) {
            let uneven = if flag(&case["drop_last"]) {
                Uneven::Drop
            } else {
                Uneven::Pad
            };
            let order = if flag(&case["shuffle"]) {
                let seed = number(&case["seed"]);
                Order::Seeded { seed }
            } else {
                Order::Sequential
            };
            let plan = Plan::new(
                small(&case["samples"]),
                order,
                Deal::Strided { uneven },
                small(&case["world"]),
                Some(small(&case["batch_size"])),
                flag(&case["drop_last_batch"]),
            );
            let plan = plan.unwrap().with_dialect(dialect);
            let epoch = plan.epoch(number(&case["epoch"]));
            for (rank, expected) in (0..).zip(rows(&case["ranks"])) {
                let ids: Vec<u32> = epoch.rank(rank).collect();
                assert_listed(&ids, &expected["ids"], case);
                let found = batches(&epoch, rank, u64::MAX);
                assert_eq!(found.len() as u64, number(&expected["batches"]), "{case}");
                let last = found.last().map_or(0, |batch| batch.len() as u64);
                assert_eq!(last, number(&expected["last"]), "{case}");
            }
        }
    }
}

#[test]
fn a_generator_is_taken_over_and_handed_back_with_its_cached_normals() {
    for (golden, dialect) in torches() {
        let case = &golden["handover"];
        let digits = text(&case["before"]);
        let mut state: Vec<u8> = (0..digits.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap())
            .collect();
        let mut engine = Mt19937::from_torch_state(&state).unwrap();
        let mut ids = vec![0; 1000];
        randperm_as(dialect, &mut engine, &mut ids);
        assert_listed(&ids, &case["ids"], &Value::Null);
        engine.store_torch_state(&mut state).unwrap();
        assert_eq!(checksum(words(&state)), text(&case["after"]));
    }
}

#[test]
fn ranks_are_dealt_what_accelerate_deals_them() {
    for case in rows(&read("accelerate-1.15.0")["deals"]) {
        let plan = Plan::new(
            small(&case["samples"]),
            Order::Seeded {
                seed: number(&case["seed"]),
            },
            Deal::Batches,
            small(&case["world"]),
            Some(small(&case["batch_size"])),
            flag(&case["drop_last"]),
        );
        let epoch = plan.unwrap().epoch(number(&case["epoch"]));
        for (rank, expected) in (0..).zip(rows(&case["ranks"])) {
            let expected: Vec<Vec<u32>> =
                expected.as_array().unwrap().iter().map(numbers).collect();
            assert_eq!(batches(&epoch, rank, u64::MAX), expected, "{case}");
        }
    }
}
