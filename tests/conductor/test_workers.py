"""Real workers of conductor-python on Tenure: every pattern of lease extension, and workers that die."""

import signal
import time

from conductor_kit import until


def test_a_task_longer_than_its_response_timeout_is_extended_and_runs_once(conductor, workers):
    conductor.define("long_task", response_timeout_seconds=3, timeout_seconds=60, retry_count=3)
    conductor.line("wf", "long_task", inputs={"seconds": "${workflow.input.seconds}"})
    workers("long_task")
    run = conductor.ended(conductor.start("wf", seconds=8), 40)
    assert run.status == "COMPLETED"
    assert [task.poll_count for task in run.tasks] == [1], "one task, one poll"


def test_without_extension_the_task_times_out_promptly_and_the_late_result_is_not_taken(conductor, workers):
    conductor.define("long_task", response_timeout_seconds=2, timeout_seconds=60, retry_count=0)
    conductor.line("wf", "long_task", inputs={"seconds": 6})
    workers("long_task", conductor_worker_long_task_lease_extend_enabled="false")
    run = conductor.ended(conductor.start("wf"), 40)
    assert run.status == "TIMED_OUT"
    task = run.tasks[0]
    late_ms = task.end_time - task.start_time - 3_000
    assert 0 <= late_ms <= 100, f"two seconds and the grace of one, {late_ms} ms late"
    time.sleep(4)
    again = conductor.run(run.workflow_id)
    assert again.status == "TIMED_OUT" and again.tasks[0].output_data in ({}, None)


def test_checkpoints_with_task_in_progress_count_polls_and_keep_output_and_logs(conductor, workers):
    conductor.define("batch", response_timeout_seconds=10)
    conductor.line("wf", "batch", inputs={"total": 300})
    workers("batch")
    run = conductor.ended(conductor.start("wf"), 30)
    assert run.status == "COMPLETED"
    assert run.tasks[0].poll_count == 3 and run.output["total_processed"] == 300
    logs = [log.log for log in conductor.tasks.get_task_logs(run.tasks[0].task_id)]
    assert logs == ["did 100", "did 200"]


def test_a_second_quick_task_comes_with_the_answer_to_the_first(conductor, workers):
    conductor.define("quick")
    conductor.line("wf", "quick", "quick", "quick", "quick", "quick", inputs={"x": "${workflow.input.x}"})
    workers("quick")
    run = conductor.ended(conductor.start("wf", x=7), 30)
    assert run.status == "COMPLETED" and run.output == {"x": 7}
    first, *rest = run.tasks
    assert rest[-1].end_time - first.start_time < 1_000, "no poll in between"


def test_async_workers_yield_epochs_and_extend_leases(conductor, workers):
    conductor.define("epochs")
    conductor.define("async_long", response_timeout_seconds=2, timeout_seconds=60)
    conductor.line("train", "epochs", inputs={"config": {"epochs": 3}})
    conductor.line("sleep", "async_long", inputs={"seconds": 5})
    workers("epochs", "async_long")
    trained, slept = conductor.start("train"), conductor.start("sleep")
    run = conductor.ended(trained, 40)
    assert run.output["trained"] == 3 and run.tasks[0].poll_count == 4
    run = conductor.ended(slept, 40)
    assert run.status == "COMPLETED" and run.tasks[0].poll_count == 1


def test_a_limit_on_polls_and_a_raised_exception_fail_the_task_and_it_is_retried(conductor, workers):
    conductor.define("limited", retry_count=0)
    conductor.define("fails", retry_count=2, retry_delay_seconds=0, retry_logic="FIXED")
    conductor.line("limited", "limited")
    conductor.line("fails", "fails")
    workers("limited", "fails")
    limited, fails = conductor.start("limited"), conductor.start("fails")
    run = conductor.ended(limited, 40)
    assert run.status == "FAILED" and run.tasks[0].poll_count == 3
    run = conductor.ended(fails, 40)
    assert run.status == "FAILED" and [task.retry_count for task in run.tasks] == [0, 1, 2]
    assert run.tasks[1].retried_task_id == run.tasks[0].task_id != run.tasks[1].task_id
    assert "Request rejected: REJECTED" in run.reason_for_incompletion


def held_by_first(conductor, id):
    return until(lambda: (task := conductor.run(id).tasks[0]).status == "IN_PROGRESS" and task, 20, "a first worker")


def test_the_task_of_a_killed_worker_is_with_another_one_soon_and_exactly_once_more(conductor, workers):
    conductor.define("long_task", response_timeout_seconds=5, retry_count=3, retry_delay_seconds=0)
    conductor.line("wf", "long_task", inputs={"seconds": 3})
    first = workers("long_task", WORKER_ID="first")
    id = conductor.start("wf")
    held_by_first(conductor, id)
    first.send_signal(signal.SIGKILL)
    workers("long_task", WORKER_ID="second")
    run = conductor.ended(id, 40)
    assert run.status == "COMPLETED"
    lost, won = run.tasks
    assert (lost.status, lost.worker_id, won.worker_id) == ("TIMED_OUT", "first", "second")
    assert won.start_time - lost.update_time <= 6_100, "the response timeout, the grace, and a moment"


def test_a_worker_that_slept_past_its_lease_is_not_heard(conductor, workers):
    conductor.define("long_task", response_timeout_seconds=4, retry_count=3, retry_delay_seconds=0)
    conductor.line("wf", "long_task", inputs={"seconds": 2})
    first = workers("long_task", WORKER_ID="first")
    id = conductor.start("wf")
    held_by_first(conductor, id)
    first.send_signal(signal.SIGSTOP)
    until(lambda: len(conductor.run(id).tasks) == 2, 10, "the response timeout")
    first.send_signal(signal.SIGCONT)
    workers("long_task", WORKER_ID="second")
    run = conductor.ended(id, 40)
    assert run.status == "COMPLETED" and len(run.tasks) == 2
    assert run.tasks[0].status == "TIMED_OUT" and run.tasks[1].status == "COMPLETED"


def test_a_restart_of_the_server_takes_no_task_away(server, conductor, workers):
    conductor.define("long_task", response_timeout_seconds=3, timeout_seconds=60, retry_count=0)
    conductor.line("wf", "long_task", inputs={"seconds": 6})
    workers("long_task")
    id = conductor.start("wf")
    held_by_first(conductor, id)
    address = server.address
    server.kill()
    server.start(address)
    run = conductor.ended(id, 40)
    assert run.status == "COMPLETED" and run.tasks[0].poll_count == 1
