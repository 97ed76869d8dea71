"""Arguments that cannot be are refused by name; torch's own are refused in torch's words."""

import json
import re

import forebay
import pytest
import torch
from data import class_folders
from processes import run_python


@pytest.fixture(scope="module")
def dataset(folder, tmp_path_factory):
    return forebay.FileFolder(folder, index_dir=tmp_path_factory.mktemp("index"))


# -- memory -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("memory", "kind", "says"),
    [
        ("-1", ValueError, "memory='-1' is not a size; hint: write it as"),
        ("2 potatoes", ValueError, "memory='2 potatoes' is not a size; hint: write it as"),
        ("", ValueError, "memory='' is not a size"),
        (-1, ValueError, "memory=-1 is out of range"),
        (2**63, ValueError, "memory=9223372036854775808 is out of range"),
        (1.5, TypeError, "memory is a number of bytes or a text such as '2GiB', not 1.5"),
        (True, TypeError, "memory is a number of bytes or a text such as '2GiB', not True"),
        (None, TypeError, "memory is a number of bytes or a text such as '2GiB', not None"),
    ],
)
def test_a_memory_that_is_no_size_is_refused(memory, kind, says, dataset):
    with pytest.raises(kind, match=re.escape(says)):
        forebay.DataLoader(dataset, memory=memory)


def test_a_memory_for_no_sample_names_the_least_value_which_then_works(dataset):
    with pytest.raises(forebay.InvalidError, match=r"budget of 0 bytes.*hint: raise memory=") as no:
        next(iter(forebay.DataLoader(dataset, memory=0)))
    least = int(re.search(r"the least is (\d+) bytes", str(no.value))[1])
    assert len(list(forebay.DataLoader(dataset, memory=least))) == 25


def test_a_memory_smaller_than_one_sample_names_the_least_value_which_then_works(tmp_path):
    dataset = forebay.FileFolder(class_folders(tmp_path, samples=4, size=300_000))
    with pytest.raises(forebay.ExhaustedError, match="sample of 300003 bytes does not fit") as no:
        next(iter(forebay.DataLoader(dataset, memory="100KiB")))
    least = int(re.search(r"it needs (\d+) bytes", str(no.value))[1])
    hinted = re.search(r"hint: raise memory= to at least (\w+)", str(no.value))[1]
    for memory in (least, hinted):
        samples = [s for samples, _ in forebay.DataLoader(dataset, memory=memory) for s in samples]
        assert [len(sample) for sample in samples] == [300_000, 300_001, 300_002, 300_003]
    with pytest.raises(forebay.ExhaustedError):
        next(iter(forebay.DataLoader(dataset, memory=least - 1)))


@pytest.mark.parametrize("memory", ["4TiB", "8000TiB"])
def test_more_memory_than_the_machine_has_is_refused_with_a_hint(memory, dataset):
    says = r"is more than the (machine|control group)'s \d+ bytes; hint: lower memory="
    with pytest.raises(forebay.InvalidError, match=says):
        iter(forebay.DataLoader(dataset, memory=memory))


# -- seed, rank, world ------------------------------------------------------------------


@pytest.mark.parametrize("seed", [-1, 1.0, True, 2**63, "1"])
def test_a_seed_that_is_none_is_refused(seed, dataset):
    says = f"seed={seed!r} is not a seed; it is a whole number from 0 to 2**63-1"
    with pytest.raises(ValueError, match=re.escape(says)):
        forebay.DataLoader(dataset, shuffle=True, seed=seed)


def test_the_largest_seed_works_in_every_epoch(dataset):
    loader = forebay.DataLoader(dataset, shuffle=True, seed=2**63 - 1)
    for epoch in range(2):
        assert sorted(loader.order(epoch).tolist()) == list(range(25))


