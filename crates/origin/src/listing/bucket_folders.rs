//! Class folders in a bucket: torchvision's rules applied to keys.
//!
//! A bucket has no folders, so one recursive listing gives all keys, and the folders
//! are their parts before the slashes. The order is the one that the same files would
//! have on a disk, which is not the order of the keys:
//!
//! ```text
//! keys   a-b/1  a/1  a/z/1     classes a, a-b     samples a/1  a/z/1  a-b/1
//! ```

use forebay_format::{IndexBuilder, Sample};

use super::Listing;
use super::class_folders::Rules;
use crate::Error;
use crate::remote::{Object, Remote};

pub(crate) fn list(
    listing: &Listing<'_>,
    remote: &Remote,
    rules: &Rules<'_>,
) -> Result<IndexBuilder, Error> {
    let objects = super::block_on(remote.list(|count| listing.progress.add(count)))?;
    build(listing.builder(), listing.url, objects, rules)
}

fn build(
    mut builder: IndexBuilder,
    url: &str,
    mut objects: Vec<Object>,
    rules: &Rules<'_>,
) -> Result<IndexBuilder, Error> {
    objects.sort_unstable_by(|a, b| order(&a.name).cmp(&order(&b.name)));
    let classes = classes(&objects);
    if classes.is_empty() {
        return Err(Error::NoClasses {
            url: url.to_owned(),
        });
    }
    for class in &classes {
        builder.class(class);
    }
    let mut filled = vec![false; classes.len()];
    let mut label = 0;
    for (at, object) in objects.iter().enumerate() {
        let (class, _, file) = order(&object.name);
        if class.is_empty() || !rules.counts(file) || is_marker(&objects, at) {
            continue;
        }
        // Both are sorted, so the label only ever moves on.
        while classes[label] != class {
            label += 1;
        }
        filled[label] = true;
        let Object {
            name,
            length,
            validator,
        } = object;
        let sample = Sample {
            object: name,
            offset: 0,
            length: *length,
            label: label as i64,
            validator: *validator,
        };
        builder.push(sample)?;
    }
    let empty: Vec<_> = classes
        .iter()
        .zip(filled)
        .filter(|(_, filled)| !filled)
        .map(|(class, _)| *class)
        .collect();
    rules.check_empty(&empty)?;
    Ok(builder)
}

/// A key's place in the order: class, folder, file. The class of a key at the root is empty.
fn order(name: &str) -> (&str, &str, &str) {
    let (folder, file) = name.rsplit_once('/').unwrap_or(("", name));
    let class = folder.split('/').next().unwrap_or_default();
    (class, folder, file)
}

fn classes(objects: &[Object]) -> Vec<&str> {
    let mut classes: Vec<_> = objects
        .iter()
        .map(|object| order(&object.name).0)
        .filter(|class| !class.is_empty())
        .collect();
    classes.dedup();
    classes
}

/// Whether an object is only there to mark a folder: it is empty, and others lie in it.
fn is_marker(objects: &[Object], at: usize) -> bool {
    let Object { name, length, .. } = &objects[at];
    let within = || {
        let class = order(name).0;
        let first = objects.partition_point(|object| order(&object.name) < (class, name, ""));
        objects.get(first).is_some_and(|object| {
            object
                .name
                .strip_prefix(name.as_str())
                .is_some_and(|rest| rest.starts_with('/'))
        })
    };
    *length == 0 && within()
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_format::Index;

    type Rows = Vec<(String, i64)>;

    fn samples(keys: &[(&str, u64)], rules: &Rules<'_>) -> Result<(Vec<String>, Rows), Error> {
        let objects = keys.iter().map(|(name, length)| Object {
            name: (*name).to_owned(),
            length: *length,
            validator: 1,
        });
        let builder = build(
            IndexBuilder::new("s3://b", "x"),
            "s3://b",
            objects.collect(),
            rules,
        )?;
        let index = Index::parse(builder.finish())?;
        let rows = (0..index.len())
            .map(|i| (index.name(i).unwrap(), index.label(i).unwrap()))
            .collect();
        Ok((index.classes().to_vec(), rows))
    }

    #[test]
    fn keys_come_in_the_order_of_the_same_files_on_a_disk() {
        let keys = [
            ("a-b/1", 1),
            ("a/1", 1),
            ("a/z-/0", 1),
            ("a/z/1", 1),
            ("root.txt", 1),
        ];
        let (classes, rows) = samples(&keys, &Rules::new(None, false)).unwrap();
        assert_eq!(classes, ["a", "a-b"]);
        let expected = [("a/1", 0), ("a/z/1", 0), ("a/z-/0", 0), ("a-b/1", 1)];
        assert_eq!(rows, expected.map(|(name, label)| (name.to_owned(), label)));
    }

    #[test]
    fn markers_of_folders_are_no_samples() {
        let keys = [("a/sub", 0), ("a/sub/1", 1), ("a/empty", 0)];
        let (_, rows) = samples(&keys, &Rules::new(None, false)).unwrap();
        assert_eq!(rows, [("a/empty".to_owned(), 0), ("a/sub/1".to_owned(), 0)]);
    }

    #[test]
    fn a_class_without_a_valid_file_is_named() {
        let extensions = [".jpg".to_owned(), ".png".to_owned()];
        let rules = Rules::new(Some(&extensions), false);
        let error = samples(&[("a/1.jpg", 1), ("b/1.txt", 1), ("c/2.txt", 1)], &rules).unwrap_err();
        let expected =
            "Found no valid file for the classes b, c. Supported extensions are: .jpg, .png";
        assert_eq!(error.to_string(), expected);
        let rules = Rules::new(Some(&extensions), true);
        assert_eq!(
            samples(&[("a/1.jpg", 1), ("b/1.txt", 1)], &rules)
                .unwrap()
                .0,
            ["a", "b"]
        );
    }

    #[test]
    fn a_bucket_without_folders_has_no_classes() {
        let error = samples(&[("1.jpg", 1)], &Rules::new(None, false)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "Couldn't find any class folder in s3://b."
        );
    }
}
