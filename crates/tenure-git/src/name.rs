//! Owns the names that this door locks: the normal form that is hashed into a ref name, and what overlaps what.
//!
//! A name with a kind follows the ledger's rules (R1, R2). A name without a kind is opaque here: it is locked as
//! typed and overlaps only itself. Names found in refs that other programs wrote are read leniently: what they
//! spell differently must still be seen to overlap.

use sha2::{Digest, Sha256};
use tenure_core::Resource;
use tenure_core::resource::ResourceError;

use crate::error::Error;

/// Where locks live, also for other programs.
pub const LOCKS: &str = "refs/grite/locks/";

/// What is locked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockName {
    text: String,
    /// None: opaque.
    place: Option<Resource>,
}

impl LockName {
    /// Reads a name as a caller typed it. `path:src/`, `path:./src` and `path:src//a` become what they mean.
    pub fn parse(typed: &str) -> Result<LockName, Error> {
        LockName::strict(typed).map_err(|why| Error::BadName { text: typed.chars().take(120).collect(), why })
    }

    fn strict(typed: &str) -> Result<LockName, ResourceError> {
        if !typed.contains(':') {
            // The checks and the normal form are those of any name; the kind is only borrowed for them.
            let checked = Resource::parse(&format!("name:{typed}"))?.to_string();
            let text = checked.strip_prefix("name:").unwrap_or(&checked).to_owned();
            return Ok(LockName { text, place: None });
        }
        let place = match typed.strip_prefix("path:").filter(|path| !path.is_empty() && !path.starts_with('/')) {
            Some(path) => Resource::parse(&tidy(path))?,
            None => Resource::parse(typed)?,
        };
        // Both spellings cover the repository, but each keeps the ref that other programs use for it.
        let text = if typed == "repo:global" { typed.to_owned() } else { place.to_string() };
        Ok(LockName { text, place: Some(place) })
    }

    /// Reads a name that another program wrote: never refused, and a path is what it resolves to.
    pub fn found(text: &str) -> LockName {
        let place = match LockName::strict(text) {
            Ok(name) => name.place,
            Err(_) => text.strip_prefix("path:").and_then(resolve),
        };
        LockName { text: text.to_owned(), place }
    }

    /// The normal form.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The ref that holds the lock.
    pub fn ref_name(&self) -> String {
        format!("{LOCKS}{}", hash16(&self.text))
    }

    /// Whether holding one is at odds with holding the other (R2).
    pub fn overlaps(&self, other: &LockName) -> bool {
        match (&self.place, &other.place) {
            (Some(this), Some(that)) => this.overlaps(that),
            _ => self.text == other.text,
        }
    }

    /// Whether holding this one is enough to work on `other`.
    pub fn covers(&self, other: &LockName) -> bool {
        match (&self.place, &other.place) {
            (Some(this), Some(that)) => this.covers(that),
            _ => self.text == other.text,
        }
    }

    /// The part before the colon; none for an opaque name.
    pub fn kind(&self) -> Option<&str> {
        self.place.as_ref().and_then(|_| self.text.split(':').next())
    }

    /// The part behind the colon; all of an opaque name.
    pub fn name(&self) -> &str {
        match &self.place {
            Some(_) => self.text.split_once(':').map_or("", |(_, name)| name),
            None => &self.text,
        }
    }
}

impl std::fmt::Display for LockName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

/// The last part of a lock's ref name.
fn hash16(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// Leaves out empty and `.` segments; nothing left means the whole tree.
fn tidy(path: &str) -> String {
    let kept: Vec<&str> = path.split('/').filter(|segment| !matches!(*segment, "" | ".")).collect();
    if kept.is_empty() { "path:**".to_owned() } else { format!("path:{}", kept.join("/")) }
}

/// What a path that breaks R1 means; everything, when it leaves the tree.
fn resolve(path: &str) -> Option<Resource> {
    let mut kept: Vec<&str> = Vec::new();
    for segment in path.trim().split('/') {
        match segment {
            "" | "." => {}
            ".." => match kept.pop() {
                Some(_) => {}
                None => return Resource::parse("path:**").ok(),
            },
            other => kept.push(other),
        }
    }
    Resource::parse(&tidy(&kept.join("/"))).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn n(text: &str) -> LockName {
        LockName::parse(text).unwrap_or_else(|why| panic!("{text}: {why}"))
    }

    #[test]
    fn a_ref_is_named_by_the_first_eight_bytes_of_the_names_sha256() {
        for (text, hash) in [
            ("repo:global", "4fa20104a646a633"),
            ("repo:deploy", "41204ff05d5ee206"),
            ("issue:8057324b", "a02e999268bbd49c"),
            ("path:src/api.rs", "38c1af13aff6caab"),
            ("path:src", "85d79420afb69505"),
            ("path:src/auth.rs", "17615300971d8ce1"),
            ("path:config/settings.json", "b1e58ea378ffe801"),
            ("repo:migration", "25b1498df4321e68"),
            ("a:1", "2b2c40a6706d9e5f"),
        ] {
            assert_eq!(n(text).ref_name(), format!("{LOCKS}{hash}"), "{text}");
        }
    }

    #[test]
    fn one_path_has_one_lock_however_it_is_spelled() {
        for spelled in ["path:src", "path:src/", "path:./src", "path:src//", "path:src/.", "path:././src"] {
            assert_eq!(n(spelled), n("path:src"), "{spelled}");
        }
        assert_eq!(n("path:src//a.rs"), n("path:src/a.rs"));
        assert_eq!(n("path:."), n("path:**"));
        assert_eq!(n("path:caf\u{e9}").ref_name(), n("path:cafe\u{301}").ref_name());
        assert_eq!(n("caf\u{e9}").ref_name(), n("cafe\u{301}").ref_name());
    }

    #[test]
    fn both_names_of_the_whole_repository_overlap_but_keep_their_refs() {
        assert!(n("repo:global").overlaps(&n("repo:*")) && n("repo:global").overlaps(&n("path:x")));
        assert_ne!(n("repo:global").ref_name(), n("repo:*").ref_name());
        assert!(!n("repo:deploy").overlaps(&n("path:x")));
    }

    #[test]
    fn a_name_without_a_kind_is_opaque_and_overlaps_only_itself() {
        assert_eq!(n("...").as_str(), "...");
        assert!(n("src/wal.rs").overlaps(&n("src/wal.rs")));
        assert!(!n("src/wal.rs").overlaps(&n("path:src")) && !n("src").overlaps(&n("src/wal.rs")));
    }

    #[test]
    fn what_cannot_be_a_name_is_refused() {
        for bad in ["", "path:", "issue:", ":x", "Path:x", "path:a ", "path:../a", "path:/a", "path:/", "a\nb", " a"] {
            assert!(LockName::parse(bad).is_err(), "{bad:?}");
        }
        assert!(LockName::parse(&"x".repeat(2_000)).is_err());
    }

    #[test]
    fn names_that_other_programs_wrote_are_seen_to_overlap_whatever_their_spelling() {
        for spelled in
            ["path:src/", "path:./src", "path:/src", "path:x/../src", "path:src ", "path:", "path:/", "path:.."]
        {
            assert!(LockName::found(spelled).overlaps(&n("path:src/a.rs")), "{spelled}");
        }
        assert!(!LockName::found("path:src2/").overlaps(&n("path:src")));
        assert!(!LockName::found("a\nb").overlaps(&n("path:src")));
    }
}
