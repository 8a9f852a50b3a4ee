//! Owns the small issue list that agents coordinate over: one ref per issue, `refs/tenure/issues/<id>`, each change a
//! commit on the last one, taken by the same judge as the locks. Two who comment at once both get their comment in.
//!
//! What another program keeps in `refs/grite/wal` is never touched, and not read.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use tenure_core::Timestamp;
use uuid::Uuid;

use crate::error::Error;
use crate::lease::{Clock, pause};
use crate::limits::{
    ATTEMPTS_MAX, ISSUE_BYTES_MAX, ISSUE_LABEL_BYTES_MAX, ISSUE_LABELS_MAX, ISSUE_TITLE_BYTES_MAX, UNMOVED_REFUSALS_MAX,
};
use crate::objects::Oid;
use crate::remote::{Change, Pushed, Remote};
use crate::repo::{Mode, Repo};
use crate::swap::{self, Swapped};
use crate::view::read_files;

/// Where issues live.
pub(crate) const ISSUES: &str = "refs/tenure/issues/";
/// What an issue's commit holds.
pub(crate) const FILE: &str = "issue.json";
const AUTHOR: &str = "tenure <tenure@localhost>";
/// The shortest prefix of an id that may stand for it.
const PREFIX_MIN: usize = 4;

/// An issue with everything that happened to it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Issue {
    /// 32 hex digits.
    pub issue_id: String,
    /// One line.
    pub title: String,
    /// Open or closed.
    pub state: State,
    /// Sorted.
    pub labels: Vec<String>,
    /// Sorted.
    pub assignees: Vec<String>,
    /// When it was made, in milliseconds since 1970.
    pub created_ts: u64,
    /// When it was last changed.
    pub updated_ts: u64,
    /// Oldest first.
    pub events: Vec<Event>,
}

/// Whether there is something left to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Yes.
    Open,
    /// No.
    Closed,
}

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// 64 hex digits, from everything below.
    pub event_id: String,
    /// The issue.
    pub issue_id: String,
    /// Who.
    pub actor: String,
    /// When.
    pub ts_unix_ms: u64,
    /// The event before it.
    pub parent: Option<String>,
    /// What: one variant with its fields.
    pub kind: Value,
}

impl Issue {
    /// How many comments it has.
    pub fn comment_count(&self) -> usize {
        self.events.iter().filter(|event| event.kind.get("CommentAdded").is_some()).count()
    }

    fn happen(&mut self, actor: &str, now: Timestamp, kind: Value) {
        let parent = self.events.last().map(|event| event.event_id.clone());
        let ts_unix_ms = now.unix_ms();
        let said = serde_json::json!([self.issue_id, actor, ts_unix_ms, parent, kind]).to_string();
        let event_id = Sha256::digest(said).iter().map(|byte| format!("{byte:02x}")).collect();
        let issue_id = self.issue_id.clone();
        self.events.push(Event { event_id, issue_id, actor: actor.to_owned(), ts_unix_ms, parent, kind });
        self.updated_ts = ts_unix_ms;
    }
}

/// What was changed, and where it stands now.
#[derive(Debug, Clone)]
pub struct Changed {
    /// The issue after the change.
    pub issue: Issue,
    /// The commit that says so.
    pub commit: Oid,
}

/// The issues of a repository, as one agent deals with them.
pub struct Issues<'a> {
    repo: &'a Repo,
    remote: Option<Remote>,
    me: String,
    clock: Clock<'a>,
}

struct Stored {
    oid: Oid,
    issue: Issue,
}

/// How often a change was refused although the issue was as it had been.
#[derive(Default)]
struct Refusals(u32);

impl Refusals {
    /// Counts one. Somebody else's change may be under way, which is a race; a hook's no is none.
    fn is_final(&mut self, detail: &str) -> bool {
        self.0 += 1;
        self.0 > UNMOVED_REFUSALS_MAX || detail.contains("hook declined")
    }
}

