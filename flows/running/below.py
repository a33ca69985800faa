"""A flow run below the one at work, in this process: what a flow called in a flow makes, for less.

A flow that is called in a flow asks the server eight times before its first line: for a token, a
task run, what ran below that, the flow's id, a flow run, its name, *Running*, and the run as it is
now. Here it asks twice: for a task run, and for a flow run that has its name and is *Running* from
its beginning. The rest is Prefect's engine as it is.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from prefect import Task
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.actions import FlowRunCreate
from prefect.client.schemas.objects import FlowRun
from prefect.context import FlowRunContext, TagsContext
from prefect.flow_engine import FlowRunEngine
from prefect.states import Running, to_state_create

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from prefect import Flow, State

_FLOW_IDS: dict[tuple[str, str], UUID] = {}  # by server and name


def run_below(flow: Flow[..., Any], parameters: Mapping[str, Any]) -> State[Any]:
    """Run a flow below the run that is at work; the same as calling it with `return_state`.

    Args:
        flow: not a generator, not asynchronous; its `flow_run_name` is a template.
        parameters: all of them, and no futures.

    Raises:
        Abort: the server refuses that the run ends so, or somebody else has the run.
    """
    engine = _Engine(flow=flow, parameters=dict(parameters))
    with engine.start():
        while engine.is_running():  # again where it is tried again
            with engine.run_context():
                engine.call_flow_fn()
    return engine.state


class _Engine(FlowRunEngine[..., Any]):
    """Prefect's engine, whose run exists and is *Running* when it comes to begin it."""

    _made: FlowRun | None = None  # the run as the server gave it, until the engine asks for it

    def create_flow_run(self, client: SyncPrefectClient) -> FlowRun:
        """The run and the task run by which Prefect's UI shows it below its parent."""
        name = str(self.flow.flow_run_name).format(**self.parameters or {})
        # Both keys are made here, so that a request whose answer was lost makes nothing twice.
        key = str(uuid4())
        wanted = FlowRunCreate(
            flow_id=_flow_id(client, self.flow.name),
            flow_version=self.flow.version,
            name=name,
            parameters=self.flow.serialize_parameters(self.parameters or {}),
            parent_task_run_id=self._placeholder(client, name, key),
            state=to_state_create(Running()),
            tags=list(TagsContext.get().current_tags),
            idempotency_key=key,
        )
        made = client.request(
            "POST", "/flow_runs/", json=wanted.model_dump(mode="json", exclude_unset=True)
        )
        self._flow_run_name_set = True  # or the engine names it once more
        self._made = FlowRun.model_validate(made.json())
        return self._made

    def set_state(self, state: State[Any], force: bool = False) -> State[Any]:
        """Propose a state, unless it is the one in which the run began."""
        if state.is_running() and self.is_running():
            return self.state
        return super().set_state(state, force)

    @contextmanager
    def setup_run_context(self, client: SyncPrefectClient | None = None) -> Iterator[None]:
        """Prefect's, which reads the run: a first time, that is the one just made."""
        made, self._made = self._made, None
        knowing = client if made is None else _Knowing(client or self.client, made)
        with super().setup_run_context(knowing):
            yield

    def _placeholder(self, client: SyncPrefectClient, name: str, key: str) -> UUID:
        """A task run of the parent, kept by the server in the state of the run below it."""
        parent = FlowRunContext.get()
        if parent is None or parent.flow_run is None:
            raise RuntimeError("there is no run to be below")
        task = Task(name=self.flow.name, fn=self.flow.fn, version=self.flow.version)
        tags = TagsContext.get().current_tags
        made = client.create_task_run(
            task, parent.flow_run.id, dynamic_key=key, name=name, extra_tags=tags
        )
        return made.id


class _Knowing(SyncPrefectClient):
    """Another client, by its connection, that knows one run without asking the server."""

    def __init__(self, client: SyncPrefectClient, run: FlowRun) -> None:
        vars(self).update(vars(client))
        self._run = run

    def read_flow_run(self, flow_run_id: UUID) -> FlowRun:
        """The run as it began, or another as it is now."""
        return self._run if flow_run_id == self._run.id else super().read_flow_run(flow_run_id)


def _flow_id(client: SyncPrefectClient, flow: str) -> UUID:
    """The server's id of a flow, asked for once."""
    key = str(client.api_url), flow
    if key not in _FLOW_IDS:
        _FLOW_IDS[key] = client.create_flow_from_name(flow)
    return _FLOW_IDS[key]
