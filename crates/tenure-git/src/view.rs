//! Owns reading: the locks and the guard of one ref space, with payloads, in at most two git processes.
//! A ref that cannot be read harms only itself.

use std::collections::{BTreeMap, HashMap};

use crate::error::Error;
use crate::git::Git;
use crate::limits::LOCK_JSON_BYTES_MAX;
use crate::name::{LOCKS, LockName};
use crate::objects::Oid;
use crate::plain;
use crate::record::{FILE, Payload};
use crate::repo::Repo;

/// The guard, outside of everything that other programs synchronise.
pub const GUARD: &str = "refs/tenure/guard";

/// Where a set of locks and their guard stand in this repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Space {
    /// The prefix of the lock refs, with its slash.
    pub locks: String,
    /// The guard's ref.
    pub guard: String,
}

impl Space {
    /// This repository's own.
    pub fn local() -> Space {
        Space { locks: LOCKS.to_owned(), guard: GUARD.to_owned() }
    }

    /// The ref of one lock here.
    pub(crate) fn lock(&self, name: &LockName) -> String {
        let reference = name.ref_name();
        format!("{}{}", self.locks, reference.strip_prefix(LOCKS).unwrap_or(&reference))
    }

    /// Whether a ref is one of the locks here that are to be read.
    pub(crate) fn has(&self, what: What<'_>, reference: &str) -> bool {
        match what {
            What::All => reference.starts_with(&self.locks),
            What::One(name) => reference == self.lock(name),
        }
    }
}

/// Which locks are read.
#[derive(Debug, Clone, Copy)]
pub enum What<'a> {
    /// All: a grant has to know what it could overlap.
    All,
    /// One: who keeps or ends a lock needs no other.
    One(&'a LockName),
}

/// One lock ref.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The ref under its common name, whatever space it was read from.
    pub reference: String,
    /// The commit it points to.
    pub oid: Oid,
    /// What it says, or why it cannot be read.
    pub payload: Result<Payload, String>,
    /// The fencing number its commit carries.
    pub token: Option<u64>,
}

impl Entry {
    /// The resource it names; none if it cannot be read.
    pub fn name(&self) -> Option<LockName> {
        self.payload.as_ref().ok().map(|payload| LockName::found(&payload.resource))
    }
}

/// The guard as read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guard {
    /// The commit it points to.
    pub oid: Oid,
    /// The last token granted.
    pub generation: u64,
}

/// All locks of one space at one moment.
#[derive(Debug, Clone, Default)]
pub struct View {
    /// The locks, by ref name.
    pub locks: Vec<Entry>,
    /// The guard; none before the first grant.
    pub guard: Option<Guard>,
}

impl View {
    /// The lock on this ref.
    pub fn at(&self, reference: &str) -> Option<&Entry> {
        self.locks.iter().find(|entry| entry.reference == reference)
    }

    /// The last token granted; 0 before the first. A lock can be ahead of the guard: its grant was killed in between.
    pub fn generation(&self) -> u64 {
        let of_locks = self.locks.iter().filter_map(|entry| entry.token).max().unwrap_or_default();
        self.guard.as_ref().map_or(0, |guard| guard.generation).max(of_locks)
    }
}

/// What a lock's commit says.
#[derive(Debug, Clone)]
pub(crate) struct State {
    /// Its fencing number, if it carries one.
    pub(crate) token: Option<u64>,
    /// Its `lock.json`, or why it cannot be read.
    pub(crate) payload: Result<Payload, String>,
}

/// With more locks one git process is faster than many files.
const LOOSE_MAX: usize = 256;

/// Reads several spaces at once; one view for each.
pub fn read(repo: &Repo, spaces: &[&Space], what: What<'_>) -> Result<Vec<View>, Error> {
    let refs = match plain::refs(repo, spaces, what) {
        Some(refs) => refs,
        None => refs_through_git(&repo.git, spaces, what)?,
    };
    let states = read_states(repo, &refs)?;
    Ok(spaces.iter().map(|space| view_of(space, &refs, &states)).collect())
}

fn view_of(space: &Space, refs: &BTreeMap<String, Oid>, states: &HashMap<Oid, State>) -> View {
    let below = refs.range(space.locks.clone()..).take_while(|(name, _)| name.starts_with(&space.locks));
    let entry = |(name, oid): (&String, &Oid)| {
        let hash = name.strip_prefix(&space.locks).unwrap_or_default();
        let (token, payload) = match states.get(oid) {
            Some(state) => (state.token, state.payload.clone()),
            None => (None, Err("not read".to_owned())),
        };
        Entry { reference: format!("{LOCKS}{hash}"), oid: oid.clone(), payload, token }
    };
    let generation = |oid: &Oid| states.get(oid).and_then(|state| state.token).unwrap_or_default();
    let guard = refs.get(&space.guard).map(|oid| Guard { oid: oid.clone(), generation: generation(oid) });
    View { locks: below.map(entry).collect(), guard }
}

/// Guards before locks, for the reason given in [`plain::refs`].
fn refs_through_git(git: &Git, spaces: &[&Space], what: What<'_>) -> Result<BTreeMap<String, Oid>, Error> {
    let guards: Vec<String> = spaces.iter().map(|space| space.guard.clone()).collect();
    let pattern = |space: &&Space| match what {
        What::All => space.locks.clone(),
        What::One(name) => space.lock(name),
    };
    let locks: Vec<String> = spaces.iter().map(pattern).collect();
    let mut refs = BTreeMap::new();
    for patterns in [guards, locks] {
        // Names and ids alone: a ref to an object that is not there would stop a listing that reads it.
        let listing = ["for-each-ref", "--format=%(objectname) %(refname)"];
        let args: Vec<&str> = listing.into_iter().chain(patterns.iter().map(String::as_str)).collect();
        let listed = git.done(&args, b"")?.text();
        let parse = |line: &str| line.split_once(' ').and_then(|(oid, name)| Some((name.to_owned(), Oid::parse(oid)?)));
        refs.extend(listed.lines().filter_map(parse));
    }
    Ok(refs)
}

