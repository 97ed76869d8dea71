//! Reads that go together: neighbours in one object, fetched by one request.
//!
//! ```text
//! object   ....[ a ]..[ b ][ c ]..................[ d ]....
//! groups       |---- one ------|                  |two|      (gap of a and b is small)
//! ```

use std::ops::Range;

use forebay_format::Index;

/// Takes the bytes of one sample. Bytes may come in any pieces; after a retry some may
/// come again, and then those that come last are the ones that count.
pub trait Sink: Send {
    /// `bytes` belong at `offset` of the sample.
    fn write(&mut self, offset: u64, bytes: &[u8]);
}

/// Samples to be read by one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    pub(crate) members: Vec<Member>,
    /// Which dataset of a view has them.
    pub(crate) part: usize,
    /// The part of the object that all members lie in.
    pub(crate) range: Range<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Member {
    /// Where in the list that was grouped.
    pub(crate) position: usize,
    pub(crate) sample: u32,
    pub(crate) range: Range<u64>,
}

/// A group is cut before it gets longer than this, so that requests run side by side.
const LONGEST: u64 = 8 << 20;

impl Group {
    /// The members' positions in the list that was grouped, in the order of the sinks.
    pub fn members(&self) -> impl ExactSizeIterator<Item = usize> + '_ {
        self.members.iter().map(|member| member.position)
    }

    /// The members' sample ids, in the order of the sinks.
    pub fn samples(&self) -> impl ExactSizeIterator<Item = u32> + '_ {
        self.members.iter().map(|member| member.sample)
    }

    /// Bytes of the request.
    pub fn bytes(&self) -> u64 {
        self.range.end - self.range.start
    }

    fn of(member: Member) -> Self {
        Self {
            range: member.range.clone(),
            members: vec![member],
            part: 0,
        }
    }

    /// As a group of a view: of its dataset `part`, its members at `places` of the view's list.
    pub(crate) fn moved(mut self, part: usize, places: &[usize]) -> Self {
        self.part = part;
        for member in &mut self.members {
            member.position = places[member.position];
        }
        self
    }

    /// Hands a piece of the group's range to the members it belongs to.
    pub(crate) fn scatter<S: Sink>(&self, at: u64, bytes: &[u8], sinks: &mut [S]) {
        let piece = self.range.start + at..self.range.start + at + bytes.len() as u64;
        for (member, sink) in self.members.iter().zip(sinks) {
            if member.range.start >= piece.end {
                break; // members are in the order of their starts
            }
            let start = member.range.start.max(piece.start);
            let end = member.range.end.min(piece.end);
            if start < end {
                let part = (start - piece.start) as usize..(end - piece.start) as usize;
                sink.write(start - member.range.start, &bytes[part]);
            }
        }
    }
}

/// Groups samples; each is in exactly one group. What the index cannot tell (it is
/// damaged) becomes a group of its own, whose read gives the error.
pub(crate) fn groups(index: &Index, samples: &[u32], gap: u64) -> Vec<Group> {
    let member = |position: usize, sample: u32| {
        let start = index.offset(sample).unwrap_or_default();
        let end = start.saturating_add(index.length(sample).unwrap_or_default());
        Member {
            position,
            sample,
            range: start..end,
        }
    };
    if !index.ranged() {
        return samples
            .iter()
            .enumerate()
            .map(|(at, &sample)| Group::of(member(at, sample)))
            .collect();
    }
    let mut members: Vec<_> = samples
        .iter()
        .enumerate()
        .map(|(at, &sample)| (index.name(sample).unwrap_or_default(), member(at, sample)))
        .collect();
    members.sort_by(|(a, x), (b, y)| {
        (a, x.range.start, x.position).cmp(&(b, y.range.start, y.position))
    });
    let mut groups: Vec<(String, Group)> = Vec::new();
    for (name, member) in members {
        match groups.last_mut() {
            Some((last, group))
                if *last == name && !name.is_empty() && group.takes(&member, gap) =>
            {
                group.range.end = group.range.end.max(member.range.end);
                group.members.push(member);
            }
            _ => groups.push((name, Group::of(member))),
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

impl Group {
    fn takes(&self, member: &Member, gap: u64) -> bool {
        member.range.start <= self.range.end.saturating_add(gap)
            && member.range.end.saturating_sub(self.range.start) <= LONGEST
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_format::{IndexBuilder, Sample};
    use proptest::prelude::*;

    fn index(rows: &[(u8, u64, u64)]) -> Index {
        let mut builder = IndexBuilder::new("u", "tar");
        builder.ranged(true);
        for &(object, offset, length) in rows {
            let object = format!("{object}.tar");
            builder
                .push(Sample {
                    object: &object,
                    offset,
                    length,
                    label: -1,
                    validator: 0,
                })
                .unwrap();
        }
        Index::parse(builder.finish()).unwrap()
    }

    struct Buffer(Vec<Option<u8>>);

    impl Sink for Buffer {
        fn write(&mut self, offset: u64, bytes: &[u8]) {
            for (at, byte) in bytes.iter().enumerate() {
                self.0[offset as usize + at] = Some(*byte);
            }
        }
    }

    #[test]
    fn neighbours_are_read_together_and_far_ones_apart() {
        let index = index(&[(0, 0, 10), (0, 512, 10), (0, 100_000, 10), (1, 0, 10)]);
        let groups = groups(&index, &[3, 1, 2, 0], 1000);
        let members: Vec<Vec<u32>> = groups
            .iter()
            .map(|group| group.samples().collect())
            .collect();
        assert_eq!(members, [vec![0, 1], vec![2], vec![3]]);
        assert_eq!(groups[0].range, 0..522);
        assert_eq!(groups[0].members().collect::<Vec<_>>(), [3, 1]);
    }

    #[test]
    fn a_group_does_not_grow_past_its_limit() {
        let rows: Vec<_> = (0..40).map(|i| (0, i << 20, 1 << 20)).collect();
        let groups = groups(&index(&rows), &(0..40).collect::<Vec<_>>(), 1000);
        assert_eq!(groups.len(), 5);
        assert!(groups.iter().all(|group| group.bytes() <= LONGEST));
    }

    proptest! {
        #[test]
        fn each_sink_gets_exactly_its_sample(
            rows in proptest::collection::vec((0..2u8, 0..60u64, 0..40u64), 1..12),
            picks in proptest::collection::vec(any::<prop::sample::Index>(), 1..12),
            gap in 0..30u64,
            piece in 1..17usize,
        ) {
            let index = index(&rows);
            let picks: Vec<u32> = picks.iter().map(|pick| pick.index(rows.len()) as u32).collect();
            let mut seen = vec![0; picks.len()];
            for group in groups(&index, &picks, gap) {
                let object: Vec<u8> = group.range.clone().map(|at| at as u8).collect();
                let mut sinks: Vec<_> = group.samples().map(|i| Buffer(vec![None; rows[i as usize].2 as usize])).collect();
                for (i, part) in object.chunks(piece).enumerate() {
                    group.scatter((i * piece) as u64, part, &mut sinks);
                }
                for ((position, sample), sink) in group.members().zip(group.samples()).zip(&sinks) {
                    seen[position] += 1;
                    prop_assert_eq!(picks[position], sample);
                    let (_, offset, length) = rows[sample as usize];
                    let expected: Vec<_> = (offset..offset + length).map(|at| Some(at as u8)).collect();
                    prop_assert_eq!(&sink.0, &expected);
                }
            }
            prop_assert!(seen.iter().all(|&count| count == 1));
        }
    }
}
