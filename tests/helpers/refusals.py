"""What commands say of bad input."""

import pytest

from merlin.cli import main


def refuse(arguments, capsys) -> str:
    """The one sentence with which a command refuses."""
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    printed = capsys.readouterr()
    assert stop.value.code == 2
    assert printed.out == ""
    assert printed.err.startswith("merlin: ")
    assert printed.err.count("\n") == 1, printed.err
    assert printed.err.endswith((".\n", "?\n"))
    assert "?." not in printed.err
    assert "Traceback" not in printed.err
    return printed.err
