"""Small robot logs in every format, and the recordings that may stand beside the project."""

import csv
import json
from pathlib import Path

import h5py
import numcodecs
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

LENGTHS = (5, 7, 4)
FORMS = ("lerobot-v3", "lerobot-v21", "zarr", "robomimic", "csv", "parquet", "npz", "npy")
RATE = 10.0
NAMES = ["x", "y", "angle", "grip"]


def recordings() -> Path | None:
    """The folder of real recordings, where it exists."""
    folders = [parent / "shared" / "data" for parent in Path(__file__).resolve().parents]
    return next((folder for folder in folders if (folder / "pusht").is_dir()), None)


def columns(rng, lengths=LENGTHS):
    """State, action, clock and episode of every row, with actions far outside of [-1, 1]."""
    rows = sum(lengths)
    return {
        "state": rng.normal(size=(rows, 4)).astype(np.float32),
        "action": rng.uniform(-300, 500, (rows, 2)).astype(np.float32),
        "timestamp": np.concatenate([np.arange(n) / RATE for n in lengths]).astype(np.float32),
        "episode_index": np.repeat(np.arange(len(lengths)), lengths),
    }


def write_log(folder, form, rng, lengths=LENGTHS):
    """A log of one format; returns its path, its columns, and how `load` is told of them."""
    content = columns(rng, lengths)
    path = folder / {
        "robomimic": "log.hdf5",
        "csv": "log.csv",
        "parquet": "log.parquet",
        "zarr": "log.zarr",
    }.get(form, "log")
    said = {"npy": {"state": "0:4", "action": "4:6"}}.get(form, {})
    WRITERS[form](path, content, np.cumsum(lengths))
    return path, content, said


def _episodes(content, ends):
    begin = 0
    for end in ends:
        yield {key: array[begin:end] for key, array in content.items()}
        begin = end


def arrow_table(content, renamed=None):
    """Vectors as lists of floats, as LeRobot writes them."""
    return pa.table(
        {
            (renamed or {}).get(key, key): pa.array(list(array)) if array.ndim > 1 else array
            for key, array in content.items()
        }
    )


LEROBOT = {"state": "observation.state"}


def _lerobot(path, content, ends, version):
    (path / "data" / "chunk-000").mkdir(parents=True)
    (path / "meta").mkdir()
    if version == "v3.0":
        table = arrow_table(content, LEROBOT)
        pq.write_table(table, path / "data" / "chunk-000" / "file-000.parquet", row_group_size=6)
    else:
        for number, episode in enumerate(_episodes(content, ends)):
            file = path / "data" / "chunk-000" / f"episode_{number:06d}.parquet"
            pq.write_table(arrow_table(episode, LEROBOT), file)
        task = {"task_index": 0, "task": "Reach."}
        (path / "meta" / "tasks.jsonl").write_text(json.dumps(task))
    vector = {"dtype": "float32", "shape": [4], "names": [NAMES]}
    info = {
        "codebase_version": version,
        "robot_type": "arm",
        "total_episodes": len(ends),
        "total_frames": int(ends[-1]),
        "fps": 10,
        "features": {
            "observation.state": vector,
            "action": {"dtype": "float32", "shape": [2], "names": None},
            "observation.images.top": {"dtype": "video", "shape": [48, 64, 3], "names": None},
        },
    }
    (path / "meta" / "info.json").write_text(json.dumps(info))


def write_zarr_array(folder, array, chunks, codec=numcodecs.Blosc("zstd", 5, 2)):  # noqa: B008
    folder.mkdir(parents=True)
    about = {
        "zarr_format": 2,
        "shape": list(array.shape),
        "chunks": list(chunks),
        "dtype": array.dtype.str,
        "compressor": codec and codec.get_config(),
        "fill_value": 0,
        "filters": None,
        "order": "C",
    }
    (folder / ".zarray").write_text(json.dumps(about))
    for number in range(-(-len(array) // chunks[0])):
        part = np.zeros(chunks, array.dtype)
        some = array[number * chunks[0] : (number + 1) * chunks[0]]
        part[: len(some)] = some
        name = ".".join([str(number)] + ["0"] * (array.ndim - 1))
        (folder / name).write_bytes(codec.encode(part) if codec else part.tobytes())


def _zarr(path, content, ends):
    for name in ("state", "action"):
        array = content[name]
        write_zarr_array(path / "data" / name, array, (6, array.shape[1]))
    write_zarr_array(path / "meta" / "episode_ends", ends.astype(np.int64), (5,), None)
    (path / ".zgroup").write_text('{"zarr_format": 2}')
    (path / ".zattrs").write_text('{"rate": 10, "units": "mm", "deep": {"a": 1}}')


def _robomimic(path, content, ends):
    with h5py.File(path, "w") as file:
        data = file.create_group("data")
        settings = {"control_freq": 10, "controller_configs": {"arm": {"control_delta": True}}}
        data.attrs["env_args"] = json.dumps({"env_name": "Lift", "env_kwargs": settings})
        for number, episode in enumerate(_episodes(content, ends)):
            demo = data.create_group(f"demo_{number}")
            demo["actions"] = episode["action"]
            demo.create_dataset("obs/pose", data=episode["state"][:, :3], compression="gzip")
            demo["obs/grip"] = episode["state"][:, 3].astype(np.float64)
            demo["obs/camera"] = np.zeros((len(episode["action"]), 8, 8, 3), np.uint8)
            demo["next_obs/grip"] = episode["state"][:, 3]


def flat(content):
    """Every number as a column of its own."""
    found = {}
    for key, array in content.items():
        if array.ndim == 1:
            found[key] = array
        else:
            found |= {f"{key}_{k}": array[:, k] for k in range(array.shape[1])}
    return found


def write_csv(path, columns, separator=","):
    with path.open("w", newline="") as file:
        writer = csv.writer(file, delimiter=separator)
        writer.writerow(columns)
        writer.writerows(zip(*(column.tolist() for column in columns.values()), strict=True))


def _arrays(suffix):
    def write(path, content, ends):
        path.mkdir()
        for number, episode in enumerate(_episodes(content, ends)):
            file = path / f"episode-{number:03d}{suffix}"
            if suffix == ".npz":
                np.savez(file, state=episode["state"], action=episode["action"], note="a word")
            else:
                np.save(file, np.concatenate([episode["state"], episode["action"]], 1))

    return write


WRITERS = {
    "lerobot-v3": lambda *log: _lerobot(*log, "v3.0"),
    "lerobot-v21": lambda *log: _lerobot(*log, "v2.1"),
    "zarr": _zarr,
    "robomimic": _robomimic,
    "csv": lambda path, content, ends: write_csv(path, flat(content)),
    "parquet": lambda path, content, ends: pq.write_table(arrow_table(content), path),
    "npz": _arrays(".npz"),
    "npy": _arrays(".npy"),
}