impl<'a> Issues<'a> {
    /// The issues that `mode` judges, for this actor.
    pub fn open(repo: &'a Repo, mode: &Mode, me: impl Into<String>, clock: Clock<'a>) -> Result<Issues<'a>, Error> {
        Ok(Issues { repo, remote: repo.judge(mode)?, me: me.into(), clock })
    }

    /// Makes one.
    pub fn create(&self, title: &str, body: &str, labels: &[String]) -> Result<Changed, Error> {
        let mut labels = labels.to_vec();
        labels.sort();
        labels.dedup();
        check_new(title, &labels)?;
        let now = (self.clock)();
        let mut issue = Issue {
            issue_id: Uuid::new_v4().simple().to_string(),
            title: title.to_owned(),
            state: State::Open,
            labels,
            assignees: Vec::new(),
            created_ts: now.unix_ms(),
            updated_ts: now.unix_ms(),
            events: Vec::new(),
        };
        let kind = serde_json::json!({ "IssueCreated": { "title": title, "body": body, "labels": issue.labels } });
        issue.happen(&self.me, now, kind);
        let mut refusals = Refusals::default();
        for attempt in 0..ATTEMPTS_MAX {
            if let Some(commit) = self.put(&issue, None, now, &mut refusals)? {
                return Ok(Changed { issue, commit });
            }
            pause(attempt);
        }
        Err(self.too_busy())
    }

    /// Adds a comment.
    pub fn comment(&self, id: &str, body: &str) -> Result<Changed, Error> {
        if body.trim().is_empty() {
            return Err(Error::BadInput("a comment has a text".to_owned()));
        }
        let kind = serde_json::json!({ "CommentAdded": { "body": body } });
        self.change(id, |issue, me, now| issue.happen(me, now, kind.clone()))
    }

    /// Opens or closes.
    pub fn set_state(&self, id: &str, state: State) -> Result<Changed, Error> {
        let kind = serde_json::json!({ "StateChanged": { "state": state } });
        self.change(id, |issue, me, now| {
            issue.state = state;
            issue.happen(me, now, kind.clone());
        })
    }

    /// All issues, oldest first. One that cannot be read is left out.
    pub fn list(&self) -> Result<Vec<Issue>, Error> {
        let mut issues: Vec<Issue> = self.read()?.into_iter().map(|stored| stored.issue).collect();
        issues.sort_by(|a, b| (a.created_ts, &a.issue_id).cmp(&(b.created_ts, &b.issue_id)));
        Ok(issues)
    }

    /// The issue that an id or a unique prefix means.
    pub fn show(&self, id: &str) -> Result<Issue, Error> {
        Ok(pick(self.read()?, id)?.issue)
    }

    fn change(&self, id: &str, act: impl Fn(&mut Issue, &str, Timestamp)) -> Result<Changed, Error> {
        let mut refusals = Refusals::default();
        for attempt in 0..ATTEMPTS_MAX {
            let Stored { oid, mut issue } = pick(self.read()?, id)?;
            let now = (self.clock)();
            act(&mut issue, &self.me, now);
            if let Some(commit) = self.put(&issue, Some(&oid), now, &mut refusals)? {
                return Ok(Changed { issue, commit });
            }
            pause(attempt);
        }
        Err(self.too_busy())
    }

    /// Writes and has it taken; none: somebody else changed it meanwhile, or is about to.
    fn put(
        &self,
        issue: &Issue,
        old: Option<&Oid>,
        now: Timestamp,
        refusals: &mut Refusals,
    ) -> Result<Option<Oid>, Error> {
        let (git, objects) = (&self.repo.git, &self.repo.objects);
        let json = serde_json::to_vec_pretty(issue).unwrap_or_default();
        if json.len() > ISSUE_BYTES_MAX {
            return Err(Error::BadInput(format!(
                "an issue has at most {ISSUE_BYTES_MAX} bytes, with all its comments"
            )));
        }
        let tree = objects.tree_of_one(git, FILE, &objects.blob(git, &json)?)?;
        let parent = old.map(|oid| format!("parent {oid}\n")).unwrap_or_default();
        let when = now.unix_ms() / 1_000;
        let who = format!("author {AUTHOR} {when} +0000\ncommitter {AUTHOR} {when} +0000");
        let commit = objects.commit(git, &format!("tree {tree}\n{parent}{who}\n\nIssue: {}\n", issue.issue_id))?;
        let reference = format!("{ISSUES}{}", issue.issue_id);
        let change = Change { reference, old: old.cloned(), new: Some(commit.clone()) };
        Ok(self.take(&change, refusals)?.then_some(commit))
    }

    fn take(&self, change: &Change, refusals: &mut Refusals) -> Result<bool, Error> {
        let Some(remote) = &self.remote else {
            return Ok(matches!(swap::local(self.repo, std::slice::from_ref(change))?, Swapped::Done(_)));
        };
        match remote.push(self.repo, std::slice::from_ref(change))? {
            Pushed::Done(_) => Ok(true),
            Pushed::Refused(detail) => {
                remote.fetch(self.repo, &self.refspecs(remote))?;
                let cached = remote.cached(&change.reference);
                let now = self.repo.git.run(&["rev-parse", "-q", "--verify", &cached], b"")?;
                let unmoved = Oid::parse(now.text().trim()) == change.old;
                match unmoved && refusals.is_final(&detail) {
                    true => Err(Error::RemoteRefused { name: remote.name().to_owned(), detail }),
                    false => Ok(false),
                }
            }
            Pushed::Unknown(detail) => Err(remote.unavailable(detail, true)),
        }
    }

    fn refspecs(&self, remote: &Remote) -> Vec<String> {
        vec![format!("+{ISSUES}*:{}*", remote.cached(ISSUES))]
    }

    fn read(&self) -> Result<Vec<Stored>, Error> {
        let root = match &self.remote {
            None => ISSUES.to_owned(),
            Some(remote) => {
                remote.fetch(self.repo, &self.refspecs(remote))?;
                remote.cached(ISSUES)
            }
        };
        let listed = self.repo.git.done(&["for-each-ref", "--format=%(objectname)", &root], b"")?;
        let oids: Vec<Oid> = listed.text().lines().filter_map(Oid::parse).collect();
        let files = read_files(&self.repo.git, &oids.iter().collect::<Vec<_>>(), FILE, ISSUE_BYTES_MAX)?;
        let stored = |(oid, content): (Oid, Result<Vec<u8>, String>)| {
            Some(Stored { oid, issue: serde_json::from_slice(&content.ok()?).ok()? })
        };
        Ok(files.into_iter().filter_map(stored).collect())
    }

    fn too_busy(&self) -> Error {
        let name = self.remote.as_ref().map_or("(this repository)", Remote::name).to_owned();
        Error::RemoteUnavailable { name, detail: "others changed the issue every time".to_owned(), unknown: false }
    }
}

