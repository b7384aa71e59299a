"""Images of every format, depth and fault, as phones, browsers and editors produce them.

Each image shows four quadrants (red, green, blue, yellow; or levels of gray), so a test can check
its colors and its orientation. `list_images` builds all of them in a few seconds.
"""

from __future__ import annotations

import base64
import dataclasses
import io
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from PIL import Image, ImageCms

Color = tuple[int, int, int]

RED, GREEN, BLUE, YELLOW = (220, 40, 40), (40, 180, 60), (40, 60, 200), (230, 210, 50)
QUADRANTS = (RED, GREEN, BLUE, YELLOW)  # upper left, upper right, lower left, lower right
GRAYS = tuple((level, level, level) for level in (30, 110, 170, 235))
SIZE = (96, 64)
JPEG, PNG, GIF, WEBP = "image/jpeg", "image/png", "image/gif", "image/webp"
HEIC, AVIF, BMP, TIFF = "image/heic", "image/avif", "image/bmp", "image/tiff"
_CENTERS = tuple((SIZE[0] * x // 4, SIZE[1] * y // 4) for y in (1, 3) for x in (1, 3))
ORIENTATION = 0x0112
# Where the quadrants of the stored image appear for each EXIF orientation.
_ORIENTED = {
    1: (0, 1, 2, 3),
    2: (1, 0, 3, 2),
    3: (3, 2, 1, 0),
    4: (2, 3, 0, 1),
    5: (0, 2, 1, 3),
    6: (2, 0, 3, 1),
    7: (3, 1, 2, 0),
    8: (1, 3, 0, 2),
}


@dataclasses.dataclass(frozen=True)
class SampleImage:
    """An uploaded image, and what its thumbnail must show.

    `colors` are those of the four quadrants of the thumbnail; None: it has no thumbnail. `size` is
    the image's size in its display orientation. `tolerance` is per channel.
    """

    name: str
    type: str
    content: bytes
    colors: Sequence[Color] | None = QUADRANTS
    size: tuple[int, int] = SIZE
    tolerance: int = 24

    @property
    def has_thumb(self) -> bool:
        """True if the image must get a thumbnail."""
        return self.colors is not None


def draw(size: tuple[int, int] = SIZE, colors: Sequence[Color] = QUADRANTS) -> Image.Image:
    """Return an image of four quadrants."""
    image = Image.new("RGB", size)
    half = (size[0] // 2 or 1, size[1] // 2 or 1)
    for number, color in enumerate(colors):
        corner = (number % 2 * half[0], number // 2 * half[1])
        image.paste(color, (*corner, size[0], size[1]))
        if number == 0:  # the first quadrant fills the image; the others are pasted over it
            continue
        if number == 1:
            image.paste(color, (half[0], 0, size[0], half[1]))
        elif number == 2:
            image.paste(color, (0, half[1], half[0], size[1]))
    return image


def save(image: Image.Image, kind: str, **options: Any) -> bytes:
    """Encode an image."""
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def list_images() -> list[SampleImage]:
    """Build all images."""
    sources: tuple[Callable[[], Iterator[SampleImage]], ...] = (
        _jpegs,
        _phone_jpegs,
        _damaged_jpegs,
        _pngs,
        _damaged_pngs,
        _gifs,
        _webps,
        _shapes,
        _heifs,
        _avifs,
        _bitmaps,
        _other_formats,
    )
    return [image for source in sources for image in source()]


# JPEG


def _jpegs() -> Iterator[SampleImage]:
    picture = draw()
    yield SampleImage("baseline", JPEG, save(picture, "JPEG", quality=90))
    yield SampleImage("progressive", JPEG, save(picture, "JPEG", progressive=True))
    yield SampleImage("subsampled", JPEG, save(picture, "JPEG", quality=90, subsampling="4:1:1"))
    yield SampleImage(
        "restart markers", JPEG, save(picture, "JPEG", quality=90, restart_marker_blocks=1)
    )
    gray = draw(colors=GRAYS).convert("L")
    yield SampleImage("gray", JPEG, save(gray, "JPEG"), GRAYS)
    cmyk = picture.convert("CMYK")
    yield SampleImage("CMYK", JPEG, save(cmyk, "JPEG", quality=95), tolerance=40)
    yield SampleImage("fill bytes", JPEG, _insert(save(picture, "JPEG"), b"\xff" * 9))
    comment = save(picture, "JPEG", comment=b"\xff\xda" * 300)
    yield SampleImage("comment like scans", JPEG, comment)
    swapped = save(Image.merge("RGB", picture.split()[::-1]), "JPEG", icc_profile=_bgr_profile())
    yield SampleImage("color profile", JPEG, swapped, tolerance=40)
    broken = save(picture, "JPEG", icc_profile=b"not a profile")
    yield SampleImage("broken color profile", JPEG, broken)


def _phone_jpegs() -> Iterator[SampleImage]:
    picture = draw()
    for orientation, places in _ORIENTED.items():
        exif = Image.Exif()
        exif[ORIENTATION] = orientation
        colors = tuple(QUADRANTS[place] for place in places)
        size = SIZE if orientation < 5 else SIZE[::-1]
        content = save(picture, "JPEG", quality=90, exif=exif)
        yield SampleImage(f"EXIF orientation {orientation}", JPEG, content, colors, size)
    exif = Image.Exif()
    exif[ORIENTATION] = 99
    yield SampleImage("EXIF orientation 99", JPEG, save(picture, "JPEG", exif=exif))
    damaged = save(picture, "JPEG", exif=b"Exif\0\0MM\0*\xff\xff\xff\xff")
    yield SampleImage("damaged EXIF", JPEG, damaged)
    preview = save(picture, "JPEG", exif=b"Exif\0\0" + save(draw((32, 32)), "JPEG"))
    yield SampleImage("embedded preview", JPEG, preview)
    two = save(picture, "MPO", save_all=True, append_images=[draw(colors=QUADRANTS[::-1])])
    yield SampleImage("MPO of a phone", JPEG, two)
    # The bytes of a video look like thousands of scans.
    video = struct.pack(">I", 24) + b"ftypmp42" + b"\0" * 12 + b"\xff\xda\x01" * 60_000
    large = save(draw((4000, 3000)), "JPEG")
    yield SampleImage("motion photo", JPEG, large + video, size=(4000, 3000))
    yield SampleImage("48 megapixels", JPEG, save(draw((8064, 6048)), "JPEG"), size=(8064, 6048))
    fine = save(draw((8064, 6048)), "JPEG", progressive=True)
    yield SampleImage("48 megapixels, progressive", JPEG, fine, size=(8064, 6048))


def _damaged_jpegs() -> Iterator[SampleImage]:
    content = save(draw((640, 480)), "JPEG", quality=95)
    size = (640, 480)
    yield SampleImage("JPEG without its end", JPEG, content[:-2], size=size)
    yield SampleImage("JPEG cut near its end", JPEG, content[:-20], size=size)
    progressive = save(draw((640, 480)), "JPEG", progressive=True)
    yield SampleImage("progressive JPEG cut", JPEG, progressive[:-40], size=size)
    half = progressive[: len(progressive) // 2]
    yield SampleImage("half a progressive JPEG", JPEG, half, size=size, tolerance=40)
    yield SampleImage("JPEG with data after it", JPEG, content + b"\0" * 500, size=size)
    yield SampleImage("JPEG without a header", JPEG, b"\xff\xd8\xff\xe0" + b"\0" * 60, None)
    twelve_bits = content.replace(b"\xff\xc0\0\x11\x08", b"\xff\xc1\0\x11\x0c", 1)
    yield SampleImage("12-bit JPEG", JPEG, twelve_bits, None)
    bomb = bytearray(save(draw(), "JPEG"))
    at = bomb.index(b"\xff\xc0")
    bomb[at + 5 : at + 9] = struct.pack(">HH", 65_500, 65_500)
    yield SampleImage("JPEG bomb", JPEG, bytes(bomb), None)


def _insert(jpeg: bytes, filler: bytes) -> bytes:
    """Insert fill bytes before the second marker."""
    return jpeg[:2] + filler + jpeg[2:]


def _bgr_profile() -> bytes:
    """Return a profile of a color space with red and blue swapped."""
    profile = bytearray(ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes())
    count = struct.unpack_from(">I", profile, 128)[0]
    for index in range(count):
        at = 132 + 12 * index
        name = bytes(profile[at : at + 4])
        if name in (b"rXYZ", b"bXYZ"):
            profile[at : at + 4] = b"bXYZ" if name == b"rXYZ" else b"rXYZ"
    return bytes(profile)


# PNG


def encode_png(
    size: tuple[int, int],
    depth: int,
    color_type: int,
    rows: Sequence[bytes],
    *chunks: tuple[bytes, bytes],
) -> bytes:
    """Encode a PNG from its packed rows; `chunks` come before the image data."""
    header = struct.pack(">IIBBBBB", *size, depth, color_type, 0, 0, 0)
    data = zlib.compress(b"".join(b"\0" + row for row in rows))
    parts = ((b"IHDR", header), *chunks, (b"IDAT", data), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_encode_chunk(*part) for part in parts)


def _encode_chunk(name: bytes, data: bytes) -> bytes:
    checksum = struct.pack(">I", zlib.crc32(name + data))
    return struct.pack(">I", len(data)) + name + data + checksum


def _pack(values: Sequence[int], depth: int) -> bytes:
    """Pack the values of a row with `depth` bits each."""
    if depth == 16:
        return struct.pack(f">{len(values)}H", *values)
    bits = "".join(format(value, f"0{depth}b") for value in values)
    return int(bits, 2).to_bytes(len(bits) // 8, "big")


def _quadrant_rows(depth: int, values: Sequence[Sequence[int]]) -> list[bytes]:
    """Return the rows of an image of four quadrants with these samples per pixel."""
    half_width, half_height = SIZE[0] // 2, SIZE[1] // 2
    rows = []
    for upper in (0, 2):
        left, right = values[upper], values[upper + 1]
        rows += [_pack([*left] * half_width + [*right] * half_width, depth)] * half_height
    return rows


def _pngs() -> Iterator[SampleImage]:
    picture = draw()
    for depth in (1, 2, 4, 8, 16):
        top = 2**depth - 1
        levels = [0, top // 3, top * 2 // 3, top] if depth > 1 else [0, 1, 1, 0]
        grays = [(value * 255 // top,) * 3 for value in levels]
        rows = _quadrant_rows(depth, [(value,) for value in levels])
        yield SampleImage(f"gray PNG, {depth} bits", PNG, encode_png(SIZE, depth, 0, rows), grays)
    palette = (b"PLTE", bytes(channel for color in QUADRANTS for channel in color))
    for depth in (2, 4, 8):
        rows = _quadrant_rows(depth, [(0,), (1,), (2,), (3,)])
        yield SampleImage(
            f"palette PNG, {depth} bits", PNG, encode_png(SIZE, depth, 3, rows, palette)
        )
    clear = (b"tRNS", bytes((255, 0)))
    content = encode_png(SIZE, 8, 3, _quadrant_rows(8, [(0,), (1,), (2,), (3,)]), palette, clear)
    yield SampleImage("palette PNG with transparency", PNG, content)
    deep = _quadrant_rows(16, [[channel * 257 for channel in color] for color in QUADRANTS])
    yield SampleImage("RGB PNG, 16 bits", PNG, encode_png(SIZE, 16, 2, deep))
    alpha = picture.convert("RGBA")
    yield SampleImage("RGBA PNG", PNG, save(alpha, "PNG"))
    gray_alpha = draw(colors=GRAYS).convert("LA")
    yield SampleImage("gray PNG with alpha", PNG, save(gray_alpha, "PNG"), GRAYS)
    interlaced = bytes.fromhex(_INTERLACED)
    yield SampleImage("interlaced PNG", PNG, interlaced, [(255, 0, 0)] * 4, (8, 8))
    frames = [draw(colors=QUADRANTS[::-1])]
    yield SampleImage("APNG", PNG, save(picture, "PNG", save_all=True, append_images=frames))
    exif = Image.Exif()
    exif[ORIENTATION] = 3
    turned = save(picture, "PNG", exif=exif)
    yield SampleImage("PNG with EXIF orientation", PNG, turned, QUADRANTS[::-1])
    text = (b"tEXt", b"note\0" + b"x" * 300_000)
    content = encode_png(SIZE, 8, 3, _quadrant_rows(8, [(0,), (1,), (2,), (3,)]), palette, text)
    yield SampleImage("PNG with a large text", PNG, content)


def _damaged_pngs() -> Iterator[SampleImage]:
    content = save(draw((640, 480)), "PNG")
    yield SampleImage("PNG without its end", PNG, content[:-12], size=(640, 480))
    wrong = bytearray(content)
    wrong[-13] ^= 0xFF  # checksum of the last IDAT
    yield SampleImage("PNG with a wrong checksum", PNG, bytes(wrong), size=(640, 480))
    yield SampleImage("PNG that is only a signature", PNG, content[:8], None)
    bomb = encode_png((60_000, 60_000), 1, 0, [b"\0" * 7500] * 300)
    yield SampleImage("PNG bomb", PNG, bomb, None)
    packed = zlib.compress(b"x" * 3_000_000, 9)
    rows = _quadrant_rows(8, list(QUADRANTS))
    content = encode_png(SIZE, 8, 2, rows, (b"zTXt", b"note\0\0" + packed))
    yield SampleImage("PNG with a text bomb", PNG, content, None)


# GIF and WebP


def _gifs() -> Iterator[SampleImage]:
    picture, other = draw(), draw(colors=QUADRANTS[::-1])
    yield SampleImage("GIF", GIF, save(picture, "GIF"), tolerance=40)
    animated = save(picture, "GIF", save_all=True, append_images=[other] * 3, duration=50)
    yield SampleImage("animated GIF", GIF, animated, tolerance=40)
    yield SampleImage("animated GIF cut", GIF, animated[:-30], tolerance=40)
    old = save(picture, "GIF").replace(b"GIF89a", b"GIF87a")
    yield SampleImage("GIF87a", GIF, old, tolerance=40)
    yield SampleImage("GIF without frames", GIF, save(picture, "GIF")[:20], None)


def _webps() -> Iterator[SampleImage]:
    picture, other = draw(), draw(colors=QUADRANTS[::-1])
    yield SampleImage("WebP", WEBP, save(picture, "WEBP", quality=90))
    yield SampleImage("lossless WebP", WEBP, save(picture, "WEBP", lossless=True))
    yield SampleImage("WebP with alpha", WEBP, save(picture.convert("RGBA"), "WEBP"))
    animated = save(picture, "WEBP", save_all=True, append_images=[other], duration=50)
    yield SampleImage("animated WebP", WEBP, animated)
    yield SampleImage("WebP that is only a header", WEBP, save(picture, "WEBP")[:16], None)


# Shapes, and formats without thumbnails


def _shapes() -> Iterator[SampleImage]:
    for size in ((1, 1), (1, 3000), (3000, 1), (20_000, 30), (65_500, 40)):
        content = save(Image.new("RGB", size, RED), "JPEG", quality=95)
        yield SampleImage(f"JPEG of {size[0]} x {size[1]}", JPEG, content, [RED] * 4, size)
    long = save(Image.new("RGB", (10, 30_000), RED), "PNG")
    yield SampleImage("PNG of 10 x 30000", PNG, long, [RED] * 4, (10, 30_000))


def _other_formats() -> Iterator[SampleImage]:
    picture = draw()
    yield SampleImage("ICO", "image/vnd.microsoft.icon", save(picture, "ICO"), None)
    yield SampleImage("WebP declared as JPEG", JPEG, save(picture, "WEBP", quality=90))
    yield SampleImage("PNG declared as WebP", WEBP, save(picture, "PNG"))
    yield SampleImage("AVIF declared as JPEG", JPEG, save(picture, "AVIF"))
    svg = b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'
    yield SampleImage("SVG", "image/svg+xml", svg, None)


def make_phone_heic() -> bytes:
    """Return a HEIC of `SIZE` that is displayed after a rotation."""
    return base64.b64decode(_HEIC_TURNED)


def _set_brand(content: bytes, brand: bytes) -> bytes:
    """Return an ISO base media file with another major brand."""
    return content[:8] + brand + content[12:]


def _heifs() -> Iterator[SampleImage]:
    content, turned = base64.b64decode(_HEIC), make_phone_heic()
    sides = tuple(QUADRANTS[place] for place in _ORIENTED[6])
    yield SampleImage("HEIC", HEIC, content)
    yield SampleImage("HEIC of a phone", HEIC, turned, sides, SIZE[::-1])
    yield SampleImage("HEIC declared as JPEG", JPEG, content)
    yield SampleImage("HEIC of the brand mif1", HEIC, _set_brand(content, b"mif1"))
    # The first image is not the primary one, and has another size.
    yield SampleImage("HEIC of two images", HEIC, base64.b64decode(_HEIC_OF_TWO), tolerance=40)
    yield SampleImage("HEIC cut", HEIC, content[:300], None)
    yield SampleImage("HEIC that is only a header", HEIC, content[:28] + bytes(200), None)


def _avifs() -> Iterator[SampleImage]:
    picture = draw()
    exif = Image.Exif()
    exif[ORIENTATION] = 6
    sides = tuple(QUADRANTS[place] for place in _ORIENTED[6])
    yield SampleImage("AVIF", AVIF, save(picture, "AVIF"))
    content = _set_brand(save(picture, "AVIF"), b"mif1")
    yield SampleImage("AVIF of the brand mif1", AVIF, content)
    yield SampleImage("AVIF turned", AVIF, save(picture, "AVIF", exif=exif), sides, SIZE[::-1])
    yield SampleImage("AVIF with alpha", AVIF, save(picture.convert("RGBA"), "AVIF"))
    yield SampleImage("AVIF cut", AVIF, save(picture, "AVIF")[:250], None)


def _bitmaps() -> Iterator[SampleImage]:
    picture = draw()
    gray = picture.convert("L")
    levels = tuple((level, level, level) for level in map(gray.getpixel, _CENTERS))
    for name, type_ in (("BMP", BMP), ("TIFF", TIFF)):
        yield SampleImage(name, type_, save(picture, name))
        yield SampleImage(f"{name}, gray", type_, save(gray, name), levels)
        yield SampleImage(f"{name}, palette", type_, save(picture.convert("P"), name), tolerance=60)
    for method in ("tiff_lzw", "tiff_deflate", "packbits", "jpeg"):
        content = save(picture, "TIFF", compression=method)
        yield SampleImage(f"TIFF, {method}", TIFF, content, tolerance=40)
    pages = save(picture, "TIFF", save_all=True, append_images=[draw(colors=QUADRANTS[::-1])])
    yield SampleImage("TIFF of two pages", TIFF, pages)
    yield SampleImage("TIFF, CMYK", TIFF, save(picture.convert("CMYK"), "TIFF"), tolerance=60)
    yield SampleImage("TIFF bomb", TIFF, _make_tiff_bomb(), None)


def _make_tiff_bomb() -> bytes:
    """Return a small TIFF that declares more pixels than are decoded."""
    tags = ((256, 60_000), (257, 60_000), (258, 8), (259, 1), (262, 1), (273, 8), (279, 100))
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags)
    return struct.pack("<2sHIH", b"II", 42, 8, len(tags)) + entries + bytes(4)


# `draw()` as HEIC, without and with a rotation, because the library only decodes this format.
_HEIC = (
    "AAAAHGZ0eXBoZWljAAAAAG1pZjFoZWljbWlhZgAAAVZtZXRhAAAAAAAAACFoZGxyAAAAAAAAAABwaWN0AAAAAAAAAAAA"
    "AAAAAAAAACJpbG9jAAAAAERAAAEAAQAAAAABegABAAAAAAAAAMkAAAAjaWluZgAAAAAAAQAAABVpbmZlAgAAAAABAABo"
    "dmMxAAAAAA5waXRtAAAAAAABAAAA1mlwcnAAAAC3aXBjbwAAAHhodmNDAQNwAAAAkAAAAAAAHvAA/P34+AAADwNgAAEA"
    "GEABDAH//wNwAAADAJAAAAMAAAMAHroCQGEAAQArQgEBA3AAAAMAkAAAAwAAAwAeoDCBBZbqSSmubgIaDAgAAAMAyAAA"
    "AwAIQGIAAQAHRAHBcrAiQAAAABNjb2xybmNseAABAA0ABoAAAAAUaXNwZQAAAAAAAABgAAAAQAAAABBwaXhpAAAAAAMI"
    "CAgAAAAXaXBtYQAAAAAAAAABAAEEgQIDBAAAANFtZGF0AAAAxSgBrwR42DIBiTcf8yA3//w6/2X9vdQT9WbG/Pv//4cj"
    "//XWpRsF1t5WoIA4ZQkttcx0COxqpVrjhQEqd1NP4K8NAKmEU9I0Z7VHm4ggcdjahD6lX+r+b/MfkXv/9Eabx/GI/f/0"
    "S+3SEKPFi/mQbCaidUMrDF+Lhu4WEpaG0NJnybqqP98VFvhtNzVqKnwfg9ty8+Ny/l+H/20H//1loD/C4/Xf/klXr8ew"
    "DdMgtqJReyES6CnPEelNJg87Dz4Qjrm/9jWP"
)
_HEIC_TURNED = (
    "AAAAHGZ0eXBoZWljAAAAAG1pZjFoZWljbWlhZgAAAaFtZXRhAAAAAAAAACFoZGxyAAAAAAAAAABwaWN0AAAAAAAAAAAA"
    "AAAAAAAAADRpbG9jAAAAAERAAAIAAQAAAAABxQABAAAAAAAAAMkAAgAAAAACjgABAAAAAAAAACQAAAA4aWluZgAAAAAA"
    "AgAAABVpbmZlAgAAAAABAABodmMxAAAAABVpbmZlAgAAAQACAABFeGlmAAAAAA5waXRtAAAAAAABAAAA4GlwcnAAAADA"
    "aXBjbwAAAHhodmNDAQNwAAAAkAAAAAAAHvAA/P34+AAADwNgAAEAGEABDAH//wNwAAADAJAAAAMAAAMAHroCQGEAAQAr"
    "QgEBA3AAAAMAkAAAAwAAAwAeoDCBBZbqSSmubgIaDAgAAAMAyAAAAwAIQGIAAQAHRAHBcrAiQAAAABNjb2xybmNseAAB"
    "AA0ABoAAAAAUaXNwZQAAAAAAAABgAAAAQAAAABBwaXhpAAAAAAMICAgAAAAJaXJvdAMAAAAYaXBtYQAAAAAAAAABAAEF"
    "gQIDBIUAAAAaaXJlZgAAAAAAAAAOY2RzYwACAAEAAQAAAPVtZGF0AAAAxSgBrwR42DIBiTcf8yA3//w6/2X9vdQT9WbG"
    "/Pv//4cj//XWpRsF1t5WoIA4ZQkttcx0COxqpVrjhQEqd1NP4K8NAKmEU9I0Z7VHm4ggcdjahD6lX+r+b/MfkXv/9Eab"
    "x/GI/f/0S+3SEKPFi/mQbCaidUMrDF+Lhu4WEpaG0NJnybqqP98VFvhtNzVqKnwfg9ty8+Ny/l+H/20H//1loD/C4/Xf"
    "/klXr8ewDdMgtqJReyES6CnPEelNJg87Dz4Qjrm/9jWPAAAABkV4aWYAAE1NACoAAAAIAAEBEgADAAAAAQAGAAAAAAAA"
)
_HEIC_OF_TWO = (
    "AAAAHGZ0eXBoZWljAAAAAG1pZjFoZWljbWlhZgAAAhBtZXRhAAAAAAAAACFoZGxyAAAAAAAAAABwaWN0AAAAAAAAAAAA"
    "AAAAAAAAADRpbG9jAAAAAERAAAIAAQAAAAACNAABAAAAAAAAAKUAAgAAAAAC2QABAAAAAAAAAI4AAAA4aWluZgAAAAAA"
    "AgAAABVpbmZlAgAAAAABAABodmMxAAAAABVpbmZlAgAAAAACAABodmMxAAAAAA5waXRtAAAAAAACAAABaWlwcnAAAAFD"
    "aXBjbwAAAHhodmNDAQNwAAAAkAAAAAAAHvAA/P34+AAADwNgAAEAGEABDAH//wNwAAADAJAAAAMAAAMAHroCQGEAAQAr"
    "QgEBA3AAAAMAkAAAAwAAAwAeoCCBhZbqSSmubgIaDAgAAAMAyAAAAwAIQGIAAQAHRAHBcrAiQAAAABNjb2xybmNseAAB"
    "AA0ABoAAAAAUaXNwZQAAAAAAAABAAAAAYAAAABBwaXhpAAAAAAMICAgAAAB4aHZjQwEDcAAAAJAAAAAAAB7wAPz9+PgA"
    "AA8DYAABABhAAQwB//8DcAAAAwCQAAADAAADAB66AkBhAAEAK0IBAQNwAAADAJAAAAMAAAMAHqAwgQWW6kkprm4CGgwI"
    "AAADAMgAAAMACEBiAAEAB0QBwXKwIkAAAAAUaXNwZQAAAAAAAABgAAAAQAAAAB5pcG1hAAAAAAAAAAIAAQSBAgMEAAIE"
    "hQIGBAAAATttZGF0AAAAoSgBrxOA5TPAnf/0aKP/9FjPDyLMKr//en/Uf3QvP/ftjev5f/wDaI71aH+7z4dDZoDjxc2T"
    "YiWqpCUDE294hfrSzGF78c76gqldccgIX84szxM+tFK6B9FMthGWqP5KdcjTAAy5WKSVPZ4KBUM3GN70R4t67IEBdrZ3"
    "SwrGkpztddh9iL8iXU2QlhuHjLd8pKvVdlfDzOGLLkb6Mk1bxsloAAAAiigBrxOAeSRFyL//9AVH/7yOeH5AEPBLBfnj"
    "b/aLf+uGnwEVSabT/eIZFXIgfO4HjtY6j6+XApnvxXJeDffdUg93/9Ap3H4J07/zKcmsSxKcKvR2M1s446SU8jd5vR+X"
    "jigS+yU4jHxS+zi3uyDy8JQfPSlf5sqKcKEKn+uS8/De5dvAl6ypkb3WTg=="
)

# 8 x 8 pixels of red, with Adam7 interlacing.
_INTERLACED = (
    "89504e470d0a1a0a0000000d49484452000000080000000808020000013c6a194a000000154944415478da63"
    "f8cfc0c000c5b8285a706824010071bd3fc1f73b3a730000000049454e44ae426082"
)
