//! Owns every bound of the ledger, each with its reason (L15). A bound that callers can meet is named in the refusal.

/// A resource fits one line of a log and one index page many times over.
pub const RESOURCE_BYTES_MAX: usize = 1_024;
/// Kinds are words.
pub const KIND_BYTES_MAX: usize = 32;
/// Holders are names of agents, hosts or processes.
pub const HOLDER_BYTES_MAX: usize = 256;
/// A lease that is asked for as one: more than this is a lock on a directory, not on files.
pub const RESOURCES_PER_ACQUIRE_MAX: usize = 64;
/// Callers describe their work in metadata; the work itself belongs elsewhere.
pub const METADATA_BYTES_MAX: usize = 4_096;
/// Half of what readers of JSON accept: metadata is read inside leases, and those inside pages.
pub const METADATA_DEPTH_MAX: usize = 64;
/// Why an administrator took a lease away, or a note of that size.
pub const REASON_BYTES_MAX: usize = 1_024;
/// An idempotency key is an id, not a document.
pub const IDEMPOTENCY_KEY_BYTES_MAX: usize = 128;
/// How long the answer to a keyed acquire can be asked for again, also after the lease has ended.
pub const IDEMPOTENCY_KEEP_MS: u64 = 10 * 60 * 1_000;
/// One holder that takes more than this is a loop gone wrong; a fleet has many holders.
pub const LEASES_PER_HOLDER_MAX: usize = 50_000;
/// A queue longer than this will not be served before its callers give up.
pub const WAITERS_PER_RESOURCE_MAX: usize = 16_384;
/// One holder waits for few things at a time.
pub const WAITERS_PER_HOLDER_MAX: usize = 1_024;
/// Leases inside leases: an agent, its intent, a scope, a file.
pub const WITHIN_DEPTH_MAX: usize = 8;
/// How many edges of the wait-for graph one enqueue may look at; beyond it the wait is refused, not granted unseen.
pub const DEADLOCK_EDGES_MAX: usize = 100_000;
/// How many stand-in-the-way leases a refusal or a check lists.
pub const BLOCKERS_LISTED_MAX: usize = 32;

/// The shortest lease of the doors that count in seconds.
pub const TTL_MS_MIN: u64 = 1_000;
/// The shortest lease of the native door.
pub const TTL_MS_MIN_NATIVE: u64 = 100;
/// The longest lease. Longer than this nobody remembers it.
pub const TTL_MS_MAX: u64 = 30 * 24 * 3_600 * 1_000;
/// The longest wait for a lease.
pub const WAIT_MS_MAX: u64 = 24 * 3_600 * 1_000;
/// The longest time a resource stays closed after its holder was lost.
pub const GRACE_MS_MAX: u64 = 24 * 3_600 * 1_000;

/// A page of a listing.
pub const PAGE_MAX: usize = 1_000;
/// A renew of many leases at once.
pub const RENEWALS_PER_REQUEST_MAX: usize = 4_096;

/// Intents live in memory; a fleet that needs more needs a second ledger.
pub const INTENTS_MAX: usize = 1_000_000;
/// The state of an intent says where the work stands; the work itself belongs elsewhere.
pub const STATE_BYTES_MAX: usize = 256 * 1_024;
/// Half of what readers of JSON accept, so that what was written can always be read.
pub const STATE_DEPTH_MAX: usize = 64;
/// A path into a state is a few names.
pub const PATCH_PATH_BYTES_MAX: usize = 1_024;
/// A write that changes more than this is a new state.
pub const PATCHES_MAX: usize = 256;
/// A title fits a line.
pub const TITLE_BYTES_MAX: usize = 1_024;
/// A description, a message, a note: a few pages.
pub const TEXT_BYTES_MAX: usize = 64 * 1_024;
/// What comes before one intent.
pub const DEPENDENCIES_MAX: usize = 1_024;
/// How many relatives of an intent one answer lists or one check looks at.
pub const RELATIVES_MAX: usize = 10_000;
/// Agents on one intent: all of them are told what happens to it.
pub const ASSIGNED_MAX: usize = 256;
/// Names on an access list.
pub const ACCESS_ENTRIES_MAX: usize = 256;
/// How many failures an intent keeps at hand; the events have them all.
pub const FAILURES_KEPT_MAX: usize = 32;
/// Portfolios live in memory.
pub const PORTFOLIOS_MAX: usize = 100_000;
/// A portfolio is written whole when an intent comes or goes.
pub const PORTFOLIO_MEMBERS_MAX: usize = 2_048;
/// How many terms that are over an intent or a portfolio keeps at hand, the latest; the events have them all.
pub const ENDED_TERMS_KEPT_MAX: usize = 32;
/// Registered agents live in memory.
pub const AGENTS_MAX: usize = 100_000;
/// The shortest interval of heartbeats.
pub const AGENT_BEAT_MS_MIN: u64 = 1_000;
/// The longest silence that can be agreed on.
pub const AGENT_BEAT_MS_MAX: u64 = 24 * 3_600 * 1_000;
/// Every subscription reads all events about its subject.
pub const SUBSCRIPTIONS_MAX: usize = 10_000;
/// Types of events one subscription names.
pub const EVENT_TYPES_MAX: usize = 256;
/// A URL to send to.
pub const URL_BYTES_MAX: usize = 2_048;
/// How long a holder that lost a lease is told so when it writes late.
pub const LOST_KEEP_MS: u64 = 24 * 3_600 * 1_000;
/// And how many resources that one holder has lost are remembered, the latest: every write of its looks at them.
pub const LOST_PER_HOLDER_MAX: usize = 1_024;
/// Steps of one workflow: its portfolio holds them all.
pub const WORKFLOW_STEPS_MAX: usize = 1_024;
/// Steps are named by words.
pub const STEP_NAME_BYTES_MAX: usize = 128;
/// More tries than this is a loop, not a retry.
pub const ATTEMPTS_MAX: u32 = 1_000;
/// The longest wait between two attempts.
pub const RETRY_DELAY_MS_MAX: u64 = 7 * 24 * 3_600 * 1_000;

