//! Owns reading locks without a git process where the repository is of the plainest shape: refs as files, few of them,
//! their objects loose. One lock command then costs two or three processes less. Whatever is not plain, git reads.
//!
//! Nothing is decided here: a change still names what was read, and git compares it.

use std::collections::HashMap;
use std::fs;
use std::io::Read;
use std::path::Path;

use crate::limits::LOCK_JSON_BYTES_MAX;
use crate::objects::Oid;
use crate::record::{FILE, Payload, TOKEN};
use crate::repo::Repo;
use crate::view::{RawRef, Space};

/// With more refs one git process is faster than many files.
const REFS_MAX: usize = 256;
/// No object of a lock is larger.
const OBJECT_BYTES_MAX: u64 = LOCK_JSON_BYTES_MAX as u64 + 1_024;

/// What [`crate::view::read`] needs: the refs with their tokens, and the payloads of their commits.
pub(crate) type Plain = (Vec<RawRef>, HashMap<Oid, Result<Payload, String>>);

/// Reads the spaces; none: not plain, ask git.
pub(crate) fn read(repo: &Repo, spaces: &[&Space]) -> Option<Plain> {
    if !matches!(repo.setting("extensions.refstorage"), None | Some("files")) {
        return None;
    }
    let mut found: HashMap<String, Oid> = HashMap::new();
    // Loose before packed: a ref that is being packed is then seen at least once.
    for space in spaces {
        loose_refs(&repo.common_dir, &space.locks, &mut found)?;
        if let Some(oid) = loose_ref(&repo.common_dir.join(&space.guard))? {
            found.insert(space.guard.clone(), oid);
        }
    }
    packed_refs(&repo.common_dir.join("packed-refs"), spaces, &mut found)?;
    if found.len() > REFS_MAX {
        return None;
    }
    let mut payloads = HashMap::new();
    let mut refs = Vec::with_capacity(found.len());
    for (name, oid) in found {
        let commit = Commit::read(&repo.objects.dir, &oid)?;
        if !payloads.contains_key(&oid) && spaces.iter().any(|space| name.starts_with(&space.locks)) {
            payloads.insert(oid.clone(), commit.payload(&repo.objects.dir)?);
        }
        refs.push(RawRef { name, oid, token: commit.token });
    }
    refs.sort_by(|a, b| a.name.cmp(&b.name));
    Some((refs, payloads))
}

/// The ref in a file; `Some(None)`: there is none.
fn loose_ref(file: &Path) -> Option<Option<Oid>> {
    match fs::read_to_string(file) {
        Ok(text) => Oid::parse(text.trim_end()).map(Some),
        Err(none) if none.kind() == std::io::ErrorKind::NotFound => Some(None),
        Err(_) => None,
    }
}

fn loose_refs(common_dir: &Path, prefix: &str, found: &mut HashMap<String, Oid>) -> Option<()> {
    let folder = match fs::read_dir(common_dir.join(prefix)) {
        Ok(folder) => folder,
        Err(none) if none.kind() == std::io::ErrorKind::NotFound => return Some(()),
        Err(_) => return None,
    };
    for entry in folder {
        let entry = entry.ok()?;
        let name = entry.file_name().into_string().ok()?;
        if name.ends_with(".lock") {
            continue;
        }
        // Gone since the folder was read: then its place in the packed file counts.
        if let Some(oid) = loose_ref(&entry.path())? {
            found.insert(format!("{prefix}{name}"), oid);
        }
    }
    Some(())
}

fn packed_refs(file: &Path, spaces: &[&Space], found: &mut HashMap<String, Oid>) -> Option<()> {
    let text = match fs::read_to_string(file) {
        Ok(text) => text,
        Err(none) if none.kind() == std::io::ErrorKind::NotFound => return Some(()),
        Err(_) => return None,
    };
    let wanted = |name: &str| spaces.iter().any(|space| name == space.guard || name.starts_with(&space.locks));
    for line in text.lines().filter(|line| !line.starts_with(['#', '^'])) {
        let (oid, name) = line.split_once(' ')?;
        if wanted(name) && !found.contains_key(name) {
            found.insert(name.to_owned(), Oid::parse(oid)?);
        }
    }
    Some(())
}

/// The parts of a commit that matter here.
struct Commit {
    tree: Oid,
    token: Option<u64>,
}

impl Commit {
    fn read(objects: &Path, oid: &Oid) -> Option<Commit> {
        let text = String::from_utf8(object(objects, oid, "commit")?).ok()?;
        let (head, message) = text.split_once("\n\n")?;
        let tree = Oid::parse(head.lines().next()?.strip_prefix("tree ")?)?;
        // As git finds trailers: in the last paragraph, which is not the first.
        let paragraph = message.trim_end().rsplit_once("\n\n").map(|(_, last)| last);
        let trailer = paragraph.and_then(|last| last.lines().last()?.strip_prefix(TOKEN)?.strip_prefix(": "));
        Some(Commit { tree, token: trailer.and_then(|token| token.parse().ok()) })
    }

    /// Its `lock.json`; none: ask git.
    fn payload(&self, objects: &Path) -> Option<Result<Payload, String>> {
        let tree = object(objects, &self.tree, "tree")?;
        let blob = tree.strip_prefix(format!("100644 {FILE}\0").as_bytes())?;
        let hex: String = blob.iter().map(|byte| format!("{byte:02x}")).collect();
        // A tree with more entries has a longer tail than one id.
        Some(Payload::parse(&object(objects, &Oid::parse(&hex)?, "blob")?))
    }
}

/// The content of a loose object of the wanted kind.
fn object(objects: &Path, oid: &Oid, kind: &str) -> Option<Vec<u8>> {
    let (folder, name) = oid.as_str().split_at(2);
    let file = fs::File::open(objects.join(folder).join(name)).ok()?;
    let mut whole = Vec::new();
    flate2::read::ZlibDecoder::new(file).take(OBJECT_BYTES_MAX).read_to_end(&mut whole).ok()?;
    let end = whole.iter().position(|byte| *byte == 0)?;
    let size: usize = std::str::from_utf8(whole.get(..end)?).ok()?.strip_prefix(kind)?.trim_start().parse().ok()?;
    let content = whole.split_off(end + 1);
    (content.len() == size).then_some(content)
}
