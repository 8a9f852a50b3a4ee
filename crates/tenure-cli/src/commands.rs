//! Owns what the commands do. Each file has the arguments of one command and its `run`.

pub(crate) mod actor;
pub(crate) mod answer_query;
pub(crate) mod backup;
pub(crate) mod check;
pub(crate) mod completions;
pub(crate) mod help;
pub(crate) mod hooks;
pub(crate) mod issue;
pub(crate) mod key;
pub(crate) mod lease;
pub(crate) mod lock;
pub(crate) mod offline;
pub(crate) mod run;
pub(crate) mod serve;
pub(crate) mod task;
pub(crate) mod wf;
pub(crate) mod workflow;
