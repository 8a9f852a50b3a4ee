//! Owns the talk with the remote that judges: bringing its locks here, and changing its refs only if they still are
//! what was judged. Relies on `git fetch` and `git push --force-with-lease=<ref>:<expected>`.
//!
//! What was fetched stands under `refs/tenure/remotes/<name>/`: a cache that saves a round trip, never a truth. A
//! change judged on it is either refused by the remote or checked against what the remote advertised while taking it.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::git::Output;
use crate::limits::REF_LOCK_WAIT_MS;
use crate::name::LOCKS;
use crate::objects::Oid;
use crate::repo::Repo;
use crate::view::{GUARD, Space};

/// How often a fetch that met another one in this clone is tried again.
const FETCH_ATTEMPTS: u32 = 10;

/// A remote that judges.
#[derive(Debug, Clone)]
pub struct Remote {
    name: String,
    /// What to read from: the name, or the url that is pushed to.
    source: String,
    timeout: Duration,
    /// When whoever asks has no use for an answer any more.
    deadline: Option<Instant>,
}

/// One ref to change: from what was judged to something new.
#[derive(Debug, Clone)]
pub struct Change {
    /// The ref under its common name.
    pub reference: String,
    /// What it must still be; none: it must not exist.
    pub old: Option<Oid>,
    /// What it shall be; none: deleted.
    pub new: Option<Oid>,
}

/// What became of a push.
#[derive(Debug)]
pub enum Pushed {
    /// All changes are made.
    Done(Advertised),
    /// None is made, and the remote says why.
    Refused(String),
    /// Nobody said.
    Unknown(String),
}

/// The refs that the remote showed at the start of a push; none if they could not be read off.
pub type Advertised = Option<HashMap<String, Oid>>;

impl Remote {
    pub(crate) fn new(name: &str, source: String, timeout: Duration) -> Remote {
        Remote { name: name.to_owned(), source, timeout, deadline: None }
    }

    /// Its name in git's configuration.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The same remote, for talks that end at this moment.
    pub(crate) fn until(self, deadline: Instant) -> Remote {
        Remote { deadline: Some(deadline), ..self }
    }

    fn time_left(&self) -> Duration {
        let left = |deadline: Instant| deadline.saturating_duration_since(Instant::now());
        self.deadline.map_or(self.timeout, |deadline| self.timeout.min(left(deadline)))
    }

    fn talk<S: AsRef<OsStr>>(&self, repo: &Repo, args: &[S], env: &[(&str, &str)]) -> Result<Output, Error> {
        match self.time_left() {
            Duration::ZERO => Err(self.unavailable("no time is left to ask it".to_owned(), false)),
            limit => repo.git.talk(args, env, limit),
        }
    }

    /// One fetch at a time in a clone; the kernel frees it however we end.
    fn alone(&self, repo: &Repo) -> Result<fs::File, Error> {
        const STEP: Duration = Duration::from_millis(10);
        let (path, file) = repo.lock_file("fetch.lock")?;
        let broken = |source| Error::Io { path: path.clone(), source };
        if self.deadline.is_none() {
            file.lock().map_err(broken)?;
            return Ok(file);
        }
        while let Err(busy) = file.try_lock() {
            match busy {
                fs::TryLockError::WouldBlock if !self.time_left().is_zero() => std::thread::sleep(STEP),
                fs::TryLockError::WouldBlock => {
                    return Err(self.unavailable("another fetch in this clone takes too long".to_owned(), false));
                }
                fs::TryLockError::Error(source) => return Err(broken(source)),
            }
        }
        Ok(file)
    }

    /// Where its refs are cached in this repository.
    pub fn space(&self) -> Space {
        let root = format!("refs/tenure/remotes/{}", self.name);
        Space { locks: format!("{root}/locks/"), guard: format!("{root}/guard") }
    }

    /// The cached name of one of its refs.
    pub fn cached(&self, reference: &str) -> String {
        let tail = reference.strip_prefix("refs/grite/").or_else(|| reference.strip_prefix("refs/tenure/"));
        format!("refs/tenure/remotes/{}/{}", self.name, tail.unwrap_or(reference))
    }

    /// Brings its locks and its guard here.
    pub fn fetch_locks(&self, repo: &Repo) -> Result<(), Error> {
        let space = self.space();
        // With a star also a guard that does not exist yet is fine.
        let star = |name: &str| name.strip_suffix('d').map(|stem| format!("{stem}*")).unwrap_or_default();
        let guard = format!("+{}:{}", star(GUARD), star(&space.guard));
        self.fetch(repo, &[format!("+{LOCKS}*:{}*", space.locks), guard])
    }

