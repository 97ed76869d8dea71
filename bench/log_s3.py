"""From a bucket: the first epoch against the line's limit, later ones from the log.

A real S3 server on loopback behind a proxy that adds 10 ms to every request and lets 50 MB/s
through, all connections together. Then a new process with another seed, which must not read a
single object.
"""

from __future__ import annotations

import os
from typing import Any

import s3
from log_files import scratch
from log_life import Life, in_a_process, rate
from report import table
from s3 import servers

DELAY_MS = 10
LINE = 50e6


def run(count: int, memory: str) -> dict[str, Any]:
    """Two epochs of one process, then one of another."""
    cold = os.geteuid() == 0
    # Objects in the server, the log, and room for both to grow.
    with scratch(count * 400_000) as directory:
        server = servers.SeaweedFS(directory)
        proxy = None
        try:
            size = s3.upload(server, count)
            proxy = servers.FaultyProxy(server.endpoint, delay_ms=DELAY_MS)
            proxy.set(delay_ms=DELAY_MS, mbps=LINE * 8 / 1e6)
            options: dict[str, Any] = {
                "cache_dir": str(directory / "cache"),
                "disk": "1TiB",
                "memory": memory,
                "storage_options": servers.storage_options(proxy.endpoint),
            }
            source = f"s3://{s3.BUCKET}/{s3.PREFIX}"
            life = Life("forebay", source, epochs=2, cold=cold, options=options)
            epochs = in_a_process(life, "first process")
            before = proxy.counts()
            again = options | {"seed": 2}
            life = Life("forebay", source, epochs=1, cold=cold, options=again)
            epochs += in_a_process(life, "new process, another seed")
            after = proxy.counts()
        finally:
            if proxy is not None:
                proxy.close()
            server.close()
    if len(epochs) != 3:
        raise SystemExit("a process failed: no figures from S3")
    for epoch in epochs:
        assert (epoch["samples"], epoch["bytes"]) == (count, size), epoch
    requests = {"before": before, "after": after}
    return {"objects": count, "bytes": size, "requests": requests, **report(epochs, size)}


def report(epochs: list[dict[str, Any]], size: int) -> dict[str, Any]:
    """Prints the epochs and the claims; gives them."""
    names = ("first epoch", "second epoch", "new process, another seed")
    rows = []
    for name, epoch in zip(names, epochs, strict=True):
        row = [name, f"{rate(epoch):,.0f}"]
        row.append(f"{rate(epoch) * size / epoch['samples'] / 1e6:,.1f}")
        row += [f"{epoch[key]:,}" for key in ("log_hits", "memory_hits", "origin_reads")]
        rows.append(row)
    print(f"\n### S3 behind {DELAY_MS} ms and {LINE / 1e6:.0f} MB/s\n")
    print(table(["", "samples/s", "MB/s", "log hits", "memory hits", "origin reads"], rows))
    first, second, fresh = epochs
    claims = {
        "first_of_line": rate(first) * size / first["samples"] / LINE,
        "second_of_first": rate(second) / rate(first),
        "new_process_of_first": rate(fresh) / rate(first),
        "new_process_origin_reads": fresh["origin_reads"],
    }
    lines = [
        ["first epoch, of the line's limit", f"{claims['first_of_line']:.2f}", "1"],
        ["second epoch, of the first", f"{claims['second_of_first']:.1f}", "10"],
        ["new process, of the first", f"{claims['new_process_of_first']:.1f}", "10"],
        ["new process, origin reads", f"{claims['new_process_origin_reads']}", "0"],
    ]
    print("\n" + table(["S3", "found", "wanted"], lines), flush=True)
    return {"epochs": epochs, "claims": claims}
