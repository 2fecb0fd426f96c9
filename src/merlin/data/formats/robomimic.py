"""The HDF5 format of robomimic and robosuite: data/demo_N with actions and observations."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from merlin.data.archives import check_unpacked
from merlin.data.conversion import reading
from merlin.data.dataset import Dataset
from merlin.data.hdf5 import check_stored, inside, text_attribute
from merlin.data.logs import Column, Fields, Log, Rows, regular_file, to_dataset
from merlin.data.timestamps import as_rate
from merlin.errors import MerlinError
from merlin.io.extras import require
from merlin.io.files import parse_json

_DEMO = re.compile(r"\D*(\d{1,9})")


def read(name: str, fields: Fields) -> Dataset:
    """Read demonstrations. The state defaults to all of obs except images."""
    h5py = require("h5py", "formats", "robomimic's HDF5")
    if fields.episode is not None:
        raise MerlinError(f"episode: each demo of {name} is an episode; leave it out.")
    with reading(name, "robomimic's HDF5"), h5py.File(regular_file(Path(name)), "r") as file:
        group = inside(file, "data")
        demos = sorted((key for key in group if _DEMO.fullmatch(key)), key=_number)
        if not demos:
            raise MerlinError(f"{name}: has no data/demo_0; it is not a robomimic file.")
        first = _arrays(inside(group, demos[0]))
        lengths = [inside(group, f"{demo}/actions").shape[0] for demo in demos]

        def load(names: Sequence[str]) -> Rows:
            found = {
                key: _numbers([_node(group, demo, key, first[key]) for demo in demos], name)
                for key in names
            }
            return Rows(found, np.cumsum(lengths, dtype=np.int64))

        log = Log(
            where=name,
            format="robomimic HDF5",
            columns={key: Column(node.shape[1:]) for key, node in first.items()},
            read=load,
            about=_about(group),
        )
        if min(lengths) < 1:
            raise MerlinError(f"{name}: a demo has no actions; drop it.")
        return to_dataset(log, fields)


def _number(demo: str) -> int:
    return int(_DEMO.fullmatch(demo)[1])  # type: ignore[index]


def _arrays(demo: Any) -> dict[str, Any]:
    """The numeric arrays of a demo with one row per step, keyed by their path."""
    import h5py

    steps = inside(demo, "actions").shape[0]
    names = [key for key in demo if key not in ("obs", "next_obs")]
    names += [f"obs/{key}" for key in inside(demo, "obs")] if "obs" in demo else []
    found = {}
    for name in names:
        node = inside(demo, name)
        numbers = isinstance(node, h5py.Dataset) and node.dtype.kind in "biuf"
        if numbers and node.shape[:1] == (steps,) and 0 not in node.shape:
            found[name] = node
    return found


def _node(group: Any, demo: str, key: str, first: Any) -> Any:
    """One array of a demo, after checking its shape and where it is kept."""
    node = inside(group, f"{demo}/{key}")
    steps = inside(group, f"{demo}/actions").shape[0]
    if node.shape != (steps, *first.shape[1:]) or node.dtype.kind not in "biuf":
        raise ValueError(f"{node.name} has the shape {node.shape} of {node.dtype}")
    check_stored(node)
    return node


def _numbers(nodes: Sequence[Any], where: str) -> np.ndarray:
    """Read one array of all demos, after checking their size together."""
    stored = sum(node.id.get_storage_size() for node in nodes)
    check_unpacked(f"{where}: {nodes[0].name}", sum(node.nbytes for node in nodes), stored)
    return np.concatenate([node[()] for node in nodes])


def _about(group: Any) -> dict[str, Any]:
    """The content of env_args: the environment, its rate, and whether actions are relative."""
    try:
        told = parse_json(text_attribute(group, "env_args") or "{}")
    except ValueError:
        return {}
    about: dict[str, Any] = {}
    told = told if isinstance(told, dict) else {}
    if isinstance(told.get("env_name"), str):
        about["robosuite_environment"] = told["env_name"][:80]
    settings = told.get("env_kwargs")
    settings = settings if isinstance(settings, dict) else {}
    if (rate := as_rate(settings.get("control_freq"))) is not None:
        about["rate"] = rate
    delta = _find(settings.get("controller_configs"), "control_delta", 6)
    if isinstance(delta, bool):
        about["actions"] = "delta" if delta else "absolute"
    return about


def _find(tree: Any, key: str, depth: int) -> Any:
    """The first value under a key, at any depth of nested dicts."""
    if not isinstance(tree, dict) or depth == 0:
        return None
    if key in tree:
        return tree[key]
    below: Sequence[Any] = [_find(value, key, depth - 1) for value in tree.values()]
    return next((value for value in below if value is not None), None)
