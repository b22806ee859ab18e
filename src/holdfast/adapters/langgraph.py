"""LangGraph's compiled graphs, and LangChain's agents, which are graphs too.

    agent = durable(create_agent("openai:gpt-5", tools, name="helper"))
    graph = durable(builder.compile(name="research"))

Inside of runs each node is a step, and inside it each call of a model and of a tool; an
`interrupt()` waits durably. Outside of runs it is the graph that it was. See docs/adapters.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import langgraph.func
import langgraph.pregel._checkpoint
import langgraph.pregel._messages
import langgraph.pregel._read
from langchain_core.language_models import BaseChatModel
from langchain_core.tools import BaseTool
from langgraph._internal._scratchpad import PregelScratchpad
from langgraph.pregel import Pregel

import holdfast
from holdfast.adapters import _langgraph_graphs as graphs
from holdfast.adapters import _langgraph_mcp as mcp
from holdfast.adapters import _langgraph_models as models_
from holdfast.adapters import _langgraph_streams as streams
from holdfast.adapters import _langgraph_tasks as tasks
from holdfast.adapters import _langgraph_tools as tools_
from holdfast.adapters import _langgraph_values as values
from holdfast.adapters._langgraph_active import OnOverflow, Settings
from holdfast.adapters._shared import Policy, make_startable, require_hooks, require_name

G = TypeVar("G")

_TESTED = {"langgraph": "1.2.20", "langchain-core": "1.7.2"}
_UNNAMED = "LangGraph"  # what LangGraph calls a graph that was given no name


def durable(
    graph: G,
    *,
    name: str | None = None,
    retry: holdfast.Retry | None = None,
    tools: holdfast.Retry | Mapping[str, holdfast.Retry] | None = None,
    models: Sequence[BaseChatModel] = (),
    on_overflow: OnOverflow | None = None,
    approvals: bool = True,
    explain: bool = False,
) -> G:
    """A compiled graph that goes on where it was, whatever dies.

    name: of its runs, if not the graph's own. retry: for calls of models, and for nodes; tools: for
    calls of tools, of all or by name; the engine's policy by default. models: whom to ask when the
    graph's own model cannot be reached any more, in this order. on_overflow: makes shorter messages
    of those that a model could not read. approvals: interrupts wait durably; if not, the graph
    stops at them and its caller resumes it. explain: prints what will be journaled.
    """
    if mcp.is_client(graph):
        return mcp.durable_client(graph, Policy(retry=retry, tools=tools))  # type: ignore[no-any-return]
    if not isinstance(graph, Pregel):
        raise TypeError(
            f"durable() takes a compiled graph, as builder.compile() and create_agent() return it, "
            f"not {graph!r}"
        )
    for model in models:
        if not isinstance(model, BaseChatModel):
            raise TypeError(f"models=: chat models such as ChatOpenAI(...), not {model!r}")
    _check_hooks()
    policy = Policy(retry=retry, tools=tools)
    settings = Settings(policy, tuple(models), on_overflow, approvals)
    made: Any = graphs.durable_graph(graph, settings)
    models_.install()
    tools_.install()
    graphs.install()
    streams.install()
    tasks.install()
    mcp.install()
    own_name = name or (graph.name if graph.name != _UNNAMED else None)
    if own_name is not None:
        make_startable(made, _workflow(made, require_name(graph, own_name), settings))
    if explain:
        _explain(made, own_name)
    return made


def _workflow(graph: Any, name: str, settings: Settings) -> holdfast.Workflow[Any, Any]:
    alone = graphs.durable_graph(graph, replace(settings, is_own_run=True))

    async def run(input: Any, config: Any = None, **options: Any) -> Any:
        return await alone.ainvoke(input, config, **options)

    run.__annotations__["return"] = values.classes_in(graph)
    return holdfast.workflow(name=name)(run)


def _check_hooks() -> None:
    methods = {name: getattr(BaseChatModel, name, None) for name in models_.ENTRIES}
    hooks: dict[str, dict[str, object]] = {
        "langchain-core": {
            **{f"BaseChatModel.{name}": hook for name, hook in methods.items()},
            "BaseTool.arun": getattr(BaseTool, "arun", None),
            "BaseTool.run": getattr(BaseTool, "run", None),
            "BaseTool._to_args_and_kwargs": getattr(BaseTool, "_to_args_and_kwargs", None),
            "BaseTool._filter_injected_args": getattr(BaseTool, "_filter_injected_args", None),
        },
        "langgraph": {
            "Pregel.astream": getattr(Pregel, "astream", None),
            "PregelNode.copy": getattr(langgraph.pregel._read.PregelNode, "copy", None),
            "_TaskFunction.__call__": getattr(langgraph.func, "_TaskFunction", None),
            "uuid6": getattr(langgraph.pregel._checkpoint, "uuid6", None),
            "StreamMessagesHandler": getattr(
                langgraph.pregel._messages, "StreamMessagesHandler", None
            ),
            "PregelScratchpad.resume": PregelScratchpad.__dataclass_fields__.get("resume"),
        },
    }
    for distribution, needed in hooks.items():
        require_hooks(distribution, _TESTED[distribution], needed)


def _explain(graph: Any, name: str | None) -> None:
    steps = [n for n, node in graph.nodes.items() if not n.startswith("__")]
    print(f"{name or 'this graph'}: inside of runs these are steps:")
    print(f"  nodes: {', '.join(steps)}")
    print("  calls of chat models, as llm")
    print("  calls of tools, as tool:call-id, and of @task functions")
