use super::*;

const BLOCK: usize = 64;

fn arena(blocks: u32) -> (Arena, Free) {
    Arena::new(blocks, BLOCK, false).unwrap()
}

fn bytes(arena: &Arena, reader: &Reader) -> Vec<u8> {
    arena.read(reader).flatten().copied().collect()
}

#[test]
#[cfg_attr(miri, ignore = "Miri maps no files")]
fn what_is_written_to_a_shared_arena_is_read_by_its_mapping_and_by_its_file() {
    let (arena, mut free) = Arena::new(16, BLOCK, true).unwrap();
    // A chain in three runs: what is freed last is taken first.
    let spans: Vec<_> = (0..6).map(|_| arena.take(&mut free, 64).unwrap()).collect();
    for (at, span) in spans.into_iter().enumerate() {
        if at % 2 == 0 {
            arena.give(&mut free, span);
        }
    }
    let wanted: Vec<u8> = (0..400_u32).map(|value| value as u8).collect();
    let mut span = arena.take(&mut free, 400).unwrap();
    for (at, part) in [(0, 0..5), (5, 5..300), (300, 300..400)] {
        arena.write_at(&mut span, at, &wanted[part]);
    }
    let reader = arena.share(span);
    assert_eq!(bytes(&arena, &reader), wanted);
    let file = arena.file().unwrap();
    let mut found = Vec::new();
    for (offset, len) in arena.extents(&reader) {
        let mut part = vec![0; len as usize];
        file.read_exact_at(&mut part, offset).unwrap();
        found.extend(part);
    }
    assert!(arena.extents(&reader).count() > 2);
    assert_eq!(found, wanted);
}

#[test]
fn every_block_can_be_taken_and_not_one_more() {
    let (arena, mut free) = arena(10);
    let spans: Vec<_> = (0..5).map(|_| arena.take(&mut free, 65).unwrap()).collect();
    assert_eq!(arena.free_blocks(&free), 0);
    assert!(
        arena.take(&mut free, 0).is_none(),
        "an empty sample takes a block too"
    );
    for span in spans {
        arena.give(&mut free, span);
    }
    let whole = arena.take(&mut free, 10 * BLOCK as u64).unwrap();
    arena.give(&mut free, whole);
    assert_eq!(arena.free_blocks(&free), 10);
}

#[test]
fn a_fresh_sample_is_one_run_and_comes_back_as_one() {
    let (arena, mut free) = arena(100);
    for _ in 0..3 {
        let mut span = arena.take(&mut free, 1000).unwrap();
        assert_eq!(
            arena
                .write(&mut span)
                .map(|slice| slice.len())
                .collect::<Vec<_>>(),
            [1000]
        );
        arena.give(&mut free, span);
    }
    assert_eq!(free.fresh, 16, "the same blocks each time");
}

#[test]
fn a_scattered_sample_reads_as_it_was_written() {
    let (arena, mut free) = arena(12);
    let singles: Vec<_> = (0..12).map(|_| arena.take(&mut free, 1).unwrap()).collect();
    for (at, span) in singles.into_iter().enumerate() {
        if at % 3 != 0 {
            arena.give(&mut free, span);
        }
    }
    let expected: Vec<u8> = (0..500).map(|at| at as u8).collect();
    let mut span = arena.take(&mut free, 500).unwrap();
    assert!(arena.write(&mut span).count() > 1);
    // Out of order, across blocks, backwards: the cursor must follow.
    for range in [300..500, 0..1, 1..63, 63..200, 200..200, 200..300] {
        arena.write_at(&mut span, range.start as u64, &expected[range.clone()]);
    }
    let reader = arena.share(span);
    assert_eq!(bytes(&arena, &reader), expected);
}

#[test]
#[should_panic(expected = "beyond a sample of 100 bytes")]
fn a_write_beyond_the_end_panics() {
    let (arena, mut free) = arena(4);
    let mut span = arena.take(&mut free, 100).unwrap();
    arena.write_at(&mut span, 99, &[1, 2]);
}

#[test]
fn only_the_last_reader_becomes_the_owner() {
    let (arena, mut free) = arena(4);
    let span = arena.take(&mut free, 100).unwrap();
    let first = arena.share(span);
    let second = arena.again(&first);
    let first = arena.reclaim(first).expect_err("there is another reader");
    arena.release(second);
    let span = arena.reclaim(first).expect("the last reader");
    arena.give(&mut free, span);
    assert_eq!(arena.free_blocks(&free), 4);
}
