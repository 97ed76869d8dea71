//! A sample by itself, outside of any job.

use forebay_cache::Lookup;
use forebay_origin::View;

use super::{read_local, remote};
use crate::Error;
use crate::engine::Plant;
use crate::job::key;
use crate::machine::usable_memory;

/// One sample's bytes, through the tier.
pub(crate) fn read_one(plant: &Plant, dataset: &View, id: u32) -> Result<Vec<u8>, Error> {
    let samples = dataset.len();
    if id >= samples {
        return Err(Error::OutOfRange {
            sample: id,
            samples,
        });
    }
    let length = dataset.length(id)?;
    let failed = |source| Error::Sample {
        sample: id,
        name: dataset.name(id),
        source,
    };
    // Nothing is allocated by a length that nobody has checked: the tier does, and what it has no
    // room for is compared with all memory there is.
    if plant.tier.check_fits(length).is_err() {
        check_memory(dataset, id, length)?;
    }
    let buffer = || buffer(length);
    let read = || {
        let mut bytes = buffer()?;
        if dataset.is_local() {
            read_local(dataset, id, &mut [&mut bytes]).map_err(failed)?;
            return Ok(bytes);
        }
        drop(bytes);
        let read = remote::read(dataset, id, length);
        plant.runtime().block_on(read).map_err(failed)
    };
    match plant.tier.lookup(key(dataset, id), length, None) {
        Ok(Lookup::Hit(held)) => {
            let mut bytes = buffer()?;
            held.copy_to(&mut bytes);
            Ok(bytes)
        }
        Ok(Lookup::Fill(mut fill)) => {
            let bytes = read()?;
            fill.write_at(0, &bytes);
            drop(fill.commit());
            Ok(bytes)
        }
        // Full, too large, or another thread is at it: just read.
        Ok(Lookup::Busy(_) | Lookup::Full) | Err(_) => read(),
    }
}

fn check_memory(dataset: &View, sample: u32, length: u64) -> Result<(), Error> {
    let usable = usable_memory();
    if length <= usable.bytes {
        return Ok(());
    }
    Err(Error::LargerThanMemory {
        sample,
        name: dataset.name(sample),
        length,
        usable,
    })
}

fn buffer(length: u64) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    bytes
        .try_reserve_exact(length as usize)
        .map_err(|error| Error::System {
            what: "memory for a sample",
            source: std::io::Error::new(std::io::ErrorKind::OutOfMemory, error),
        })?;
    bytes.resize(length as usize, 0);
    Ok(bytes)
}
