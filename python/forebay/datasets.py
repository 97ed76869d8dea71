"""Datasets as they are: class folders, files of a manifest, tar shards; local or in a bucket.

Each is a map-style dataset of torch's: picklable, safe to fork and to spawn, usable in
a plain ``torch.utils.data.DataLoader`` too, where every process reads through an
engine of its own. In ``forebay.DataLoader`` the bytes come from the loader's engine and
only what is written in Python (a transform, say) runs in Python.
"""

from __future__ import annotations

import io
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
import torch.utils.data
from PIL import Image, UnidentifiedImageError

from forebay import _forebay
from forebay.listing import manifest_of_valid_files
from forebay.pixels import Decoded
from forebay.samples import Samples

IMAGE_EXTENSIONS = (
    ".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp",
)  # fmt: skip

Transform = Callable[[Any], Any]


class Dataset(Samples, torch.utils.data.Dataset[Any]):
    """What all datasets of forebay share.

    ``storage_options`` are the object store's settings (keys, endpoint, ...) and win over
    the environment. ``read_options`` say how objects are read: ``deadline`` (seconds
    that one read may go without progress, retries included), ``requests_in_flight``,
    ``bytes_in_flight``, ``hedge_after`` (seconds; 0 for never) and ``coalesce_gap`` (bytes).
    """

    # The url without secrets, once it was opened.
    _shown: str | None = None
    # What samples' numbers stood for when it was pickled.
    _numbering: int | None = None

    def __init__(
        self,
        url: str | os.PathLike[str],
        layout: str,
        *,
        transform: Transform | None,
        target_transform: Transform | None,
        storage_options: Mapping[str, str] | None,
        refresh: str = "auto",
        index_dir: str | os.PathLike[str] | None = None,
        read_options: Mapping[str, float] | None = None,
        **layout_options: Any,
    ) -> None:
        self.root = os.fspath(url)
        if not self.root:
            raise _forebay.InvalidError("an address is needed: a path or a url, not an empty text")
        if layout == "folders" and os.path.isfile(self.root):
            raise _forebay.InvalidError(
                f"{self.root} is a file, not a directory of class folders; hint: check the path"
            )
        self.transform = transform
        self.target_transform = target_transform
        self._spec = {
            "url": self.root,
            "layout": layout,
            "storage_options": _texts(storage_options or {}),
            "refresh": refresh,
            "index_dir": None if index_dir is None else os.fspath(index_dir),
            "read": _numbers(read_options or {}),
            **layout_options,
        }
        self._opened: _forebay.Dataset | None = None
        self._forks = -1
        said = self.native.report
        for warning in said["warnings"]:
            _say(warning)

    @property
    def native(self) -> _forebay.Dataset:
        """The opened dataset of this process; opened anew after a fork or a pickle.

        A forked process keeps its parent's index. One that has it from a pickle opens the index
        file and gets an error if that numbers samples otherwise: another process may have listed
        the dataset again meanwhile.
        """
        if self._opened is None or self._forks != _forebay.forks():
            spec = self._spec
            if self._opened is not None:
                spec = {**spec, "parent": self._opened}
            elif self._forks != -1:
                spec = {**spec, "refresh": "never", "numbering": self._numbering}
            self._opened = _forebay.Dataset(**spec, progress=_Progress())
            self._forks = _forebay.forks()
            self._shown = self._opened.url
        return self._opened

    def __getstate__(self) -> dict[str, Any]:
        numbering = self._numbering if self._opened is None else self._opened.numbering
        return {**self.__dict__, "_opened": None, "_numbering": numbering}

    def __getitem__(self, index: int) -> Any:
        index = range(len(self))[index]
        number = self.number(index)
        raw = torch.frombuffer(
            bytearray(_forebay.read_sample(self.native, number)) or bytearray(1), dtype=torch.uint8
        )
        raw = raw[: self.native.length(number)]
        return self.item(raw, self.label(index), index)

    def __repr__(self) -> str:
        if self._shown is None:  # opening failed: a text about it must not try again
            return f"{type(self).__name__}(not opened)"
        return f"{type(self).__name__}({self._shown!r}, samples={len(self)})"

    # -- what the loader asks of a dataset ------------------------------------------

    def item(self, raw: torch.Tensor, label: int, index: int) -> Any:
        """One sample as the user sees it, from its bytes."""
        raise NotImplementedError

    @property
    def is_raw(self) -> bool:
        """Whether a batch needs no Python per sample, only ``batch``."""
        return False

    def batch(self, samples: Sequence[torch.Tensor], labels: torch.Tensor) -> Any:
        """A whole batch at once where that is possible; None if it goes by ``item``."""
        return None

    def collate(self, items: list[Any]) -> Any:
        """What a loader makes of single samples unless it is given a ``collate_fn``."""
        return torch.utils.data.default_collate(items)

    def label_of(self, label: int) -> Any:
        """A label as the user sees it."""
        return label if self.target_transform is None else self.target_transform(label)