@pytest.mark.parametrize(
    ("arguments", "kind", "says"),
    [
        ({"rank": 1}, ValueError, "rank=1 is not one of world_size=1 ranks"),
        ({"world_size": 2}, ValueError, "world_size=2 needs rank="),
        ({"rank": 2, "world_size": 2}, ValueError, "rank=2 is not one of world_size=2 ranks"),
        ({"rank": -1, "world_size": 2}, ValueError, "rank=-1 is not one of world_size=2 ranks"),
        ({"rank": 0, "world_size": 0}, ValueError, "world_size=0 is not a number of ranks"),
        ({"rank": 0, "world_size": -3}, ValueError, "world_size=-3 is not a number of ranks"),
        ({"rank": 0, "world_size": 2**40}, ValueError, "world_size=1099511627776 is not"),
        ({"rank": "0", "world_size": 2}, TypeError, "rank='0' is not a whole number"),
        ({"rank": 0, "world_size": 2.0}, TypeError, "world_size=2.0 is not a whole number"),
        ({"rank": True, "world_size": 2}, TypeError, "rank=True is not a whole number"),
    ],
)
def test_a_rank_that_cannot_be_is_refused(arguments, kind, says, dataset):
    with pytest.raises(kind, match=re.escape(says)):
        forebay.DataLoader(dataset, seed=0, **arguments)


@pytest.mark.parametrize(("rank", "world"), [("abc", "2"), ("0", "two"), ("", ""), ("2", "2")])
def test_a_rank_in_the_environment_that_cannot_be_is_refused(rank, world, dataset, monkeypatch):
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("WORLD_SIZE", world)
    with pytest.raises(ValueError, match=rf"(?i)rank='?{rank}'?.*world_size='?{world}"):
        forebay.DataLoader(dataset, seed=0)
    assert len(forebay.DataLoader(dataset)) == 25, "nobody is dealt to, so nobody asks"
    assert len(forebay.DataLoader(dataset, rank=0, world_size=1)) == 25, "arguments win"


# -- choices and what does not go together ----------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "kind", "says"),
    [
        ({"policy": "best"}, ValueError, "policy='best' is not one of 'farthest', 'reuse', 'lru'"),
        ({"on_error": "skip"}, ValueError, "on_error='skip' is not one of 'raise', 'replace'"),
        ({"deal": "cards"}, ValueError, "deal='cards' is not one of 'strided', 'batches'"),
        ({"max_bad_samples": -1}, ValueError, "max_bad_samples=-1 is negative"),
        ({"max_bad_samples": "9"}, TypeError, "max_bad_samples='9' is not a whole number"),
        ({"seed": 1, "sampler": [0]}, ValueError, "seed= makes the order"),
        ({"seed": 1, "batch_sampler": [[0]]}, ValueError, "seed= makes the order"),
        ({"seed": 1, "generator": torch.Generator()}, ValueError, "seed= and generator= both"),
        ({"sampler": [0], "rank": 0, "world_size": 2}, ValueError, "with a sampler, the sampler"),
        ({"generator": torch.Generator(), "rank": 0, "world_size": 2}, ValueError, "hint: pass se"),
        ({"colour": "red"}, TypeError, "colour"),
    ],
)
def test_a_choice_that_there_is_not_is_refused_by_name(arguments, kind, says, dataset):
    with pytest.raises(kind, match=re.escape(says)):
        forebay.DataLoader(dataset, **arguments)


@pytest.mark.parametrize("seed", [{}, {"seed": 3}], ids=["", "seed"])
@pytest.mark.parametrize(
    "arguments",
    [
        {"batch_size": 0},
        {"batch_size": -1},
        {"batch_size": 1.5},
        {"batch_size": True},
        {"batch_size": None, "drop_last": True},
        {"shuffle": True, "sampler": [0]},
        {"batch_sampler": [[0]], "batch_size": 2},
        {"batch_sampler": [[0]], "shuffle": True},
        {"batch_sampler": [[0]], "drop_last": True},
        {"num_workers": -1},
        {"prefetch_factor": 2},
        {"num_workers": 1, "prefetch_factor": -2},
        {"timeout": -1},
        {"persistent_workers": True},
        {"multiprocessing_context": "fork"},
        {"num_workers": 1, "multiprocessing_context": "knife"},
    ],
    ids=str,
)
def test_what_torch_refuses_is_refused_in_torchs_words(arguments, seed, dataset):
    if seed and ("sampler" in arguments or "batch_sampler" in arguments):
        pytest.skip("a seed goes with neither, which has words of its own")
    with pytest.raises(ValueError, match=r".") as theirs:
        torch.utils.data.DataLoader(dataset, **arguments)
    with pytest.raises(ValueError, match=r".") as ours:
        forebay.DataLoader(dataset, **arguments, **seed)
    assert str(ours.value) == str(theirs.value)
    assert type(ours.value) is type(theirs.value)


