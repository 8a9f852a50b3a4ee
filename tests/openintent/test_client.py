"""Every call of the package that has a route here, sync and async, and the error classes it raises."""

import asyncio
import datetime

import pytest
from openintent import AsyncOpenIntentClient
from openintent.exceptions import ConflictError, LeaseConflictError, NotFoundError, OpenIntentError, ValidationError
from openintent.models import EventType, IntentStatus, LeaseStatus, MembershipRole, Permission, PortfolioStatus, RetryStrategy
from openintent.models import AccessPolicy


def test_the_basic_flow_of_the_package_works_unchanged(connect):
    client = connect("worker-1")
    assert client.discover()["protocol"].startswith("OpenIntent")
    intent = client.create_intent("Plan a trip", "to the sea", constraints={"max": 3}, initial_state={"a": 1})
    assert (intent.version, intent.status, intent.created_by) == (1, IntentStatus.DRAFT, "worker-1")
    intent = client.set_status(intent.id, intent.version, IntentStatus.ACTIVE)
    lease = client.acquire_lease(intent.id, "research", duration_seconds=60)
    assert (lease.agent_id, lease.scope, lease.status) == ("worker-1", "research", LeaseStatus.ACTIVE)
    assert [one.id for one in client.get_leases(intent.id)] == [lease.id]
    intent = client.update_state(intent.id, intent.version, {"research": {"found": 3}})
    renewed = client.renew_lease(intent.id, lease.id, duration_seconds=120)
    assert renewed.expires_at > lease.expires_at
    client.release_lease(intent.id, lease.id)
    assert client.get_leases(intent.id) == []
    client.log_event(intent.id, EventType.COMMENT, {"text": "done"})
    types = [event.event_type for event in client.get_events(intent.id)]
    assert types == [
        EventType.COMMENT,
        EventType.LEASE_RELEASED,
        EventType.STATE_PATCHED,
        EventType.LEASE_ACQUIRED,
        EventType.STATUS_CHANGED,
        EventType.INTENT_CREATED,
    ]
    assert [e.event_type for e in client.get_events(intent.id, event_type=EventType.COMMENT)] == [EventType.COMMENT]
    assert client.get_events(intent.id, limit=2)[0].event_type == EventType.COMMENT
    later = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=1)
    assert client.get_events(intent.id, since=later) == []
    intent = client.set_status(intent.id, intent.version, IntentStatus.COMPLETED)
    assert intent.state.data["research"] == {"found": 3}


def test_graphs_of_intents(connect):
    client = connect("maker")
    parent = client.create_intent("parent")
    first = client.create_child_intent(parent.id, "first")
    then = client.create_child_intent(parent.id, "then", depends_on=[first.id])
    assert then.parent_intent_id == parent.id and then.depends_on == [first.id]
    assert [one.id for one in client.get_children(parent.id)] == [first.id, then.id]
    assert [one.id for one in client.get_descendants(parent.id)] == [first.id, then.id]
    assert [one.id for one in client.get_ancestors(then.id)] == [parent.id]
    assert [one.id for one in client.get_dependencies(then.id)] == [first.id]
    assert [one.id for one in client.get_dependents(first.id)] == [then.id]
    assert [one.id for one in client.get_ready_intents(parent.id)] == [first.id]
    assert [one.id for one in client.get_blocked_intents(parent.id)] == [then.id]
    graph = client.get_intent_graph(parent.id)
    assert len(graph["nodes"]) == 3 and graph["aggregate_status"]["total"] == 3
    then = client.remove_dependency(then.id, first.id, then.version)
    assert then.depends_on == []
    then = client.add_dependency(then.id, first.id, then.version)
    with pytest.raises(ValidationError):
        client.add_dependency(first.id, then.id, first.version)
    assert parent.id in [one.id for one in client.list_intents(limit=1000)]



def test_errors_become_the_classes_of_the_package(connect, intent):
    a, b = connect("a"), connect("b")
    held = a.acquire_lease(intent.id, "research", 60)
    with pytest.raises(LeaseConflictError) as conflict:
        b.acquire_lease(intent.id, "research", 60)
    assert conflict.value.existing_lease["id"] == held.id
    assert conflict.value.response["current_holder"] == "a"
    assert "a" in str(conflict.value)
    b.update_state(intent.id, 1, {"release-notes": 1})
    with pytest.raises(ConflictError) as conflict:
        b.update_state(intent.id, 1, {"release-notes": 2})
    assert conflict.value.current_version == 2
    with pytest.raises(NotFoundError):
        a.get_intent("no-such-intent")
    with pytest.raises(NotFoundError):
        a.acquire_lease("intent-9-9", "x", 60)
    with pytest.raises(ValidationError) as bad:
        a.acquire_lease(intent.id, "x", -5)
    assert bad.value.errors
    with pytest.raises(OpenIntentError) as unserved:
        a.create_memory("a", "ns", "k", {})
    assert unserved.value.status_code == 501


