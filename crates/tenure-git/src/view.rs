//! Owns reading: the locks and the guard of one ref space, with payloads, in at most two git processes.
//! A ref that cannot be read harms only itself.

use std::collections::HashMap;

use crate::error::Error;
use crate::git::Git;
use crate::limits::LOCK_JSON_BYTES_MAX;
use crate::name::{LOCKS, LockName};
use crate::objects::Oid;
use crate::plain::{self, Plain};
use crate::record::{FILE, Payload, TOKEN};
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

    /// The last token granted; 0 before the first.
    pub fn generation(&self) -> u64 {
        self.guard.as_ref().map_or(0, |guard| guard.generation)
    }
}

/// A ref with the token trailer of its commit.
pub(crate) struct RawRef {
    pub(crate) name: String,
    pub(crate) oid: Oid,
    pub(crate) token: Option<u64>,
}

/// Reads several spaces at once; one view for each.
pub fn read(repo: &Repo, spaces: &[&Space]) -> Result<Vec<View>, Error> {
    let (refs, payloads) = match plain::read(repo, spaces) {
        Some(read) => read,
        None => read_through_git(&repo.git, spaces)?,
    };
    Ok(spaces.iter().map(|space| view_of(space, &refs, &payloads)).collect())
}

fn read_through_git(git: &Git, spaces: &[&Space]) -> Result<Plain, Error> {
    let patterns: Vec<&str> = spaces.iter().flat_map(|space| [space.locks.as_str(), space.guard.as_str()]).collect();
    let refs = read_refs(git, &patterns)?;
    let is_lock = |raw: &&RawRef| spaces.iter().any(|space| raw.name.starts_with(&space.locks));
    let wanted: Vec<&Oid> = refs.iter().filter(is_lock).map(|raw| &raw.oid).collect();
    let payloads = read_payloads(git, &wanted)?;
    Ok((refs, payloads))
}

fn view_of(space: &Space, refs: &[RawRef], payloads: &HashMap<Oid, Result<Payload, String>>) -> View {
    let entry = |raw: &RawRef| {
        let hash = raw.name.strip_prefix(&space.locks)?;
        let payload = payloads.get(&raw.oid).cloned().unwrap_or_else(|| Err("not read".to_owned()));
        Some(Entry { reference: format!("{LOCKS}{hash}"), oid: raw.oid.clone(), payload, token: raw.token })
    };
    let guard = refs.iter().find(|raw| raw.name == space.guard);
    View {
        locks: refs.iter().filter_map(entry).collect(),
        guard: guard.map(|raw| Guard { oid: raw.oid.clone(), generation: raw.token.unwrap_or_default() }),
    }
}

fn read_refs(git: &Git, patterns: &[&str]) -> Result<Vec<RawRef>, Error> {
    let trailer =
        format!("--format=%(objectname) %(refname) %(contents:trailers:key={TOKEN},valueonly,separator=%x2C)");
    let with_token: Vec<&str> = ["for-each-ref", &trailer].into_iter().chain(patterns.iter().copied()).collect();
    let listed = git.run(&with_token, b"")?;
    if listed.ok() {
        return Ok(parse_refs(&listed.text()));
    }
    // A ref to an object that is not there stops the listing above; names and ids alone can always be listed.
    let plain = ["for-each-ref", "--format=%(objectname) %(refname) "];
    let plain: Vec<&str> = plain.into_iter().chain(patterns.iter().copied()).collect();
    Ok(parse_refs(&git.done(&plain, b"")?.text()))
}

fn parse_refs(listed: &str) -> Vec<RawRef> {
    let parse = |line: &str| {
        let mut fields = line.splitn(3, ' ');
        let oid = Oid::parse(fields.next()?)?;
        let name = fields.next()?.to_owned();
        // Several trailers are somebody's game with a resource's name; the last one is ours.
        let token = fields.next().and_then(|text| text.rsplit(',').next()).and_then(|text| text.parse().ok());
        Some(RawRef { name, oid, token })
    };
    listed.lines().filter_map(parse).collect()
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
    let asked: String = unique.iter().map(|oid| format!("{oid}:{file}\n")).collect();
    let answered = git.done(&["cat-file", "--batch"], asked.as_bytes())?;
    let mut rest = answered.stdout.as_slice();
    let mut files = HashMap::with_capacity(unique.len());
    for oid in unique {
        files.insert(oid.clone(), next_file(&mut rest, bytes_max)?);
    }
    Ok(files)
}

/// Takes one answer of `cat-file --batch`: a line, and the content if there is one.
fn next_file(rest: &mut &[u8], bytes_max: usize) -> Result<Result<Vec<u8>, String>, Error> {
    let broken = || Error::Git { command: "cat-file".into(), detail: "its answer ended early".into() };
    let end = rest.iter().position(|byte| *byte == b'\n').ok_or_else(broken)?;
    let (line, tail) = rest.split_at(end);
    let line = String::from_utf8_lossy(line).into_owned();
    *rest = tail.get(1..).unwrap_or_default();
    let mut fields = line.split(' ');
    let (kind, size) = (fields.nth(1), fields.next().and_then(|size| size.parse::<usize>().ok()));
    let (Some(kind), Some(size)) = (kind, size) else {
        return Ok(Err("it has no such file".to_owned()));
    };
    let (content, tail) = rest.split_at_checked(size).ok_or_else(broken)?;
    *rest = tail.get(1..).unwrap_or_default();
    if kind != "blob" {
        return Ok(Err(format!("its file is a {kind}")));
    }
    if size > bytes_max {
        return Ok(Err(format!("its file has {size} bytes, more than {bytes_max}")));
    }
    Ok(Ok(content.to_vec()))
}