    /// Brings refs here; what is gone there goes here.
    pub fn fetch(&self, repo: &Repo, refspecs: &[String]) -> Result<(), Error> {
        let _alone = self.alone(repo)?;
        let quiet = ["fetch", "-q", "--no-tags", "--prune", "--no-write-fetch-head", "--no-auto-maintenance"];
        let mut args: Vec<&str> = quiet.to_vec();
        // A partial clone would ask for the content of every lock by itself, one after the other.
        args.push("--no-filter");
        args.extend(["--refmap=", "--no-recurse-submodules", "--no-show-forced-updates", &self.source]);
        args.extend(refspecs.iter().map(String::as_str));
        for attempt in 0.. {
            let output = self.talk(repo, &args, &[])?;
            if output.ok() {
                return Ok(());
            }
            if attempt < FETCH_ATTEMPTS && output.stderr.contains("cannot lock ref") {
                let old = crate::heal::heal_named_in(&output.stderr, &repo.common_dir)?;
                if old.is_none() {
                    std::thread::sleep(Duration::from_millis(REF_LOCK_WAIT_MS / u64::from(FETCH_ATTEMPTS)));
                }
                continue;
            }
            return Err(self.unavailable(output.complaint(), false));
        }
        Ok(())
    }

    /// Makes all changes or none, each only if its ref still is what was judged. An error: nothing was sent.
    pub fn push(&self, repo: &Repo, changes: &[Change]) -> Result<Pushed, Error> {
        let output = self.push_each(repo, changes, changes.len() > 1)?;
        let answers = parse_answers(&output.text());
        let all =
            changes.iter().all(|change| answers.get(change.reference.as_str()).is_some_and(|answer| answer.taken));
        if output.ok() && all {
            return Ok(Pushed::Done(advertised(&output.stderr)));
        }
        let refused = answers.values().find(|answer| !answer.taken);
        match refused {
            Some(answer) if !answer.lost_on_the_way() => {
                let said = remote_words(&output.stderr);
                let detail =
                    if said.is_empty() { answer.summary.clone() } else { format!("{}: {said}", answer.summary) };
                Ok(Pushed::Refused(detail))
            }
            _ if may_have_sent(&output) => Ok(Pushed::Unknown(output.complaint())),
            _ => Err(self.sent_nothing(&output)),
        }
    }

    /// Makes each change for itself; gives the refs that were changed.
    pub fn push_any(&self, repo: &Repo, changes: &[Change]) -> Result<Vec<String>, Error> {
        let output = self.push_each(repo, changes, false)?;
        let answers = parse_answers(&output.text());
        if answers.is_empty() && !output.ok() {
            return Err(match may_have_sent(&output) {
                true => self.unavailable(output.complaint(), true),
                false => self.sent_nothing(&output),
            });
        }
        Ok(answers.into_iter().filter(|(_, answer)| answer.taken).map(|(reference, _)| reference).collect())
    }

    fn push_each(&self, repo: &Repo, changes: &[Change], atomic: bool) -> Result<Output, Error> {
        let mut args: Vec<String> = ["-c", "push.pushOption=", "-c"].map(str::to_owned).to_vec();
        // A mirror would push everything it has, and takes no refs by name.
        args.push(format!("remote.{}.mirror=false", self.name));
        args.extend(["push", "--porcelain", "--no-verify", "--no-follow-tags"].map(str::to_owned));
        args.extend(["--recurse-submodules=no", "--no-signed"].map(str::to_owned));
        if atomic {
            args.push("--atomic".to_owned());
        }
        let hex = |oid: &Option<Oid>| oid.as_ref().map(|oid| oid.as_str().to_owned()).unwrap_or_default();
        args.extend(
            changes.iter().map(|change| format!("--force-with-lease={}:{}", change.reference, hex(&change.old))),
        );
        args.push(self.name.clone());
        args.extend(changes.iter().map(|change| format!("{}:{}", hex(&change.new), change.reference)));
        self.talk(repo, &args, &[("GIT_TRACE_PACKET", "2")])
    }

    fn sent_nothing(&self, output: &Output) -> Error {
        match output.stderr.contains("does not support --atomic") {
            true => {
                let why = "it cannot change several refs together (atomic pushes)".to_owned();
                Error::UnfitRemote { name: self.name.clone(), why }
            }
            false => self.unavailable(output.complaint(), false),
        }
    }

