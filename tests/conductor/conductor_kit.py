"""The real clients of conductor-python against one server, and its workers in processes of their own."""

import os
import pathlib
import subprocess
import sys

from conductor.client.configuration.configuration import Configuration
from conductor.client.http.models.start_workflow_request import StartWorkflowRequest
from conductor.client.http.models.task_def import TaskDef
from conductor.client.http.models.workflow_def import WorkflowDef
from conductor.client.http.models.workflow_task import WorkflowTask
from conductor.client.orkes_clients import OrkesClients
from tenure_process import eventually as until

HERE = pathlib.Path(__file__).resolve().parent


class Conductor:
    """The real clients against one server."""

    def __init__(self, url: str):
        self.url = url
        self.configuration = Configuration(server_api_url=f"{url}/api")
        clients = OrkesClients(configuration=self.configuration)
        self.metadata = clients.get_metadata_client()
        self.workflows = clients.get_workflow_client()
        self.tasks = clients.get_task_client()

    def define(self, name: str, **settings) -> None:
        self.metadata.register_task_def(TaskDef(name=name, **settings))

    def line(self, workflow: str, *names: str, inputs=None) -> None:
        """Registers a workflow of SIMPLE tasks that follow each other."""
        tasks = [
            WorkflowTask(name=name, task_reference_name=f"{name}_{at}", type="SIMPLE", input_parameters=inputs or {})
            for at, name in enumerate(names)
        ]
        definition = WorkflowDef(name=workflow, version=1, tasks=tasks, schema_version=2)
        self.metadata.register_workflow_def(definition, overwrite=True)

    def start(self, workflow: str, **given) -> str:
        return self.workflows.start_workflow(StartWorkflowRequest(name=workflow, version=1, input=given))

    def run(self, id: str):
        return self.workflows.get_workflow(id, include_tasks=True)

    def ended(self, id: str, seconds=30.0):
        """The run once it is over."""
        over = ("COMPLETED", "FAILED", "TIMED_OUT", "TERMINATED")
        return until(lambda: (run := self.run(id)).status in over and run, seconds, f"the end of {id}")


class Workers:
    """Workers of tests/conductor/workers.py in one process: started, stopped, killed, put to sleep."""

    def __init__(self, url: str, *names: str, **environment: str):
        env = {**os.environ, "CONDUCTOR_SERVER_URL": f"{url}/api", "CONDUCTOR_WORKER_ISOLATION": "thread", **environment}
        self.process = subprocess.Popen([sys.executable, str(HERE / "workers.py"), *names], env=env)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
