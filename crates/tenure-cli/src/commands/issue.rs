//! `tenure issue`: the list of work that agents claim with locks, kept in git beside them.

use serde_json::{Value, json};
use tenure_git::issue::{Changed, Issue, Issues, State};
use tenure_git::policy::{Policy, line};
use tenure_git::status::{Listed, Status};

use super::lock::door::now;
use super::lock::{Door, Where, explain, visible};
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::table::Table;

/// How much of an id is enough to know it.
const ID_SHORT: usize = 8;

/// Make, list and work on issues that live in a git repository.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    place: Where,

    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Make an issue
    Create {
        /// One line
        #[arg(long)]
        title: String,
        /// More about it
        #[arg(long, default_value = "")]
        body: String,
        /// May be repeated
        #[arg(long = "label", value_name = "LABEL")]
        labels: Vec<String>,
    },
    /// List issues, oldest first
    List {
        /// Which of them
        #[arg(long, value_enum, default_value = "open")]
        state: Which,
        /// Only with this label
        #[arg(long)]
        label: Option<String>,
    },
    /// Show an issue with everything that happened to it
    Show {
        /// Its id, or the first digits of it
        id: String,
    },
    /// Add a comment
    Comment {
        /// Its id, or the first digits of it
        id: String,
        /// The text
        #[arg(long)]
        body: String,
    },
    /// Close an issue
    Close {
        /// Its id, or the first digits of it
        id: String,
    },
    /// Open a closed issue again
    Reopen {
        /// Its id, or the first digits of it
        id: String,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Which {
    Open,
    Closed,
    All,
}

pub(crate) fn run(args: &Args, output: Output) -> Outcome {
    let door = Door::open(&args.place)?;
    match &args.command {
        Command::Create { title, body, labels } => {
            may_create(&door, output)?;
            let changed = issues(&door, true)?.create(title, body, labels).map_err(explain)?;
            door.result(output, &changed_json(&changed, None), || about("Issue created", &changed));
        }
        Command::List { state, label } => list(&door, *state, label.as_deref(), output)?,
        Command::Show { id } => show(&door, id, output)?,
        Command::Comment { id, body } => {
            let issues = issues(&door, true)?;
            may_change(&door, &issues, id, output)?;
            let changed = issues.comment(id, body).map_err(explain)?;
            door.result(output, &changed_json(&changed, None), || about("Comment added", &changed));
        }
        Command::Close { id } => set_state(&door, id, State::Closed, output)?,
        Command::Reopen { id } => set_state(&door, id, State::Open, output)?,
    }
    Ok(Exit::OK)
}

fn issues(door: &Door, acts: bool) -> Result<Issues<'_>, Failure> {
    let me = match acts {
        true => door.actor()?.0.id,
        false => String::new(),
    };
    Issues::open(&door.repo, &door.mode, me, &now).map_err(explain)
}

fn set_state(door: &Door, id: &str, state: State, output: Output) -> Result<(), Failure> {
    let issues = issues(door, true)?;
    may_change(door, &issues, id, output)?;
    let changed = issues.set_state(id, state).map_err(explain)?;
    let head = if state == State::Closed { "Issue closed" } else { "Issue reopened" };
    door.result(output, &changed_json(&changed, Some(state)), || about(head, &changed));
    Ok(())
}

fn list(door: &Door, which: Which, label: Option<&str>, output: Output) -> Result<(), Failure> {
    let all = issues(door, false)?.list().map_err(explain)?;
    let fits = |issue: &&Issue| {
        let state = match which {
            Which::Open => issue.state == State::Open,
            Which::Closed => issue.state == State::Closed,
            Which::All => true,
        };
        state && label.is_none_or(|label| issue.labels.iter().any(|own| own == label))
    };
    let shown: Vec<&Issue> = all.iter().filter(fits).collect();
    let data = json!({ "total": shown.len(), "issues": shown.iter().map(|issue| summary(issue)).collect::<Vec<_>>() });
    door.result(output, &data, || {
        if shown.is_empty() {
            return "No issues".to_owned();
        }
        let mut table = Table::new(&["ID", "STATE", "TITLE"]);
        shown.iter().for_each(|issue| table.row([short(issue), word(issue.state).to_owned(), visible(&issue.title)]));
        let open = shown.iter().filter(|issue| issue.state == State::Open).count();
        format!("{}\n{} issues ({open} open, {} closed)", table.render(), shown.len(), shown.len() - open)
    });
    Ok(())
}