class FileFolder(Dataset):
    """Files in class folders, as raw bytes: a sample is (uint8 tensor, label)."""

    def __init__(
        self,
        root: str | os.PathLike[str],
        transform: Transform | None = None,
        target_transform: Transform | None = None,
        *,
        extensions: Sequence[str] | None = None,
        allow_empty: bool = False,
        storage_options: Mapping[str, str] | None = None,
        refresh: str = "auto",
        index_dir: str | os.PathLike[str] | None = None,
        read_options: Mapping[str, float] | None = None,
    ) -> None:
        super().__init__(
            root,
            "folders",
            transform=transform,
            target_transform=target_transform,
            storage_options=storage_options,
            refresh=refresh,
            index_dir=index_dir,
            read_options=read_options,
            extensions=None if extensions is None else list(extensions),
            allow_empty=allow_empty,
        )

    def item(self, raw: torch.Tensor, label: int, index: int) -> Any:
        """(bytes as a tensor, label), each through its transform."""
        return raw if self.transform is None else self.transform(raw), self.label_of(label)

    @property
    def is_raw(self) -> bool:
        """Without a transform the bytes are handed on as they are."""
        return self.transform is None and self.target_transform is None

    def batch(self, samples: Sequence[torch.Tensor], labels: torch.Tensor) -> Any:
        """(list of tensors, labels): views of the batch's memory, no copy."""
        return (list(samples), labels) if self.is_raw else None

    def collate(self, items: list[Any]) -> Any:
        """As ``batch`` does: raw samples may differ in length, so they stay a list."""
        if not self.is_raw:
            return super().collate(items)
        samples, labels = zip(*items, strict=True)
        return list(samples), torch.tensor(labels)