/// What the commits say; each stands for itself.
fn read_states(repo: &Repo, refs: &BTreeMap<String, Oid>) -> Result<HashMap<Oid, State>, Error> {
    let mut states = HashMap::with_capacity(refs.len());
    if refs.len() <= LOOSE_MAX {
        let mut loose = plain::Loose::below(&repo.objects.dir);
        states.extend(refs.values().filter_map(|oid| Some((oid.clone(), loose.state(oid)?))));
    }
    let mut missing: Vec<&Oid> = refs.values().filter(|oid| !states.contains_key(*oid)).collect();
    missing.sort_unstable();
    missing.dedup();
    let chunk = missing.len().div_ceil(READERS).max(CHUNK_MIN);
    let read = std::thread::scope(|scope| {
        let readers: Vec<_> =
            missing.chunks(chunk).map(|part| scope.spawn(|| states_through_git(&repo.git, part))).collect();
        readers.into_iter().map(|reader| reader.join()).collect::<Vec<_>>()
    });
    for part in read {
        let part = part.map_err(|_| Error::Git { command: "cat-file".into(), detail: "its reader broke".into() })?;
        states.extend(part?);
    }
    Ok(states)
}

/// How many git processes read many locks, and from how many on a second one pays.
const READERS: usize = 2;
const CHUNK_MIN: usize = 1_000;

fn states_through_git(git: &Git, commits: &[&Oid]) -> Result<Vec<(Oid, State)>, Error> {
    let asked = commits.iter().flat_map(|oid| [format!("{oid}\n"), format!("{oid}:{FILE}\n")]).collect();
    let mut answers = Answers::to(git, asked)?;
    let mut state = |oid: &&Oid| {
        let commit = answers.next("commit", LOCK_JSON_BYTES_MAX)?;
        let token = commit.ok().and_then(plain::head_of).and_then(|(_, token)| token);
        let payload = answers.next("blob", LOCK_JSON_BYTES_MAX)?.and_then(Payload::parse);
        Ok(((*oid).clone(), State { token, payload }))
    };
    commits.iter().map(&mut state).collect()
}

/// Reads the `lock.json` of commits; each answer stands for itself.
pub fn read_payloads(git: &Git, commits: &[&Oid]) -> Result<HashMap<Oid, Result<Payload, String>>, Error> {
    let files = read_files(git, commits, FILE, LOCK_JSON_BYTES_MAX)?;
    let read = |content: Result<Vec<u8>, String>| content.and_then(|json| Payload::parse(&json));
    Ok(files.into_iter().map(|(oid, content)| (oid, read(content))).collect())
}

/// What a file holds in each of some commits, or why it cannot be read there.
pub type Files = HashMap<Oid, Result<Vec<u8>, String>>;

/// Reads one file of many commits in one process.
pub fn read_files(git: &Git, commits: &[&Oid], file: &str, bytes_max: usize) -> Result<Files, Error> {
    let mut unique: Vec<&Oid> = commits.to_vec();
    unique.sort_unstable();
    unique.dedup();
    if unique.is_empty() {
        return Ok(HashMap::new());
    }
    let asked = unique.iter().map(|oid| format!("{oid}:{file}\n")).collect();
    let mut answers = Answers::to(git, asked)?;
    let mut files = HashMap::with_capacity(unique.len());
    for oid in unique {
        files.insert(oid.clone(), answers.next("blob", bytes_max)?.map(<[u8]>::to_vec));
    }
    Ok(files)
}

/// What `cat-file --batch` says, one answer after the other: a line, and the content if there is one.
struct Answers {
    said: Vec<u8>,
    at: usize,
}

impl Answers {
    /// Asks in one process for everything, one object a line.
    fn to(git: &Git, asked: String) -> Result<Answers, Error> {
        let said = match asked.is_empty() {
            true => Vec::new(),
            false => git.bulk(&["cat-file", "--batch", "--buffer"], asked.as_bytes())?,
        };
        Ok(Answers { said, at: 0 })
    }

    /// The next object's content, if it is there, of this kind and not larger.
    fn next(&mut self, wanted: &str, bytes_max: usize) -> Result<Result<&[u8], String>, Error> {
        let broken = || Error::Git { command: "cat-file".into(), detail: "its answer ended early".into() };
        let rest = self.said.get(self.at..).unwrap_or_default();
        let end = rest.iter().position(|byte| *byte == b'\n').ok_or_else(broken)?;
        let (line, rest) = rest.split_at(end);
        self.at += end + 1;
        let line = String::from_utf8_lossy(line);
        let mut fields = line.split(' ');
        let (kind, size) = (fields.nth(1), fields.next().and_then(|size| size.parse::<usize>().ok()));
        let (Some(kind), Some(size)) = (kind, size) else {
            return Ok(Err("it has no such file".to_owned()));
        };
        let content = rest.get(1..=size).ok_or_else(broken)?;
        self.at += size + 1;
        if kind != wanted {
            return Ok(Err(format!("its file is a {kind}")));
        }
        if size > bytes_max {
            return Ok(Err(format!("its file has {size} bytes, more than {bytes_max}")));
        }
        Ok(Ok(content))
    }
}