    /// This remote did not answer.
    pub fn unavailable(&self, detail: String, unknown: bool) -> Error {
        Error::RemoteUnavailable { name: self.name.clone(), detail, unknown }
    }
}

/// The remote's answer for one ref.
struct Answer {
    taken: bool,
    summary: String,
}

impl Answer {
    /// The connection broke after the change was sent.
    fn lost_on_the_way(&self) -> bool {
        self.summary.contains("[remote failure]")
    }
}

/// Whether a push came so far as to ask for a change: its trace says so, or is not all there.
fn may_have_sent(output: &Output) -> bool {
    let is_id = |word: &str| matches!(word.len(), 40 | 64) && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_asked = |line: &str| {
        let said = line.split_once(" packet: ").and_then(|(_, rest)| rest.split_once("> "));
        let mut words = said.map(|(_, said)| said.split(' ')).into_iter().flatten();
        words.next().is_some_and(is_id) && words.next().is_some_and(is_id)
    };
    !output.is_whole || output.stderr.lines().any(is_asked)
}

/// Reads `git push --porcelain`: flag, `from:to`, summary, separated by tabs.
fn parse_answers(stdout: &str) -> HashMap<String, Answer> {
    let answer = |line: &str| {
        let mut fields = line.splitn(3, '\t');
        let (flag, refs, summary) = (fields.next()?, fields.next()?, fields.next()?);
        let (_, to) = refs.split_once(':')?;
        Some((to.to_owned(), Answer { taken: flag != "!", summary: summary.trim().to_owned() }))
    };
    stdout.lines().filter_map(answer).collect()
}

/// What hooks and the remote's git said.
fn remote_words(stderr: &str) -> String {
    let words = stderr.lines().filter(|line| !line.contains(" packet: "));
    words.filter_map(|line| line.strip_prefix("remote: ")).map(str::trim).collect::<Vec<_>>().join("; ")
}

/// Reads the refs off the packet trace of a push: `… packet: push< <id> <ref>`, from our side of the connection.
fn advertised(stderr: &str) -> Advertised {
    let mut refs = HashMap::new();
    let mut begun = false;
    for line in stderr.lines() {
        let Some((who, said)) = line.split_once(" packet: ").and_then(|(_, rest)| rest.split_once("< ")) else {
            continue;
        };
        if who.trim() == "receive-pack" {
            continue;
        }
        // Smart HTTP opens with a service line and a flush of its own; the list ends with the flush behind it.
        if said == "0000" && begun {
            return Some(refs);
        }
        let Some((oid, name)) = said.split_once(' ') else { continue };
        if matches!(oid.len(), 40 | 64) && oid.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            begun = true;
            let name = name.split("\\0").next().unwrap_or(name);
            refs.extend(Oid::parse(oid).map(|oid| (name.to_owned(), oid)));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answers_of_a_push_are_read_per_ref() {
        let text = "To /r.git\n*\tabc:refs/a\t[new reference]\n!\tdef:refs/b\t[rejected] (stale info)\nDone\n";
        let answers = parse_answers(text);
        assert!(answers["refs/a"].taken && !answers["refs/b"].taken);
        assert_eq!(answers["refs/b"].summary, "[rejected] (stale info)");
    }

    #[test]
    fn advertised_refs_are_read_from_our_side_of_the_trace_and_only_when_complete() {
        let id = "8b15da5d0a47610dcc01eaa082c6d33e470177ec";
        let other = "1b15da5d0a47610dcc01eaa082c6d33e470177ec";
        let head = format!("20:50:55.2 pkt-line.c:86   packet:  push< {id} refs/heads/m\\0report-status atomic\n");
        let rest = format!(
            "20:50:55.2 pkt-line.c:86 packet: push< {id} refs/x\n20:50 p.c packet: receive-pack< {other} refs/x\n"
        );
        assert!(advertised(&format!("{head}{rest}")).is_none());
        let full =
            format!("{head}{rest}20:50:55.2 pkt-line.c:86  packet:  push< 0000\n1 p packet: push< {other} refs/late\n");
        let refs = advertised(&full).expect("complete");
        assert_eq!(refs.len(), 2);
        assert_eq!(refs["refs/heads/m"].as_str(), id);
        assert_eq!(refs["refs/x"].as_str(), id);
        assert!(advertised("fatal: nothing\n").is_none());
    }
}
