"""Makes the golden files of this folder: images, and beside each what Pillow makes of it.

Run by hand, with Pillow and numpy installed; the files it wrote are kept in the repository, so
that the tests need neither. `x.jpg` is decoded to `x.jpg.ppm`; for names that begin with `turned`,
after `ImageOps.exif_transpose`.
"""

import io
import struct
import zlib
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

HERE = Path(__file__).parent


def photo(width: int, height: int, channels: int = 3) -> np.ndarray:
    """Smooth colours with some noise: chroma that upsampling can get wrong."""
    y, x = np.mgrid[0:height, 0:width]
    waves = [128 + 100 * np.sin(x / (3 + c) + c) * np.cos(y / (4 - c / 2)) for c in range(channels)]
    noise = np.random.default_rng(width * height).normal(0, 12, (height, width, channels))
    return np.clip(np.stack(waves, -1) + noise, 0, 255).astype(np.uint8)


def encoded(image: Image.Image, kind: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(samples: np.ndarray, depth: int, colour: int, extra: bytes = b"") -> bytes:
    """A PNG that Pillow would not write itself; `samples` are rows, 8 or 16 bits each."""
    height, width = samples.shape[:2]
    rows = b"".join(b"\0" + row.astype(f">u{depth // 8}").tobytes() for row in samples)
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    pixels = chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + extra + pixels


def jpegs() -> dict[str, bytes]:
    rgb = Image.fromarray(photo(37, 29))
    files = {
        f"{name}.jpg": encoded(rgb, "JPEG", quality=85, subsampling=sampling)
        for name, sampling in (("444", 0), ("422", 1), ("420", 2))
    }
    files["progressive.jpg"] = encoded(rgb, "JPEG", quality=85, progressive=True)
    files["grey.jpg"] = encoded(rgb.convert("L"), "JPEG", quality=85)
    files["rgb.jpg"] = encoded(rgb, "JPEG", quality=85, keep_rgb=True)
    cmyk = encoded(Image.fromarray(photo(37, 29, 4), "CMYK"), "JPEG", quality=85)
    files["cmyk.jpg"] = cmyk
    # The last byte of Adobe's segment says which colours these are: 2 is YCCK.
    at = cmyk.index(b"Adobe") + 11
    files["ycck.jpg"] = cmyk[:at] + b"\2" + cmyk[at + 1 :]
    small = Image.fromarray(photo(19, 11))
    for value in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = value
        files[f"turned{value}.jpg"] = encoded(small, "JPEG", quality=85, exif=exif)
    files["untouched6.jpg"] = files["turned6.jpg"]
    return files


def pngs() -> dict[str, bytes]:
    wide = np.random.default_rng(1).integers(0, 65536, (9, 13, 4)).astype(np.uint16)
    wide[0, :, 0] = [0, 1, 127, 128, 254, 255, 256, 257, 300, 32767, 32768, 65280, 65535]
    rgb = Image.fromarray(photo(23, 17))
    palette = rgb.quantize(40)
    alpha = Image.fromarray(photo(23, 17, 4), "RGBA")
    return {
        "grey16.png": png(wide[..., 0], 16, 0),
        "grey16key.png": png(wide[..., 0], 16, 0, chunk(b"tRNS", b"\0\1")),
        "rgb16.png": png(wide[..., :3], 16, 2),
        "la16.png": png(wide[..., :2], 16, 4),
        "rgba16.png": png(wide, 16, 6),
        "la8.png": png(photo(23, 17, 2), 8, 4),
        "rgba.png": encoded(alpha, "PNG"),
        "palette.png": encoded(palette, "PNG"),
        "palettekeys.png": encoded(palette, "PNG", transparency=bytes(range(0, 200, 10))),
        "palette2.png": encoded(rgb.quantize(4), "PNG", bits=2),
        "one.png": encoded(rgb.convert("1"), "PNG"),
        "animated.png": encoded(rgb, "PNG", save_all=True, append_images=[rgb.rotate(180)]),
    }


def others() -> dict[str, bytes]:
    rgb = Image.fromarray(photo(23, 17))
    alpha = Image.fromarray(photo(23, 17, 4), "RGBA")
    wide = np.random.default_rng(2).integers(0, 65536, (9, 13, 3)).astype(">u2")
    sideways = {"tiffinfo": {274: 6}}
    moving = [rgb.rotate(180), rgb.rotate(90)]
    return {
        "lossless.webp": encoded(alpha, "WEBP", lossless=True, exact=True),
        "lossy.webp": encoded(rgb, "WEBP", quality=80),
        "alpha.webp": encoded(alpha, "WEBP", quality=80, exact=True),
        "animated.webp": encoded(rgb, "WEBP", lossless=True, save_all=True, append_images=moving),
        "rgb.bmp": encoded(rgb, "BMP"),
        "palette.bmp": encoded(rgb.quantize(40), "BMP"),
        "one.bmp": encoded(rgb.convert("1"), "BMP"),
        "grey16.pgm": b"P5\n13 9\n65535\n" + wide[..., 0].tobytes(),
        "rgb16.ppm_": b"P6\n13 9\n65535\n" + wide.tobytes(),
        "grey100.pgm": b"P5\n13 9\n100\n" + (wide[..., 0] % 101).astype(np.uint8).tobytes(),
        "one.pbm": b"P4\n13 9\n" + bytes(range(18)),
        "rgb.tif": encoded(rgb, "TIFF"),
        "lzw.tif": encoded(alpha, "TIFF", compression="tiff_lzw"),
        "grey16.tif": encoded(Image.fromarray(wide[..., 0].astype(np.uint16)), "TIFF"),
        "sideways.tif": encoded(rgb, "TIFF", **sideways),
    }


def main() -> None:
    for name, content in (jpegs() | pngs() | others()).items():
        image = Image.open(io.BytesIO(content))
        if name.startswith("turned"):
            image = ImageOps.exif_transpose(image)
        (HERE / name).write_bytes(content)
        (HERE / f"{name}.ppm").write_bytes(encoded(image.convert("RGB"), "PPM"))


main()
