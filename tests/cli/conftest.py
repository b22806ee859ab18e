from __future__ import annotations

import os
import sys

import pytest

from tests.cli.shell import URL, Shell


@pytest.fixture
def shell(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDFAST_DB", URL)
    monkeypatch.setenv("PYTHONHASHSEED", "0")  # else a worker would start this process anew
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield Shell(tmp_path, capsys, monkeypatch)
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(f"{tmp_path}{os.sep}"):
            del sys.modules[name]
