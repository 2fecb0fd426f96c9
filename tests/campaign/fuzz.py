"""Coverage-guided fuzzing of one reader, with atheris: pip install atheris.

    python tests/campaign/fuzz.py parquet -max_total_time=60

Options after the name of the format are those of libFuzzer. It starts from a good file, keeps what
reaches new lines of the reader, and stops at the first error that is not a sentence.
"""

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

try:
    import atheris
except ImportError:
    sys.exit("merlin: atheris is not installed; install it with `pip install atheris`.")

with atheris.instrument_imports(include=["merlin"]):
    import numpy as np

    from helpers.format_data import SUFFIX, episodes, write
    from helpers.log_data import write_log
    from merlin.data import load
    from merlin.errors import MerlinError

FORMS = ("wgcsl", "ogbench", "csv", "parquet", "robomimic")


def good_file(folder: Path, form: str) -> tuple[Path, dict[str, str]]:
    """A file of a format, and how `load` is told of its columns."""
    rng = np.random.default_rng(0)
    if form in SUFFIX:
        return Path(write(episodes(rng), folder, form)), {}
    path, _, said = write_log(folder, form, rng)
    return path, said


def main() -> None:
    if len(sys.argv) < 2 or sys.argv[1] not in FORMS:
        sys.exit(f"merlin: name a format: {', '.join(FORMS)}.")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path, said = good_file(folder, sys.argv[1])
        corpus = folder / "corpus"
        corpus.mkdir()
        (corpus / "good").write_bytes(path.read_bytes())

        def read(content: bytes) -> None:
            path.write_bytes(content)
            try:
                data = load(path, **said)
            except MerlinError:
                return
            assert all(np.isfinite(array).all() for array in data.arrays().values())

        options = ["-max_len=65536", "-timeout=20", "-rss_limit_mb=1500", *sys.argv[2:]]
        atheris.Setup([sys.argv[0], str(corpus), *options], read)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
