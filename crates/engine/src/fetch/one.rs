//! A sample by itself, outside of any job.

use forebay_cache::Lookup;
use forebay_origin::Dataset;

use super::{read_local, remote};
use crate::Error;
use crate::engine::Plant;
use crate::job::key;

/// One sample's bytes, through the tier.
pub(crate) fn read_one(plant: &Plant, dataset: &Dataset, id: u32) -> Result<Vec<u8>, Error> {
    let samples = dataset.index().len();
    if id >= samples {
        return Err(Error::OutOfRange {
            sample: id,
            samples,
        });
    }
    let length = dataset.index().length(id)?;
    let failed = |source| Error::Sample {
        sample: id,
        name: dataset.name(id),
        source,
    };
    let read = |bytes: &mut [u8]| {
        if dataset.is_local() {
            read_local(dataset, id, &mut [bytes]).map_err(failed)
        } else {
            let read = plant
                .runtime()
                .block_on(remote::read(dataset, id, length))
                .map_err(failed)?;
            bytes.copy_from_slice(&read);
            Ok(())
        }
    };
    let mut bytes = vec![0; length as usize];
    match plant.tier.lookup(key(dataset, id), length, None) {
        Ok(Lookup::Hit(held)) => held.copy_to(&mut bytes),
        Ok(Lookup::Fill(mut fill)) => {
            read(&mut bytes)?;
            fill.write_at(0, &bytes);
            drop(fill.commit());
        }
        // Full, too large, or another thread is at it: just read.
        Ok(Lookup::Busy(_) | Lookup::Full) | Err(_) => read(&mut bytes)?,
    }
    Ok(bytes)
}
