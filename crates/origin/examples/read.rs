//! How fast a dataset is read: `read URL [SECONDS] [THREADS]`.
//!
//! Reads random samples of class folders, local by threads or remote by a runtime of
//! as many, and tells samples and bytes a second.
#![allow(clippy::print_stdout)]

use std::error::Error;
use std::io::IoSliceMut;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use forebay_origin::{Dataset, DatasetSpec, Layout, Sink};

struct Buffer(Vec<u8>);

impl Sink for Buffer {
    fn write(&mut self, offset: u64, bytes: &[u8]) {
        self.0[offset as usize..][..bytes.len()].copy_from_slice(bytes);
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments
        .next()
        .ok_or("usage: read URL [SECONDS] [THREADS]")?;
    let seconds: u64 = arguments.next().map_or(Ok(5), |text| text.parse())?;
    let threads: usize = arguments.next().map_or(Ok(2), |text| text.parse())?;
    let start = Instant::now();
    let spec = DatasetSpec::new(
        url,
        Layout::ClassFolders {
            extensions: None,
            allow_empty: true,
        },
    );
    let dataset = Arc::new(Dataset::open(&spec, &())?);
    println!("opened in {:?}: {:?}", start.elapsed(), dataset.index());

    let (samples, bytes) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let start = Instant::now();
    let end = start + Duration::from_secs(seconds);
    let pick = |at: u64, len: u32| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32 % len;
    if dataset.is_local() {
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    let mut buffer = vec![0; dataset.index().max_length() as usize];
                    while Instant::now() < end {
                        let sample = pick(
                            samples.fetch_add(1, Ordering::Relaxed),
                            dataset.index().len(),
                        );
                        let length = dataset.index().length(sample).unwrap_or(0) as usize;
                        let read = dataset
                            .read_local(sample, &mut [IoSliceMut::new(&mut buffer[..length])]);
                        read.unwrap_or_else(|error| panic!("{error}"));
                        bytes.fetch_add(length as u64, Ordering::Relaxed);
                    }
                });
            }
        });
    } else {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(threads)
            .enable_all()
            .build()?;
        let tasks: Vec<_> = (0..spec.read.requests_in_flight)
            .map(|_| {
                let (dataset, samples, bytes) = (dataset.clone(), samples.clone(), bytes.clone());
                runtime.spawn(async move {
                    while Instant::now() < end {
                        let sample = pick(
                            samples.fetch_add(1, Ordering::Relaxed),
                            dataset.index().len(),
                        );
                        let length = dataset.index().length(sample).unwrap_or(0);
                        let mut sinks = [Buffer(vec![0; length as usize])];
                        let read = dataset
                            .read_group(&dataset.groups(&[sample])[0], &mut sinks)
                            .await;
                        read.unwrap_or_else(|error| panic!("{error}"));
                        bytes.fetch_add(length, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        runtime.block_on(async {
            for task in tasks {
                task.await?;
            }
            Ok::<_, tokio::task::JoinError>(())
        })?;
    }
    let took = start.elapsed().as_secs_f64();
    println!(
        "{:.0} samples/s",
        samples.load(Ordering::Relaxed) as f64 / took
    );
    println!(
        "{:.0} MB/s",
        bytes.load(Ordering::Relaxed) as f64 / took / 1e6
    );
    Ok(())
}
