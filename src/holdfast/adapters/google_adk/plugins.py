"""Plugins that count failures: each run has counts of its own.

ADK keeps them in the plugin. A run that is replayed in the same process would find that it has
failed before, and the model would be told something else.
"""

from __future__ import annotations

import copy
from typing import Any

from google.adk.plugins.plugin_manager import PluginManager

import holdfast
from holdfast.adapters.google_adk import hooks

_PLUGINS = "holdfast.google_adk.plugins"


def of_run(manager: PluginManager) -> PluginManager:
    if not any(map(_counts, manager.plugins)):
        return manager
    made = copy.copy(manager)
    made.plugins = [_own(plugin) if _counts(plugin) else plugin for plugin in manager.plugins]
    return made


def _counts(plugin: Any) -> bool:
    return isinstance(getattr(plugin, "_tracker", None), hooks.ScopedFailureTracker)


def _own(plugin: Any) -> Any:
    known: dict[int, tuple[Any, Any]] = holdfast.scratch().setdefault(_PLUGINS, {})
    if id(plugin) not in known:
        made, tracker = copy.copy(plugin), hooks.ScopedFailureTracker()
        # Some have the tracker's attributes as their own, too.
        same = {name: value for name, value in vars(tracker).items() if name in vars(plugin)}
        made.__dict__.update(same, _tracker=tracker)
        known[id(plugin)] = (plugin, made)  # with the other, so that its id stays its own
    return known[id(plugin)][1]
