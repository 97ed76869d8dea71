//! Views: parts of datasets, and several of them in a row.

mod common;

use std::io::IoSliceMut;
use std::sync::Arc;

use common::{folders, open, spec, tree};
use forebay_origin::{Dataset, View};
use tempfile::{TempDir, tempdir};

/// Five files in two classes, and two of one class; each has its own path as content.
fn two() -> (TempDir, Arc<Dataset>, Arc<Dataset>) {
    let root = tempdir().unwrap();
    let (a, b) = (root.path().join("a"), root.path().join("b"));
    tree(&a, &["x/0", "x/11", "x/222", "y/3333", "y/44444"]);
    tree(&b, &["z/555555", "z/6666666"]);
    let cache = root.path().join("cache");
    let dataset = |path| Arc::new(open(&spec(path, &cache, folders())));
    let (a, b) = (dataset(a), dataset(b));
    (root, a, b)
}

fn view(parts: &[&Arc<Dataset>], map: Option<&[u32]>) -> View {
    let parts = parts.iter().map(|&part| part.clone()).collect();
    View::new(parts, map.map(Arc::from), None).unwrap()
}

fn read(view: &View, position: u32) -> String {
    let mut bytes = vec![0; view.length(position).unwrap() as usize];
    let into = &mut [IoSliceMut::new(&mut bytes)];
    view.read_local(position, into).unwrap();
    String::from_utf8(bytes).unwrap()
}

fn texts(view: &View) -> Vec<String> {
    (0..view.len()).map(|at| read(view, at)).collect()
}

#[test]
fn positions_are_those_of_the_map() {
    let (_root, a, b) = two();
    let view = view(&[&a, &b], Some(&[4, 0, 5, 0]));
    assert_eq!(texts(&view), ["y/44444", "x/0", "z/555555", "x/0"]);
    let labels: Vec<_> = (0..4).map(|at| view.label(at).unwrap()).collect();
    assert_eq!(labels, [1, 0, 0, 0]);
    assert_eq!((view.part(2), view.part(3)), ((1, 0), (0, 0)));
    // A sample that stands at two positions has its bytes once.
    assert_eq!((view.total_bytes(), view.max_length()), (18, 8));
    assert!(view.length(4).is_err() && view.label(4).is_err());
}

#[test]
fn datasets_in_a_row_need_no_map() {
    let (_root, a, b) = two();
    let view = view(&[&b, &a], None);
    assert_eq!(view.len(), 7);
    assert_eq!(texts(&view)[..3], ["z/555555", "z/6666666", "x/0"]);
    let bytes = a.index().total_bytes() + b.index().total_bytes();
    assert_eq!(view.total_bytes(), bytes);
}

#[test]
fn an_empty_view_has_no_bytes() {
    let (_root, a, _) = two();
    let view = view(&[&a], Some(&[]));
    assert!(view.is_empty());
    assert_eq!((view.total_bytes(), view.max_length()), (0, 0));
}

#[test]
fn labels_that_are_given_take_the_place_of_the_datasets_own() {
    let (_root, a, _) = two();
    let labels: Arc<[i64]> = Arc::from([7, -1]);
    let map: Arc<[u32]> = Arc::from([4, 0]);
    let view = View::new(vec![a.clone()], Some(map.clone()), Some(labels)).unwrap();
    assert_eq!((view.label(0).unwrap(), view.label(1).unwrap()), (7, -1));
    let error = View::new(vec![a], Some(map), Some(Arc::from([7]))).unwrap_err();
    assert_eq!(
        error.to_string(),
        "a view of datasets: it has 2 samples and 1 labels"
    );
}

#[test]
fn a_fingerprint_tells_samples_order_and_labels() {
    let (_root, a, b) = two();
    let whole = view(&[&a], None).fingerprint();
    assert_eq!(whole, a.index().fingerprint());
    let labelled = View::new(vec![a.clone()], None, Some(Arc::from([0; 5]))).unwrap();
    let mut seen = vec![
        whole,
        view(&[&a], Some(&[0, 1])).fingerprint(),
        view(&[&a], Some(&[1, 0])).fingerprint(),
        view(&[&a, &b], None).fingerprint(),
        view(&[&b, &a], None).fingerprint(),
        labelled.fingerprint(),
    ];
    assert_eq!(seen[1], view(&[&a], Some(&[0, 1])).fingerprint());
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), 6);
}

#[test]
fn a_map_that_names_no_sample_is_refused() {
    let (_root, a, b) = two();
    let map: Arc<[u32]> = Arc::from([0, 7]);
    assert!(View::new(vec![a, b], Some(map), None).is_err());
    assert!(View::new(vec![], None, None).is_err());
}
