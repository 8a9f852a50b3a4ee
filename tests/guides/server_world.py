"""A server, and everything that documents about intents and tasks need around their blocks."""

import contextlib
import io

import stand_ins
import tenure
from tenure.conductor import Configuration, MetadataClient, TaskHandler, WorkflowClient
from tenure_process import Server, eventually


class ServerWorld:
    """Names that blocks share are in `names`; `observer` looks at the server as nobody's agent."""

    def __init__(self):
        self.server = Server()
        self.url = self.server.url
        self.observer = tenure.Client(self.url, holder="observer")
        self.configuration = Configuration(self.url)
        self.metadata, self.workflows = MetadataClient(self.configuration), WorkflowClient(self.configuration)
        self.names = {}

    def agent(self, name):
        return tenure.OpenIntentClient(self.url, agent_id=name)

    def new_intent(self, title="seed", **state):
        return self.agent("author").create_intent(title, "what is to be done", initial_state=state)

    def python(self, block, **names):
        """Runs Python code of a document; the names it made, and what it printed."""
        code = stand_ins.python(block.code).replace("http://localhost:8000", self.url)
        space, printed = {"__name__": "document", **self.names, **names}, io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, f"{block.document}:{block.line}", "exec"), space)
        return space, printed.getvalue()

    def kinds(self, lease_id):
        """What happened to a lease."""
        return [event.kind for event in self.observer.history(lease_id)]

    def define(self, name, **rules):
        """A task, and a workflow that has only it and passes its input on."""
        self.metadata.register_task_def({"name": name, "retryCount": 0, "responseTimeoutSeconds": 60, **rules})
        self.metadata.register_workflow_def(
            {
                "name": f"only_{name}",
                "version": 1,
                "schemaVersion": 2,
                "ownerEmail": "docs@example.org",
                "inputParameters": ["input"],
                "tasks": [
                    {
                        "name": name,
                        "taskReferenceName": "it",
                        "type": "SIMPLE",
                        "inputParameters": {key: f"${{workflow.input.{key}}}" for key in stand_ins.INPUTS.get(name, ())},
                    }
                ],
            }
        )

    def start(self, name, **inputs):
        return self.workflows.start_workflow(f"only_{name}", inputs)

    def task(self, workflow_id, number=-1):
        """The newest task of a workflow."""
        return self.workflows.get_workflow(workflow_id)["tasks"][number]

    def ended(self, workflow_id, within=60):
        """The workflow, once it has ended."""
        over = lambda flow: flow["status"] not in ("RUNNING", "PAUSED") and flow
        return eventually(lambda: over(self.workflows.get_workflow(workflow_id)), within, "the workflow has ended")

    def working(self, function):
        """Runs the worker of a block."""
        return TaskHandler([function._tenure_worker], self.configuration, drain_seconds=5)

    def close(self):
        self.server.__exit__()
