//! Work under way: samples that end together, and what they hold meanwhile.

/// Where samples come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    Memory,
    Log,
    Peer,
    Origin,
}

/// How many sources there are.
pub(crate) const SOURCES: usize = 4;

/// What is being done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Kind {
    /// A thread brings samples from memory to their place.
    #[default]
    Placing,
    /// A thread reads samples, and brings them to their place if that is open.
    Local,
    /// Requests in flight.
    Read(Which),
}

/// Whose requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Which {
    #[default]
    Log,
    Peer,
    Origin,
}

impl Which {
    pub(crate) fn source(self) -> Source {
        match self {
            Which::Log => Source::Log,
            Which::Peer => Source::Peer,
            Which::Origin => Source::Origin,
        }
    }
}

/// A sample's slot where it goes past the tier, straight to its place.
pub(crate) const PAST: u32 = u32::MAX - 1;

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Parcel {
    pub(crate) rank: u32,
    pub(crate) batch: u64,
    pub(crate) kind: Kind,
    /// The batch was open when the samples were asked for.
    pub(crate) open: bool,
    /// Indices in the batch, and slots in the tier.
    pub(crate) tasks: Vec<(u32, u32)>,
    pub(crate) bytes: u64,
    /// Places in flight that it takes, by source.
    pub(crate) width: [u32; SOURCES],
}

/// Parcels, used again.
#[derive(Debug, Default)]
pub(crate) struct Parcels {
    all: Vec<Parcel>,
    free: Vec<u32>,
}

impl Parcels {
    /// An empty one.
    pub(crate) fn add(&mut self, rank: usize, batch: u64, kind: Kind, open: bool) -> u32 {
        let number = self.free.pop().unwrap_or_else(|| {
            self.all.push(Parcel::default());
            self.all.len() as u32 - 1
        });
        let parcel = &mut self.all[number as usize];
        let mut tasks = std::mem::take(&mut parcel.tasks);
        tasks.clear();
        *parcel = Parcel {
            rank: rank as u32,
            batch,
            kind,
            open,
            tasks,
            ..Parcel::default()
        };
        number
    }

    pub(crate) fn get(&mut self, number: u32) -> &mut Parcel {
        &mut self.all[number as usize]
    }

    /// Takes one out; [`Parcels::give`] it back.
    pub(crate) fn take(&mut self, number: u32) -> Parcel {
        std::mem::take(&mut self.all[number as usize])
    }

    pub(crate) fn give(&mut self, number: u32, parcel: Parcel) {
        self.all[number as usize] = parcel;
        self.free.push(number);
    }
}