def test_agents_portfolios_policies_and_lists(connect):
    client = connect("maker")
    intent = client.create_intent("one")
    assert client.assign_agent(intent.id, "w9")["agent_id"] == "w9"
    client.unassign_agent(intent.id, "w9")
    record = client.register_agent("w9", capabilities=["c"], metadata={"m": 1})
    assert record.metadata == {"m": 1} and record.status == "active"
    assert client.get_agent_record("w9").capabilities == ["c"]
    assert "w9" in [one.agent_id for one in client.list_agents(status="active")]
    beat = client.agent_heartbeat("w9")
    assert beat["acknowledged"] and beat["agent_status"] == "active" and beat["status"] == "ok"
    assert client.update_agent_status("w9", "draining")["status"] == "draining"

    portfolio = client.create_portfolio("p", metadata={"k": 1})
    assert portfolio.metadata == {"k": 1} and portfolio.created_at
    member = client.add_intent_to_portfolio(portfolio.id, intent.id, MembershipRole.PRIMARY, 3)
    assert (member.intent_id, member.role, member.priority) == (intent.id, MembershipRole.PRIMARY, 3)
    intents, aggregate = client.get_portfolio_intents(portfolio.id)
    assert [one.id for one in intents] == [intent.id] and aggregate.by_status == {"draft": 1}
    assert client.get_portfolio(portfolio.id).aggregate_status.total == 1
    assert [one.id for one in client.get_intent_portfolios(intent.id)] == [portfolio.id]
    assert portfolio.id in [one.id for one in client.list_portfolios(created_by="maker")]
    assert client.update_portfolio_status(portfolio.id, PortfolioStatus.COMPLETED).status == PortfolioStatus.COMPLETED
    client.remove_intent_from_portfolio(portfolio.id, intent.id)
    assert client.get_portfolio_intents(portfolio.id)[0] == []

    assert client.get_retry_policy(intent.id) is None
    policy = client.set_retry_policy(intent.id, RetryStrategy.LINEAR, 2, 500, 9000, "f", 5)
    again = client.get_retry_policy(intent.id)
    assert (again.strategy, again.max_retries, again.fallback_agent_id, again.failure_threshold) == (RetryStrategy.LINEAR, 2, "f", 5)
    assert policy.created_at
    failure = client.record_failure(intent.id, 1, "E1", "it broke", metadata={"x": 1})
    assert failure.retry_scheduled_at and failure.created_at
    assert [one.error_code for one in client.get_failures(intent.id)] == ["E1"]

    later = datetime.datetime(2100, 1, 1)
    made = client.subscribe(intent_id=intent.id, event_types=["lease_acquired"], expires_at=later)
    assert made.expires_at == later and made.active and made.created_at
    assert [one.id for one in client.get_subscriptions(intent_id=intent.id)] == [made.id]
    client.unsubscribe(made.id)
    assert client.get_subscriptions(intent_id=intent.id) == []

    assert client.get_acl(intent.id).default_policy == AccessPolicy.OPEN
    entry = client.grant_access(intent.id, "friend", permission=Permission.WRITE)
    assert [one.id for one in client.get_acl(intent.id).entries] == [entry.id]
    client.revoke_access(intent.id, entry.id)
    asked = connect("friend").request_access(intent.id, "friend", permission=Permission.WRITE, reason="please")
    assert [one.id for one in client.list_access_requests(intent.id)] == [asked.id]
    assert client.approve_access_request(intent.id, asked.id).status == "approved"
    denied = connect("foe").request_access(intent.id, "foe", reason="please")
    assert client.deny_access_request(intent.id, denied.id).status == "denied"
    assert client.set_acl(intent.id, AccessPolicy.CLOSED).default_policy == AccessPolicy.CLOSED


def test_coordinator_leases(connect, intent):
    client = connect("coord-1")
    lease = client.create_coordinator_lease("coord-1", intent.id, supervisor_id="human-1", ttl_seconds=600, metadata={"m": 1})
    assert (lease.agent_id, lease.status, lease.metadata) == ("coord-1", "active", {"m": 1})
    assert lease.expires_at
    assert client.coordinator_heartbeat(lease.id)["status"] == "ok"
    assert client.get_coordinator_lease(lease.id).last_heartbeat
    assert [one.id for one in client.list_coordinator_leases(intent.id)] == [lease.id]


def test_the_asynchronous_client_works_too(url):
    async def flow():
        async with AsyncOpenIntentClient(base_url=url, api_key="k", agent_id="async-1") as client:
            intent = await client.create_intent("async", "")
            lease = await client.acquire_lease(intent.id, "x", 60)
            assert [one.id for one in await client.get_leases(intent.id)] == [lease.id]
            await client.renew_lease(intent.id, lease.id, 90)
            intent = await client.update_state(intent.id, intent.version, {"x": 1})
            await client.release_lease(intent.id, lease.id)
            await client.log_event(intent.id, EventType.COMMENT, {})
            assert len(await client.get_events(intent.id)) == 5
            await client.assign_agent(intent.id, "async-1")
            await client.unassign_agent(intent.id, "async-1")
            portfolio = await client.create_portfolio("p")
            await client.add_intent_to_portfolio(portfolio.id, intent.id)
            assert (await client.get_portfolio_intents(portfolio.id))[1].total == 1
            await client.set_retry_policy(intent.id, RetryStrategy.FIXED)
            await client.record_failure(intent.id, "E", "it broke")
            assert [one.error_code for one in await client.get_failures(intent.id)] == ["E"]
            await client.register_agent("async-1")
            await client.agent_heartbeat("async-1")
            assert (await client.get_agent_record("async-1")).status == "active"
            assert (await client.get_acl(intent.id)).entries == []
            term = await client.create_coordinator_lease("async-1", intent.id, supervisor_id="boss")
            await client.coordinator_heartbeat(term.id)
            assert (await client.get_server_config())["protocol_version"]
            async with AsyncOpenIntentClient(base_url=url, api_key="k", agent_id="async-2") as other:
                held = await client.acquire_lease(intent.id, "y", 60)
                with pytest.raises(LeaseConflictError) as conflict:
                    await other.acquire_lease(intent.id, "*", 60)
                assert conflict.value.existing_lease["id"] == held.id
            intent = await client.set_status(intent.id, intent.version, IntentStatus.COMPLETED)
            assert [one.id for one in await client.list_intents(status=IntentStatus.COMPLETED, limit=1000)].count(intent.id) == 1

    asyncio.run(flow())
