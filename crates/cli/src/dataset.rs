//! The dataset that `index` and `inspect` are about: its arguments, and opening it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use forebay_origin::{Dataset, DatasetSpec, Error, Layout, Progress, Refresh, SecretString};
use indicatif::{ProgressBar, ProgressStyle};

use crate::failure::{Failure, warn};

/// torchvision's, in its order: the order is part of what an index was built for.
const IMAGES: [&str; 9] = [
    ".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp",
];

#[derive(Args)]
pub(crate) struct DatasetArguments {
    /// A path, or a url of s3://, gs://, az://, http:// or https://; shards may be
    /// written as train-{0000..0146}.tar
    url: String,
    /// How samples lie in it; auto: shards if the url ends in .tar or has braces, files
    /// of a manifest with --manifest, else class folders
    #[arg(long, value_name = "LAYOUT", default_value = "auto")]
    layout: LayoutName,
    /// The CSV or JSON lines file that names the samples
    #[arg(long, value_name = "FILE")]
    manifest: Option<String>,
    /// The manifest may name files outside of the dataset, by .. or an absolute path
    #[arg(long, requires = "manifest")]
    allow_outside: bool,
    /// Which files count in class folders, such as .jpg,.png [default: all, as
    /// forebay.FileFolder has it]
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        conflicts_with = "images"
    )]
    extensions: Option<Vec<String>>,
    /// Only images count, as forebay.ImageFolder and torchvision have it
    #[arg(long)]
    images: bool,
    /// A class may be without files
    #[arg(long)]
    allow_empty: bool,
    /// A setting of the object store, may be repeated. Others on this machine see the
    /// arguments of a process: secrets are better kept in the environment (AWS_*, ...)
    #[arg(long = "storage-option", value_name = "KEY=VALUE")]
    storage_options: Vec<String>,
    /// Where the index file is kept [default: the folder index in FOREBAY_CACHE, else in
    /// ~/.cache/forebay]
    #[arg(long, value_name = "DIR")]
    index_dir: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum LayoutName {
    Auto,
    /// One folder a class
    Folders,
    /// WebDataset shards
    Tar,
    /// Files named by --manifest
    Manifest,
}

impl DatasetArguments {
    /// Opens the dataset, with a spinner on a terminal while it is listed.
    pub(crate) fn open(self, refresh: Refresh) -> Result<Dataset, Failure> {
        let spec = self.spec(refresh)?;
        let spinner = Spinner::new();
        let opened = Dataset::open(&spec, &spinner);
        spinner.0.finish_and_clear();
        let dataset = opened.map_err(|error| Failure::of(&error, hint(&error)))?;
        let opened = dataset.opened();
        // A folder that cannot be written may be one that cannot be read either: said once.
        if let (Some(reason), None) = (&opened.rebuilt_because_corrupt, &opened.warning) {
            warn(&format!(
                "the index could not be used and is built anew: {reason}"
            ));
        }
        Ok(dataset)
    }

    fn spec(self, refresh: Refresh) -> Result<DatasetSpec, Failure> {
        let layout = self.layout()?;
        Ok(DatasetSpec {
            storage_options: options(self.storage_options)?,
            index_dir: self.index_dir,
            refresh,
            ..DatasetSpec::new(self.url, layout)
        })
    }

    fn layout(&self) -> Result<Layout, Failure> {
        let looks_like_shards = self.url.ends_with(".tar") || self.url.contains('{');
        let name = match self.layout {
            LayoutName::Auto if self.manifest.is_some() => LayoutName::Manifest,
            LayoutName::Auto if looks_like_shards => LayoutName::Tar,
            LayoutName::Auto => LayoutName::Folders,
            name => name,
        };
        let for_folders = self.images || self.allow_empty || self.extensions.is_some();
        if for_folders && name != LayoutName::Folders {
            return Err(Failure::usage(
                "--extensions, --images and --allow-empty are about class folders",
                "leave them out, or pass --layout folders",
            ));
        }
        match (name, &self.manifest) {
            (LayoutName::Manifest, Some(manifest)) => Ok(Layout::Manifest {
                manifest: manifest.clone(),
                allow_outside: self.allow_outside,
            }),
            (LayoutName::Manifest, None) => Err(Failure::usage(
                "--layout manifest without a manifest",
                "pass --manifest FILE",
            )),
            (_, Some(_)) => Err(Failure::usage(
                "--manifest does not go with this layout",
                "leave --layout out",
            )),
            (LayoutName::Tar, None) => Ok(Layout::Tar),
            (LayoutName::Folders | LayoutName::Auto, None) => Ok(Layout::ClassFolders {
                extensions: self.endings()?,
                allow_empty: self.allow_empty,
            }),
        }
    }

    fn endings(&self) -> Result<Option<Vec<String>>, Failure> {
        if self.images {
            return Ok(Some(IMAGES.map(str::to_owned).to_vec()));
        }
        let Some(given) = &self.extensions else {
            return Ok(None);
        };
        let dotted = |text: &String| {
            let text = text.trim();
            format!(".{}", text.strip_prefix('.').unwrap_or(text))
        };
        let endings: Vec<_> = given.iter().map(dotted).collect();
        if endings.iter().any(|ending| ending == ".") {
            return Err(Failure::usage(
                "--extensions has an empty one",
                "write them as --extensions .jpg,.png",
            ));
        }
        Ok(Some(endings))
    }
}

