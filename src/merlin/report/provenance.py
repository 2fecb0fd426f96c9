"""The origin of every number: rows, commands, data, machines and versions."""

from collections.abc import Sequence

from merlin.bench.rows import Row
from merlin.report.selection import anchor
from merlin.report.text_tables import NONE, RowGroup, TextCell, TextTable, plain_table


def provenance(everything: Sequence[Row], counted: Sequence[Row]) -> list[TextTable]:
    """Tables of the data, the machines and all rows, grouped by the averages they enter."""
    machines = _distinct_machines(everything)
    found = []
    if any(row.data for row in everything):
        found.append(_data(everything))
    if machines:
        found.append(_machines(machines))
    found.append(_rows(everything, counted, machines))
    return found


def _data(everything: Sequence[Row]) -> TextTable:
    sets = {str(row.data.get("fingerprint")): row.data for row in everything if row.data}
    lines = [
        (
            str(data.get("name", NONE)),
            TextCell(fingerprint[:16], code=True),
            TextCell(str(data.get("command") or NONE), code=True),
        )
        for fingerprint, data in sorted(sets.items(), key=lambda item: str(item[1].get("name")))
    ]
    header = ["dataset", "fingerprint", "command"]
    return plain_table("data", "Data", header, lines, labels=3)


def _distinct_machines(everything: Sequence[Row]) -> list[dict]:
    found: list[dict] = []
    for row in everything:
        if row.machine and row.machine not in found:
            found.append(row.machine)
    return found


def _machines(machines: Sequence[dict]) -> TextTable:
    lines = []
    for number, machine in enumerate(machines, 1):
        packages = machine.get("packages") or {}
        lines.append(
            [
                str(number),
                str(machine.get("cpu", NONE)),
                str(machine.get("cores", NONE)),
                f"{machine.get('memory_gb', NONE)} GB",
                str(machine.get("platform", NONE)),
                f"Python {machine.get('python', NONE)}, "
                + ", ".join(f"{name} {version}" for name, version in packages.items()),
            ]
        )
    header = ["machine", "processor", "cores", "memory", "platform", "versions"]
    return plain_table("machines", "Machines", header, lines, labels=6)


def _rows(everything: Sequence[Row], counted: Sequence[Row], machines: Sequence[dict]) -> TextTable:
    counts = {id(row) for row in counted}
    groups: dict[str, list[Row]] = {}
    for row in everything:
        groups.setdefault(anchor(row), []).append(row)

    def line(row: Row) -> tuple[TextCell, ...]:
        state = row.status if not row.done else "counted" if id(row) in counts else "set aside"
        machine = str(machines.index(row.machine) + 1) if row.machine else NONE
        numbers = [
            f"{scores[metric]:.4f}" if scores else NONE
            for scores in (row.final, row.best)
            for metric in ("return", "success")
        ]
        seconds = NONE if row.seconds is None else f"{row.seconds:.0f}"
        cells = [str(row.seed), state, *numbers, f"{row.updates:,}", seconds, machine]
        cells += [row.version, row.finished[:19].replace("T", " ")]
        return (*(TextCell(cell) for cell in cells), TextCell(row.command, code=True))

    header = ["seed", "row", "final return", "final success", "best return", "best success"]
    header += ["updates", "seconds", "machine", "version", "finished (UTC)", "command"]
    return TextTable(
        key="rows",
        title=f"All {len(everything)} rows",
        header=tuple(header),
        groups=tuple(
            RowGroup(tuple(map(line, rows)), name=_name(rows[0]), anchor=key)
            for key, rows in groups.items()
        ),
        labels=2,
        remarks=2,
        collapsed=True,
    )


def _name(row: Row) -> str:
    return f"{row.grid}: {row.method} on {row.task} {row.variant}" + " from pixels" * row.pixels
