"""Find the program that encodes and decodes videos."""

from merlin.errors import MerlinError
from merlin.io import extras


def ffmpeg(what: str, instead: str) -> str:
    """The path of ffmpeg, which `what` needs; `instead` describes an alternative for the error."""
    try:
        import imageio_ffmpeg

        return imageio_ffmpeg.get_ffmpeg_exe()
    except (ImportError, RuntimeError):
        raise MerlinError(
            f"{what} needs ffmpeg, which is not installed; run `pip install "
            f"'{extras.DISTRIBUTION}[video]'`, or {instead}."
        ) from None