def test_an_empty_dataset_cannot_be_shuffled_as_in_torch():
    with pytest.raises(ValueError, match=r".") as theirs:
        torch.utils.data.DataLoader([], shuffle=True)
    with pytest.raises(ValueError, match=re.escape(str(theirs.value))):
        forebay.DataLoader([], shuffle=True)


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter(range(3))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"seed": 0}, "seed= plans the order of a map-style dataset"),
        ({"rank": 0, "world_size": 2}, "rank= plans the order of a map-style dataset"),
        ({"return_index": True}, "return_index=True needs"),
        ({"on_error": "replace"}, 'on_error="replace" needs'),
        ({"engine": forebay.Engine(memory="8MiB")}, "engine= needs"),
    ],
)
def test_what_a_stream_of_samples_cannot_have_is_refused_by_name(options, says):
    with pytest.raises(ValueError, match=re.escape(says)):
        forebay.DataLoader(Stream(), **options)


# -- samplers ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("index", "kind", "says"),
    [
        (25, IndexError, "the sampler gave 25; the dataset has the samples 0 to 24"),
        (2**70, IndexError, f"the sampler gave {2**70}; the dataset has"),
        (-26, IndexError, "the sampler gave -26; the dataset has"),
        (1.5, TypeError, "the sampler gave 1.5; datasets of forebay take sample numbers"),
        ("x", TypeError, "the sampler gave 'x'; datasets of forebay take sample numbers"),
        (None, TypeError, "the sampler gave None; datasets of forebay take sample numbers"),
    ],
)
@pytest.mark.parametrize("workers", [0, 2])
def test_a_sampler_that_gives_no_sample_is_told_what(index, kind, says, workers, dataset):
    indices = [3, 4, index]
    loader = forebay.DataLoader(dataset, sampler=indices, num_workers=workers)
    for _ in range(2):  # an epoch that failed leaves the loader as it was
        with pytest.raises(kind, match=re.escape(says)):
            list(loader)
    indices.pop()
    assert len(list(loader)) == 2


# -- absurd numbers ---------------------------------------------------------------------


def test_absurd_numbers_are_bounded_or_refused(folder):
    cases = [
        {"batch_size": 2**40},
        {"batch_size": 2**70, "shuffle": True},
        {"batch_size": 2**40, "shuffle": True, "seed": 1},
        {"batch_size": 2**40, "sampler": [0, 1]},
        {"batch_size": 2**40, "drop_last": True},
        {"num_workers": 10**6},
        {"num_workers": 2**70, "shuffle": True},
        {"num_workers": 10**6, "sampler": [0, 1]},
        {"num_workers": 1, "prefetch_factor": 2**70},
        {"readahead": "8000TiB"},
        {"timeout": 1e300},
        {"on_error": "replace", "max_bad_samples": 2**70},
    ]
    done = run_python(
        """
        import json, resource, sys
        import forebay
        dataset = forebay.FileFolder(sys.argv[1])
        status = dict(line.split(":", 1) for line in open("/proc/self/status"))
        # A million threads, or a batch of 2**40 samples, would not fit in two more GiB.
        limit = (int(status["VmSize"].split()[0]) << 10) + (2 << 30)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        for case in json.loads(sys.argv[2]):
            loader = forebay.DataLoader(dataset, memory="1MiB", return_index=True, **case)
            print(len(loader), sum(len(ids) for _, _, ids in loader))
            loader.close()
        """,
        folder,
        json.dumps(cases),
    )
    found = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
    single, each = (1, 25), (25, 25)
    assert found == [single] * 3 + [(1, 2), (0, 0), each, each, (2, 2), each, each, each, each]
