"""Writes the golden vectors of the torch (and accelerate) that runs this script.

    python make.py            writes torch-<version>.json, and accelerate-<version>.json
                              where accelerate is installed

Needs about 6 GB of memory, for the permutation of 214,748,364. Long lists are kept as a
head and a checksum, and a generator's state as a checksum of its first 5016 bytes.
"""

import itertools
import json
import pathlib
import random

import numpy as np
import torch
from torch.utils.data import (
    BatchSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from torch.utils.data.distributed import DistributedSampler

HERE = pathlib.Path(__file__).parent
ENGINE_BYTES = 5016


def checksum(values):
    """Sum of (value + 1) * odd weight of its position, modulo 2^64."""
    total = np.uint64(0)
    step = 1 << 22
    with np.errstate(over="ignore"):
        for start in range(0, len(values), step):
            part = np.asarray(values[start : start + step]).astype(np.uint64) + np.uint64(1)
            place = np.arange(start + 1, start + 1 + len(part), dtype=np.uint64)
            weight = (place * np.uint64(0x9E3779B97F4A7C15)) | np.uint64(1)
            total += (part * weight).sum(dtype=np.uint64)
    return f"{int(total):016x}"


def listed(values):
    """A list in full if it is short, as a head and a checksum if not."""
    if len(values) <= 80:
        return {"all": [int(v) for v in values]}
    return {
        "len": len(values),
        "head": [int(v) for v in values[:6]],
        "sum": checksum(np.asarray(values)),
    }


def generator(seed):
    g = torch.Generator()
    g.manual_seed(seed)
    return g


def state(g):
    return checksum(g.get_state().numpy()[:ENGINE_BYTES].view("<u4"))


def weights(count, salt, zeros):
    """Exactly reproducible in any language: integers, one division, two products."""
    out = []
    for i in range(count):
        u = ((i * 2654435761 + salt) % 2**32) / 2**32
        out.append(0.0 if zeros and i % 3 == 1 else u * u * u)
    return out


def randperms():
    cases = []
    for seed in (0, 1, 42, 2**31 + 7, 2**32 + 5, 2**64 - 1):
        g = generator(seed if seed < 2**63 else seed - 2**64)
        calls = []
        for n in (0, 1, 2, 10, 623, 624, 625, 1000, 3, 1000):
            calls.append({"n": n, "ids": listed(torch.randperm(n, generator=g)), "state": state(g)})
        cases.append({"seed": seed, "calls": calls})
    large = ((0, (1281167, 1281167)), (7, (1281167,)), (0, (14200000,)), (3, (14200000, 10)))
    for seed, sizes in large:
        g = generator(seed)
        calls = []
        for n in sizes:
            calls.append({"n": n, "ids": listed(torch.randperm(n, generator=g)), "state": state(g)})
        cases.append({"seed": seed, "calls": calls})
    return cases


def slow_randperms():
    cases = []
    for n in (214748363, 214748364):
        g = generator(5)
        calls = [{"n": n, "ids": listed(torch.randperm(n, generator=g)), "state": state(g)}]
        cases.append({"seed": 5, "calls": calls})
    return cases


def int64s():
    cases = []
    for seed in (0, 9, 123456789):
        g = generator(seed)
        drawn = [torch.empty((), dtype=torch.int64).random_(generator=g).item() for _ in range(5)]
        cases.append({"seed": seed, "drawn": drawn, "state": state(g)})
    return cases


def randints():
    cases = []
    for n in (1, 2, 10, 2**28 - 1, 2**28, 2**28 + 1, 2**31, 2**32 - 1, 2**32, 2**40 + 3):
        g = generator(n % 1000)
        drawn = torch.randint(n, (20,), generator=g).tolist()
        cases.append({"seed": n % 1000, "n": n, "drawn": drawn, "state": state(g)})
    return cases


def multinomials():
    cases = []
    for dtype, name in ((torch.float64, "f64"), (torch.float32, "f32")):
        settings = itertools.product((1, 2, 7, 1000, 20000), (2, 50, 700), (False, True))
        # Many draws among many weights show in which type the sums were rounded.
        for count, drawn, zeros in (*settings, (20000, 100000, False)):
            if zeros and count == 1:
                continue
            salt = count * 31 + drawn
            g = generator(salt)
            w = torch.tensor(weights(count, salt, zeros), dtype=torch.float64).to(dtype)
            if w.sum() == 0:
                continue
            ids = torch.multinomial(w, drawn, replacement=True, generator=g)
            cases.append(
                {
                    "dtype": name,
                    "seed": salt,
                    "weights": count,
                    "zeros": zeros,
                    "count": drawn,
                    "ids": listed(ids),
                    "state": state(g),
                }
            )
    return cases


def stopped(make, requests):
    """The state of the generator after so many calls of next()."""
    g, sampler = make()
    stream = iter(sampler)
    for _ in range(requests):
        next(stream, None)
    return {"requests": requests, "state": state(g)}


def samplers():
    cases = []

    def add(kind, make, **settings):
        g, sampler = make()
        ids = list(sampler)
        end = len(ids)
        stops = sorted({0, 1, 2, 31, 32, 33, end // 2, end - 1, end, end + 1} & set(range(end + 2)))
        cases.append(
            {
                "kind": kind,
                **settings,
                "ids": listed(ids),
                "state": state(g),
                "stops": [stopped(make, k) for k in stops],
            }
        )

    for seed, (n, count), replacement in itertools.product(
        (0, 11),
        (
            (10, None),
            (10, 3),
            (10, 20),
            (10, 25),
            (1, 4),
            (100, 32),
            (100, 64),
            (100, 70),
            (700, None),
            (2**29, 40),
        ),
        (False, True),
    ):
        if n == 2**29 and not replacement:
            continue

        def make(seed=seed, n=n, count=count, replacement=replacement):
            g = generator(seed)
            sampler = RandomSampler(
                range(n), replacement=replacement, num_samples=count, generator=g
            )
            return g, sampler

        add("random", make, seed=seed, samples=n, count=count or n, replacement=replacement)
    for seed, count in itertools.product((0, 4), (0, 1, 2, 9, 700)):
        indices = [3 * i + 1 for i in range(count)]

        def make(seed=seed, indices=indices):
            g = generator(seed)
            return g, SubsetRandomSampler(indices, generator=g)

        add("subset", make, seed=seed, samples=count)
    for seed, n, count in ((0, 5, 2), (1, 40, 100), (2, 3000, 500)):

        def make(seed=seed, n=n, count=count):
            g = generator(seed)
            return g, WeightedRandomSampler(weights(n, seed, True), count, generator=g)

        add("weighted", make, seed=seed, samples=n, count=count)
    add("sequential", lambda: (generator(0), SequentialSampler(range(9))), seed=0, samples=9)
    return cases


def batch_samplers():
    """RandomSampler in batches, broken off: what came, and the generator after it."""
    cases = []
    for n, size, drop_last in itertools.product((1, 7, 12, 13), (1, 3, 4, 20), (False, True)):
        total = n // size if drop_last else -(-n // size)
        for taken in range(total + 2):
            g = generator(n)
            stream = iter(BatchSampler(RandomSampler(range(n), generator=g), size, drop_last))
            batches = [b for b in (next(stream, None) for _ in range(taken)) if b is not None]
            cases.append(
                {
                    "samples": n,
                    "batch_size": size,
                    "drop_last": drop_last,
                    "taken": taken,
                    "batches": batches,
                    "state": state(g),
                }
            )
    return cases


def distributed():
    rng = random.Random(20)
    cases = []
    for i in range(60):
        n = rng.choice((0, 1, 2, 3, 5, 17, 64, 100, 641))
        world = rng.choice((1, 2, 3, 4, 7, 8, 16))
        settings = {
            "samples": n,
            "world": world,
            "seed": rng.choice((0, 1, 42, 2**32 - 1)),
            "epoch": rng.randrange(5),
            "shuffle": i % 5 != 0,
            "drop_last": i % 3 == 0,
            "batch_size": rng.choice((1, 2, 5, 64)),
            "drop_last_batch": i % 4 == 0,
        }
        ranks = []
        for rank in range(world):
            sampler = DistributedSampler(
                range(n),
                num_replicas=world,
                rank=rank,
                shuffle=settings["shuffle"],
                seed=settings["seed"],
                drop_last=settings["drop_last"],
            )
            sampler.set_epoch(settings["epoch"])
            batches = BatchSampler(sampler, settings["batch_size"], settings["drop_last_batch"])
            sizes = [len(batch) for batch in batches]
            ids = [index for batch in batches for index in batch]
            last = sizes[-1] if sizes else 0
            ranks.append({"ids": listed(ids), "batches": len(sizes), "last": last})
        cases.append({**settings, "ranks": ranks})
    return cases


def handover():
    """A generator in mid-stream, normals cached: its bytes, and those after more draws."""
    g = generator(77)
    torch.rand(300, generator=g)
    torch.randn(3, generator=g)
    before = g.get_state().numpy().tobytes()
    ids = torch.randperm(1000, generator=g)
    after = checksum(g.get_state().numpy().view("<u4"))
    return {"before": before.hex(), "ids": listed(ids), "after": after}


def accelerate_deals():
    from accelerate.data_loader import BatchSamplerShard, SeedableRandomSampler

    cases = []
    for n, size, world, drop_last, split in itertools.product(
        (1, 2, 5, 12, 13, 23, 24, 47), (1, 3, 4), (1, 2, 3), (False, True), (False, True)
    ):
        settings = {
            "samples": n,
            "batch_size": size,
            "world": world,
            "drop_last": drop_last,
            "seed": 42,
            "epoch": (n + size) % 3,
        }
        ranks = []
        for rank in range(world):
            sampler = SeedableRandomSampler(range(n), data_seed=settings["seed"])
            sampler.set_epoch(settings["epoch"])
            batches = BatchSampler(sampler, size * world if split else size, drop_last)
            # accelerate's prepare_data_loader shards for more than one process only.
            if world > 1:
                batches = BatchSamplerShard(batches, world, rank, split_batches=split)
            ranks.append(list(batches))
        cases.append({**settings, "split": split, "ranks": ranks})
    return cases


def write(name, sections):
    """One case a line, so that a difference can be read."""
    lines = []
    for key, value in sections.items():
        if isinstance(value, list):
            rows = ",\n".join("  " + json.dumps(row, separators=(",", ":")) for row in value)
            lines.append(f"{json.dumps(key)}: [\n{rows}\n ]")
        else:
            lines.append(f"{json.dumps(key)}: {json.dumps(value, separators=(',', ':'))}")
    (HERE / name).write_text("{" + ",\n ".join(lines) + "}\n")


def main():
    version = torch.__version__.split("+")[0]
    write(
        f"torch-{version}.json",
        {
            "torch": version,
            "randperm": randperms(),
            "slow_randperm": slow_randperms(),
            "int64": int64s(),
            "randint": randints(),
            "multinomial": multinomials(),
            "samplers": samplers(),
            "batch_samplers": batch_samplers(),
            "distributed": distributed(),
            "handover": handover(),
        },
    )
    try:
        import accelerate
    except ImportError:
        return
    write(
        f"accelerate-{accelerate.__version__}.json",
        {"accelerate": accelerate.__version__, "deals": accelerate_deals()},
    )


if __name__ == "__main__":
    main()