/// The values may be secrets: no message repeats any part of them.
fn options(given: Vec<String>) -> Result<BTreeMap<String, SecretString>, Failure> {
    let mut options = BTreeMap::new();
    for (at, option) in given.into_iter().enumerate() {
        match option.split_once('=') {
            Some((key, value)) if !key.is_empty() => {
                options.insert(key.to_owned(), SecretString::from(value));
            }
            _ => {
                return Err(Failure::usage(
                    format!("--storage-option number {} is not KEY=VALUE", at + 1),
                    "write it as --storage-option region=eu-central-1",
                ));
            }
        }
    }
    Ok(options)
}

/// The origin's advice in the words of the command line.
fn hint(error: &Error) -> Option<String> {
    let hint = match error {
        Error::NoClasses { .. } => {
            "each class is a folder with its files; for other layouts pass --manifest FILE or \
             --layout tar"
        }
        Error::EmptyClasses { .. } => "remove the empty folders or pass --allow-empty",
        Error::Denied { .. } => {
            "set the environment (for S3: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or \
             AWS_SKIP_SIGNATURE=true for a public bucket) or pass --storage-option"
        }
        Error::NoCredentials { .. } => {
            "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (profiles in ~/.aws are not read); for \
             a public bucket AWS_SKIP_SIGNATURE=true; for the role of a machine \
             AWS_METADATA_ENDPOINT=http://169.254.169.254"
        }
        Error::Outside { .. } => "pass --allow-outside if the manifest can be trusted",
        Error::NoBucket { .. } => {
            "check the bucket's name, and the endpoint in AWS_ENDPOINT_URL or --storage-option"
        }
        Error::CannotList { .. } => {
            "name the files in a manifest (CSV or JSON lines) and pass --manifest"
        }
        Error::Unavailable { .. } => "check that the endpoint can be reached",
        _ => return error.hint(),
    };
    Some(hint.to_owned())
}

/// Seen on a terminal only; nothing is drawn where stderr goes elsewhere.
struct Spinner(ProgressBar);

impl Spinner {
    fn new() -> Self {
        let bar = ProgressBar::new_spinner();
        let style = "{spinner} {human_pos} samples listed, {per_sec}";
        if let Ok(style) = ProgressStyle::with_template(style) {
            bar.set_style(style);
        }
        if !bar.is_hidden() {
            bar.enable_steady_tick(Duration::from_millis(100));
        }
        Self(bar)
    }
}

impl Progress for Spinner {
    fn listed(&self, objects: u64) {
        self.0.set_position(objects);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        dataset: DatasetArguments,
    }

    fn spec(line: &[&str]) -> Result<DatasetSpec, Failure> {
        let line = Line::try_parse_from(std::iter::once(&"forebay").chain(line)).unwrap();
        line.dataset.spec(Refresh::Auto)
    }

    fn folders(extensions: Option<&[&str]>, allow_empty: bool) -> Layout {
        let extensions = extensions.map(|list| list.iter().map(|&text| text.to_owned()).collect());
        Layout::ClassFolders {
            extensions,
            allow_empty,
        }
    }

    #[test]
    fn the_layout_is_guessed_from_the_url() {
        let layout = |line: &[&str]| spec(line).unwrap().layout;
        assert_eq!(layout(&["s3://b/train"]), folders(None, false));
        assert_eq!(layout(&["a.tar"]), Layout::Tar);
        assert_eq!(layout(&["s3://b/{0..9}.tar"]), Layout::Tar);
        assert_eq!(layout(&["shards", "--layout", "tar"]), Layout::Tar);
        let manifest = |allow_outside| Layout::Manifest {
            manifest: "m.csv".to_owned(),
            allow_outside,
        };
        assert_eq!(layout(&["x", "--manifest", "m.csv"]), manifest(false));
        let outside = ["x", "--manifest", "m.csv", "--allow-outside"];
        assert_eq!(layout(&outside), manifest(true));
        assert_eq!(layout(&["x", "--images"]), folders(Some(&IMAGES), false));
        assert_eq!(
            layout(&["x", "--extensions", ".jpg,png", "--allow-empty"]),
            folders(Some(&[".jpg", ".png"]), true)
        );
    }

    #[test]
    fn settings_that_contradict_each_other_are_refused() {
        for line in [
            &["x", "--layout", "manifest"][..],
            &["x", "--layout", "tar", "--manifest", "m.csv"],
            &["x.tar", "--images"],
            &["x", "--manifest", "m.csv", "--allow-empty"],
            &["x", "--extensions", ".jpg,,.png"],
        ] {
            assert!(matches!(spec(line), Err(Failure::Usage(_))), "{line:?}");
        }
    }

    #[test]
    fn a_storage_option_is_never_repeated() {
        let failure = spec(&["x", "--storage-option", "hunter2"]).unwrap_err();
        assert!(!format!("{failure:?}").contains("hunter2"));
        let spec = spec(&["x", "--storage-option", "secret=hunter2=x"]).unwrap();
        assert!(spec.storage_options.contains_key("secret"));
        assert!(!format!("{spec:?}").contains("hunter2"));
    }
}
