//! Owns reading locks without a git process where the repository is of the plainest shape: refs as files, objects
//! loose. One lock command then costs two or three processes less. Whatever is not plain, git reads.
//!
//! Nothing is decided here: a change still names what was read, and git compares it.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::Path;

use crate::limits::LOCK_JSON_BYTES_MAX;
use crate::objects::Oid;
use crate::record::{FILE, Payload, TOKEN};
use crate::repo::Repo;
use crate::view::{Space, State, What};

/// No object of a lock is larger.
const OBJECT_BYTES_MAX: usize = LOCK_JSON_BYTES_MAX + 1_024;

/// The refs of the spaces with what they point to, by name; none: not plain, ask git.
///
/// Guards are read before locks: a grant puts its lock into place first, so who sees its guard sees its lock too, and
/// what is judged on an older guard is refused (G3).
pub(crate) fn refs(repo: &Repo, spaces: &[&Space], what: What<'_>) -> Option<BTreeMap<String, Oid>> {
    if !matches!(repo.setting("extensions.refstorage"), None | Some("files")) {
        return None;
    }
    let mut found = BTreeMap::new();
    for space in spaces {
        let guard = match loose_ref(&repo.common_dir.join(&space.guard))? {
            Some(oid) => Some(oid),
            None => packed_ref(&repo.common_dir, &space.guard)?,
        };
        found.extend(guard.map(|oid| (space.guard.clone(), oid)));
    }
    // Loose before packed: a ref that is being packed is then seen at least once.
    for space in spaces {
        match what {
            What::All => loose_refs(&repo.common_dir, &space.locks, &mut found)?,
            What::One(name) => {
                let name = space.lock(name);
                found.extend(loose_ref(&repo.common_dir.join(&name))?.map(|oid| (name, oid)));
            }
        }
    }
    let is_lock = |name: &str| spaces.iter().any(|space| space.has(what, name));
    packed_refs(&repo.common_dir, is_lock, |name, oid| {
        found.entry(name.to_owned()).or_insert(oid);
    })?;
    Some(found)
}

/// The ref in a file; `Some(None)`: there is none.
pub(crate) fn loose_ref(file: &Path) -> Option<Option<Oid>> {
    let mut file = match fs::File::open(file) {
        Ok(file) => file,
        Err(none) if none.kind() == std::io::ErrorKind::NotFound => return Some(None),
        Err(_) => return None,
    };
    // An id and its line end; thousands of these files are read for one listing.
    let mut bytes = [0; 66];
    let length = file.read(&mut bytes).ok()?;
    Oid::parse(std::str::from_utf8(bytes.get(..length)?).ok()?.trim_end()).map(Some)
}

fn loose_refs(common_dir: &Path, prefix: &str, found: &mut BTreeMap<String, Oid>) -> Option<()> {
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

/// The packed value of a ref; `Some(None)`: there is none, also not of a ref above or below it.
pub(crate) fn packed_ref(common_dir: &Path, reference: &str) -> Option<Option<Oid>> {
    let is_above = |name: &str| reference.strip_prefix(name).is_some_and(|rest| rest.starts_with('/'));
    let is_below = |name: &str| name.strip_prefix(reference).is_some_and(|rest| rest.starts_with('/'));
    let (mut found, mut in_the_way) = (None, false);
    let wanted = |name: &str| name == reference || is_above(name) || is_below(name);
    packed_refs(common_dir, wanted, |name, oid| match name == reference {
        true => found = Some(oid),
        false => in_the_way = true,
    })?;
    (!in_the_way).then_some(found)
}

fn packed_refs(common_dir: &Path, wanted: impl Fn(&str) -> bool, mut take: impl FnMut(&str, Oid)) -> Option<()> {
    let text = match fs::read_to_string(common_dir.join("packed-refs")) {
        Ok(text) => text,
        Err(none) if none.kind() == std::io::ErrorKind::NotFound => return Some(()),
        Err(_) => return None,
    };
    for line in text.lines().filter(|line| !line.starts_with(['#', '^'])) {
        let (oid, name) = line.split_once(' ')?;
        if wanted(name) {
            take(name, Oid::parse(oid)?);
        }
    }
    Some(())
}

/// Reads loose objects, one after the other.
pub(crate) struct Loose<'a> {
    objects: &'a Path,
    inflate: flate2::Decompress,
}

impl<'a> Loose<'a> {
    /// Below this `objects` directory.
    pub(crate) fn below(objects: &'a Path) -> Loose<'a> {
        Loose { objects, inflate: flate2::Decompress::new(true) }
    }

    /// The state of a lock; none: ask git.
    pub(crate) fn state(&mut self, commit: &Oid) -> Option<State> {
        let (tree, token) = head_of(&self.object(commit, "commit")?)?;
        let tree = self.object(&tree, "tree")?;
        let blob = tree.strip_prefix(format!("100644 {FILE}\0").as_bytes())?;
        let hex: String = blob.iter().map(|byte| format!("{byte:02x}")).collect();
        // A tree with more entries has a longer tail than one id.
        Some(State { token, payload: Payload::parse(&self.object(&Oid::parse(&hex)?, "blob")?) })
    }

    /// The content of an object of the wanted kind.
    fn object(&mut self, oid: &Oid, kind: &str) -> Option<Vec<u8>> {
        let (folder, name) = oid.as_str().split_at(2);
        let packed = fs::read(self.objects.join(folder).join(name)).ok()?;
        let mut whole = Vec::with_capacity(OBJECT_BYTES_MAX.min(packed.len() * 4 + 1_024));
        self.inflate.reset(true);
        // What does not fit in one go is no lock of this program: git reads it.
        let end = self.inflate.decompress_vec(&packed, &mut whole, flate2::FlushDecompress::Finish).ok()?;
        let end = (end == flate2::Status::StreamEnd).then(|| whole.iter().position(|byte| *byte == 0))??;
        let size: usize = std::str::from_utf8(whole.get(..end)?).ok()?.strip_prefix(kind)?.trim_start().parse().ok()?;
        let content = whole.split_off(end + 1);
        (content.len() == size).then_some(content)
    }
}

/// The tree and the token of a commit.
pub(crate) fn head_of(commit: &[u8]) -> Option<(Oid, Option<u64>)> {
    let text = String::from_utf8_lossy(commit);
    let (head, message) = text.split_once("\n\n")?;
    let tree = Oid::parse(head.lines().next()?.strip_prefix("tree ")?)?;
    // As git finds trailers: in the last paragraph, which is not the first. Several are somebody's game with a
    // resource's name; the last one is ours.
    let paragraph = message.trim_end().rsplit_once("\n\n").map(|(_, last)| last);
    let trailer = paragraph.and_then(|last| last.lines().last()?.strip_prefix(TOKEN)?.strip_prefix(": "));
    Some((tree, trailer.and_then(|token| token.parse().ok())))
}