const _: () = assert!(WORKFLOW_STEPS_MAX <= PORTFOLIO_MEMBERS_MAX && WORKFLOW_STEPS_MAX <= DEPENDENCIES_MAX);
/// A task's input or output, and a workflow's: beyond it is a file, and belongs into a store of files.
pub const PAYLOAD_BYTES_MAX: usize = 10 * 1024 * 1024;
/// How deep a task's input or output, and a workflow's, is nested: readers of JSON stop at 127, and what records and answers put
/// around it must still be read.
pub const PAYLOAD_DEPTH_MAX: usize = 100;
/// What a workflow's variables take together.
pub const VARIABLES_BYTES_MAX: usize = 256 * 1024;
/// Expressions inside expressions.
pub const TEMPLATE_DEPTH_MAX: usize = 16;
/// A workflow with more tasks than this is a loop without an end.
pub const TASKS_PER_FLOW_MAX: u32 = 50_000;
/// Workflows inside workflows; beyond it a workflow runs itself.
pub const FLOW_DEPTH_MAX: u32 = 32;
/// The steps of one workflow.
pub const STEPS_PER_PLAN_MAX: usize = 5_000;
/// How many steps one command may set off before others have their turn; the rest follows at once.
pub const STEPS_PER_TURN_MAX: usize = 1_000;
/// Reading and writing so much of payloads takes about as long as a step, and counts as one.
pub const BYTES_PER_STEP: usize = 1_024;
/// Lines a worker may leave with one update.
pub const LOGS_PER_UPDATE_MAX: usize = 10;
/// Lines that are kept of one task, the latest.
pub const LOGS_PER_TASK_MAX: usize = 200;
/// What is kept of one line.
pub const LOG_BYTES_MAX: usize = 8_192;
/// What is kept of a reason.
pub const TASK_REASON_CHARS_MAX: usize = 500;
/// Tasks that one poll may take.
pub const TASKS_PER_POLL_MAX: usize = 1_000;
/// Names of queues; beyond it polls for names nobody has scheduled are not remembered.
pub const QUEUES_MAX: usize = 100_000;
/// Polls that wait in one queue.
pub const POLLS_PER_QUEUE_MAX: usize = 16_384;
/// The longest wait for a task.
pub const POLL_WAIT_MS_MAX: u64 = 60_000;
/// The name of a task, a workflow or a step.
pub const NAME_BYTES_MAX: usize = 255;
/// A domain counts as served if somebody polled it this short a time ago.
pub const DOMAIN_ACTIVE_MS: u64 = 10_000;
/// The idempotency key of a workflow run: some clients make it out of what they start.
pub const FLOW_KEY_BYTES_MAX: usize = 1_024;
/// Keys of workflow runs that are over and still remembered.
pub const ENDED_FLOW_KEYS_MAX: usize = 100_000;
/// Definitions of tasks, and of workflows.
pub const DEFINITIONS_MAX: usize = 100_000;

// An ended lease must be rememberable by its key at least as long as a client may retry within the shortest wait for an answer.
const _: () = assert!(IDEMPOTENCY_KEEP_MS >= 60_000);
// A list of terms has room for all that are kept and the present one.
const _: () = assert!(ENDED_TERMS_KEPT_MAX < PAGE_MAX);
const _: () = assert!(TTL_MS_MIN_NATIVE <= TTL_MS_MIN && TTL_MS_MIN < TTL_MS_MAX);
const _: () = assert!(WAITERS_PER_HOLDER_MAX <= WAITERS_PER_RESOURCE_MAX);