class Files(FileFolder):
    """The files that a manifest names (CSV or JSON lines: path, label, offset, length).

    ``allow_outside`` lets it name files outside of ``root``, by ``..`` or an absolute path.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        manifest: str | os.PathLike[str],
        transform: Transform | None = None,
        target_transform: Transform | None = None,
        *,
        allow_outside: bool = False,
        storage_options: Mapping[str, str] | None = None,
        refresh: str = "auto",
        index_dir: str | os.PathLike[str] | None = None,
        read_options: Mapping[str, float] | None = None,
    ) -> None:
        Dataset.__init__(
            self,
            root,
            "manifest",
            transform=transform,
            target_transform=target_transform,
            storage_options=storage_options,
            refresh=refresh,
            index_dir=index_dir,
            read_options=read_options,
            manifest=os.fspath(manifest),
            allow_outside=allow_outside,
        )


class ImageFolder(Dataset):
    """Images in class folders, samples as ``torchvision.datasets.ImageFolder`` gives them."""

    def __init__(
        self,
        root: str | os.PathLike[str],
        transform: Transform | None = None,
        target_transform: Transform | None = None,
        loader: Callable[[str], Any] | None = None,
        is_valid_file: Callable[[str], bool] | None = None,
        allow_empty: bool = False,
        *,
        storage_options: Mapping[str, str] | None = None,
        refresh: str = "auto",
        index_dir: str | os.PathLike[str] | None = None,
        read_options: Mapping[str, float] | None = None,
    ) -> None:
        # A loader of the user's wants paths: then samples are its own affair.
        self.loader = loader
        self._classes: list[str] | None = None
        options: dict[str, Any] = {
            "extensions": list(IMAGE_EXTENSIONS),
            "allow_empty": allow_empty,
        }
        layout = "folders"
        if is_valid_file is not None:
            layout = "manifest"
            manifest, self._classes = manifest_of_valid_files(root, is_valid_file, allow_empty)
            options = {"manifest": manifest}
        super().__init__(
            root,
            layout,
            transform=transform,
            target_transform=target_transform,
            storage_options=storage_options,
            refresh=refresh,
            index_dir=index_dir,
            read_options=read_options,
            **options,
        )
        if type(self).find_classes is not ImageFolder.find_classes or hasattr(self, "make_dataset"):
            self._take_the_users(is_valid_file, allow_empty)

    def find_classes(self, directory: str | os.PathLike[str]) -> tuple[list[str], dict[str, int]]:
        """The classes and their labels; a subclass may choose others, as with torchvision."""
        classes = self._class_names()
        return list(classes), {name: at for at, name in enumerate(classes)}

    def _take_the_users(self, is_valid_file: Any, allow_empty: bool) -> None:
        """Samples as ``find_classes`` and ``make_dataset`` of a subclass want them."""
        classes, labels = self.find_classes(self.root)
        make = getattr(self, "make_dataset", None)
        if make is not None:
            extensions = None if is_valid_file is not None else IMAGE_EXTENSIONS
            pairs = make(
                self.root,
                class_to_idx=labels,
                extensions=extensions,
                is_valid_file=is_valid_file,
                allow_empty=allow_empty,
            )
        else:
            pairs = self._of_classes(labels, allow_empty)
        self._choose(pairs)
        self.classes, self.class_to_idx = classes, labels

    def _of_classes(self, labels: Mapping[str, int], allow_empty: bool) -> list[tuple[str, int]]:
        """(path, label) of what is in these folders, class by class."""
        pairs: list[tuple[str, int]] = []
        paths = [path for path, _ in self._pairs()]
        for name in sorted(labels):
            within = os.path.join(self.root, name, "")
            found = [(path, labels[name]) for path in paths if path.startswith(within)]
            if not found and not allow_empty:
                raise FileNotFoundError(
                    f"find_classes gave the class {name!r}, and there is no image in {within}; "
                    "hint: allow_empty=True"
                )
            pairs += found
        return pairs

    def _class_names(self) -> list[str]:
        return self.native.classes if self._classes is None else self._classes

    @property
    def samples(self) -> list[tuple[str, int]]:
        """(path, label) of every sample; to assign others chooses and relabels samples."""
        return self._pairs()

    @samples.setter
    def samples(self, pairs: Iterable[tuple[str, int]]) -> None:
        self._choose(pairs)

    @property
    def imgs(self) -> list[tuple[str, int]]:
        """The same as ``samples``, as torchvision has it."""
        return self._pairs()

    @imgs.setter
    def imgs(self, pairs: Iterable[tuple[str, int]]) -> None:
        self._choose(pairs)

    def __getitem__(self, index: int) -> Any:
        if self.loader is None:
            return super().__getitem__(index)
        index = range(len(self))[index]
        image = self.loader(self._users_path(self.path(index)))
        image = image if self.transform is None else self.transform(image)
        return image, self.label_of(self.label(index))

    def item(self, raw: torch.Tensor | Decoded, label: int, index: int) -> Any:
        """(image, label): a PIL image in RGB, through the transform."""
        image = self._decode(raw, index)
        return image if self.transform is None else self.transform(image), self.label_of(label)

    def _decode(self, raw: torch.Tensor | Decoded, index: int) -> Image.Image:
        try:
            if isinstance(raw, Decoded):
                return raw.image()
            with Image.open(io.BytesIO(raw.numpy().data)) as image:
                return image.convert("RGB")
        except Exception as error:
            # PIL's own words name the buffer, which says nothing.
            unknown = isinstance(error, UnidentifiedImageError)
            reason = "no image format is known that starts so" if unknown else error
            raise _forebay.CorruptError(
                f"sample {index} ({self.path(index)}) is not an image that can be decoded: {reason}"
            ) from error


class TarFolder(Dataset):
    """WebDataset's tar shards by random access: a sample is a dict by extension.

    ``urls`` is one shard, a pattern such as ``train-{0000..0146}.tar``, a folder of shards, or a
    list of shards and patterns in one bucket or on this machine, whose order is kept.
    ``dataset[i]["jpg"]`` and what a transform gets are bytes; in a batch without a
    transform each field is a list of uint8 tensors, views of the batch's memory.
    """

    _has_labels = False

    def __init__(
        self,
        urls: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        transform: Transform | None = None,
        *,
        storage_options: Mapping[str, str] | None = None,
        refresh: str = "auto",
        index_dir: str | os.PathLike[str] | None = None,
        read_options: Mapping[str, float] | None = None,
    ) -> None:
        if isinstance(urls, (str, os.PathLike)):
            urls = [urls]
        if not isinstance(urls, Sequence):
            raise TypeError(f"urls={urls!r} is neither a shard's address nor a list of them")
        if not urls:
            raise ValueError("urls is an empty list: it names no shard")
        super().__init__(
            urls[0],
            "tar",
            transform=transform,
            target_transform=None,
            storage_options=storage_options,
            refresh=refresh,
            index_dir=index_dir,
            read_options=read_options,
            more_shards=[os.fspath(url) for url in urls[1:]],
        )

    def item(self, raw: torch.Tensor, label: int, index: int) -> Any:
        """The members of one sample by extension, and its ``__key__``."""
        try:
            members = _forebay.tar_members(raw.numpy())
        except _forebay.CorruptError as error:
            raise _forebay.CorruptError(f"sample {index} ({self.path(index)}): {error}") from error
        sample: dict[str, Any] = {"__key__": members[0][0] if members else ""}
        for _, extension, start, end in members:
            sample[extension] = raw[start:end].numpy().tobytes()
        return sample if self.transform is None else self.transform(sample)

    def batch(self, samples: Sequence[torch.Tensor], labels: torch.Tensor) -> Any:
        """A dict of lists; a field that a sample lacks is None there."""
        if self.transform is not None:
            return None
        fields: dict[str, list[Any]] = {"__key__": []}
        for at, sample in enumerate(samples):
            try:
                members = _forebay.tar_members(sample.numpy())
            except _forebay.CorruptError:
                return None  # sample by sample, the bad one is named or replaced
            for field in fields.values():
                field.append(None)
            fields["__key__"][at] = members[0][0] if members else ""
            for _, extension, start, end in members:
                field = fields.setdefault(extension, [None] * (at + 1))
                field[at] = sample[start:end]
        return fields

    def collate(self, items: list[Any]) -> Any:
        """As ``batch`` does: a dict of lists."""
        if self.transform is not None:
            return super().collate(items)
        names = dict.fromkeys(name for item in items for name in item)
        return {name: [item.get(name) for item in items] for name in names}


class _Progress:
    """Says on stderr how far a listing is, if it takes long."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._said = self._started

    def __call__(self, listed: int, done: bool) -> None:
        now = time.monotonic()
        if done and self._said == self._started:
            return
        if done or now - self._said > 2:
            self._said = now
            seconds = now - self._started
            _say(f"{listed:,} files listed in {seconds:.0f} s" + (", done" if done else ""))


def _texts(options: Mapping[str, str]) -> dict[str, str]:
    for name, value in options.items():
        if not isinstance(value, str):
            # Its value may be a secret: it is not told.
            raise TypeError(
                f"storage_options[{name!r}] is a {type(value).__name__}; write it as a text, "
                "such as 'true'"
            )
    return dict(options)


def _numbers(options: Mapping[str, float]) -> dict[str, float]:
    if not isinstance(options, Mapping):
        raise TypeError(f"read_options={options!r} is not a dict, such as {{'deadline': 60}}")
    for name, value in options.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise TypeError(f"read_options[{name!r}] is {value!r}, not a number")
    return dict(options)


def _say(text: str) -> None:
    print(f"forebay: {text}", file=sys.stderr)