fn check_new(title: &str, labels: &[String]) -> Result<(), Error> {
    let one_line = |text: &str| !text.trim().is_empty() && !text.chars().any(char::is_control);
    if !one_line(title) || title.len() > ISSUE_TITLE_BYTES_MAX {
        return Err(Error::BadInput(format!("a title is one line of 1 to {ISSUE_TITLE_BYTES_MAX} bytes")));
    }
    let fits = |label: &String| one_line(label) && label.len() <= ISSUE_LABEL_BYTES_MAX;
    if labels.len() > ISSUE_LABELS_MAX || !labels.iter().all(fits) {
        let rule = format!("at most {ISSUE_LABELS_MAX} labels, each one line of 1 to {ISSUE_LABEL_BYTES_MAX} bytes");
        return Err(Error::BadInput(format!("an issue has {rule}")));
    }
    Ok(())
}

fn pick(all: Vec<Stored>, id: &str) -> Result<Stored, Error> {
    let id = id.to_ascii_lowercase();
    if id.len() < PREFIX_MIN || !id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(Error::BadInput(format!(
            "{id:?} is not an issue's id or the first {PREFIX_MIN} or more digits of one"
        )));
    }
    let mut found = all.into_iter().filter(|stored| stored.issue.issue_id.starts_with(&id));
    match (found.next(), found.next()) {
        (Some(stored), None) => Ok(stored),
        (None, _) => Err(Error::Issue(format!("no issue matching prefix {id}"))),
        (Some(_), Some(_)) => Err(Error::Issue(format!("several issues match prefix {id}"))),
    }
}
