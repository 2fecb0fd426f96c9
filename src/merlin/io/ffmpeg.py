"""The program that writes and reads videos."""

from merlin.errors import MerlinError


def ffmpeg(what: str, instead: str) -> str:
    """The path of ffmpeg, which `what` needs; `instead` is what works without it."""
    try:
        import imageio_ffmpeg

        return imageio_ffmpeg.get_ffmpeg_exe()
    except (ImportError, RuntimeError):
        raise MerlinError(
            f"{what} needs ffmpeg; install it with `pip install 'merlin[video]'`, or {instead}."
        ) from None