fn show(door: &Door, id: &str, output: Output) -> Result<(), Failure> {
    let issue = issues(door, false)?.show(id).map_err(explain)?;
    door.result(output, &json!({ "issue": summary(&issue), "events": issue.events }), || {
        let mut lines = vec![
            visible(&issue.title),
            format!("  Issue: {}", issue.issue_id),
            format!("  State: {}", word(issue.state)),
            format!("  Labels: {}", visible(&issue.labels.join(", "))),
        ];
        for event in &issue.events {
            let body =
                event.kind.as_object().and_then(|kind| kind.values().next()).and_then(|fields| fields.get("body"));
            if let Some(body) = body.and_then(Value::as_str).filter(|body| !body.is_empty()) {
                let who: String = visible(&event.actor).chars().take(ID_SHORT).collect();
                lines.push(format!("  {who}: {}", body.lines().map(visible).collect::<Vec<_>>().join("\n    ")));
            }
        }
        lines.join("\n")
    });
    Ok(())
}

/// The policy for making an issue: only a lock on the whole repository stands against it.
fn may_create(door: &Door, output: Output) -> Result<(), Failure> {
    let (policy, status, me) = rule(door)?;
    let Some(status) = status else { return Ok(()) };
    let whole = |lock: &&Listed| matches!(lock.name.as_str(), "repo:*" | "repo:global") && lock.owner != me;
    let against: Vec<&Listed> = status.live.iter().filter(whole).collect();
    judge(policy, &status, &against, true, "the whole repository", output)
}

/// The policy for changing an issue: its lock, named by id or a prefix of it that fits no other issue.
fn may_change(door: &Door, issues: &Issues<'_>, id: &str, output: Output) -> Result<(), Failure> {
    let (policy, status, me) = rule(door)?;
    let Some(status) = status else { return Ok(()) };
    let all = issues.list().map_err(explain)?;
    let id = issues.show(id).map_err(explain)?.issue_id;
    let means = |lock: &&Listed| {
        let name = lock.name.name();
        let fits = |issue: &&Issue| issue.issue_id.starts_with(name);
        let whole = matches!(lock.name.as_str(), "repo:*" | "repo:global");
        let this = lock.name.kind() == Some("issue") && id.starts_with(name) && all.iter().filter(fits).count() == 1;
        whole || this
    };
    let (mine, others): (Vec<&Listed>, Vec<&Listed>) =
        status.live.iter().filter(means).partition(|lock| lock.owner == me);
    judge(policy, &status, &others, !mine.is_empty(), &format!("issue:{id}"), output)
}

fn rule(door: &Door) -> Result<(Policy, Option<Status>, String), Failure> {
    let policy = door.repo.policy().map_err(explain)?;
    let me = door.actor()?.0.id;
    let status = match policy {
        Policy::Off => None,
        _ => Some(door.locks_to_look()?.status().map_err(explain)?),
    };
    Ok((policy, status, me))
}

fn judge(
    policy: Policy,
    status: &Status,
    others: &[&Listed],
    held: bool,
    what: &str,
    output: Output,
) -> Result<(), Failure> {
    let lines: Vec<String> = others.iter().map(|lock| visible(&line(lock, status.now))).collect();
    if policy != Policy::Require {
        lines.iter().for_each(|line| output.note(&format!("Warning: {line}")));
        return Ok(());
    }
    if let Some(first) = lines.first() {
        let message = format!("conflict: Blocked by lock policy: {first}");
        return Err(Failure::new(Exit::CONFLICT, "conflict", message));
    }
    if held {
        return Ok(());
    }
    let message = format!("conflict: Blocked by lock policy: you hold no lock that covers {what}");
    Err(Failure::new(Exit::CONFLICT, "conflict", message)
        .hint(format!("tenure lock acquire --resource {what} --ttl 30m")))
}

fn changed_json(changed: &Changed, state: Option<State>) -> Value {
    let mut data = json!({
        "issue_id": changed.issue.issue_id,
        "event_id": changed.issue.events.last().map(|event| &event.event_id),
        "wal_head": changed.commit.as_str(),
    });
    if let (Some(state), Some(members)) = (state, data.as_object_mut()) {
        members.insert("state".to_owned(), json!(state));
    }
    data
}

fn summary(issue: &Issue) -> Value {
    json!({
        "issue_id": issue.issue_id,
        "title": issue.title,
        "state": issue.state,
        "labels": issue.labels,
        "assignees": issue.assignees,
        "created_ts": issue.created_ts,
        "updated_ts": issue.updated_ts,
        "comment_count": issue.comment_count(),
    })
}

fn about(head: &str, changed: &Changed) -> String {
    format!("{head}\n  Issue: {}\n  Title: {}", changed.issue.issue_id, visible(&changed.issue.title))
}

fn short(issue: &Issue) -> String {
    issue.issue_id.chars().take(ID_SHORT).collect()
}

fn word(state: State) -> &'static str {
    match state {
        State::Open => "open",
        State::Closed => "closed",
    }
}
