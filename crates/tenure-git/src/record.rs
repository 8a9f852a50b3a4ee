//! Owns the bytes: what a lock's commit and its `lock.json` say. The four fields and their order are shared with
//! other programs; nothing this crate needs for safety stands anywhere else in the payload.
//!
//! The token stands in the commit's message, as a trailer. A program that rewrites the lock drops it; then the
//! guard's history still knows it by the nonce.

use serde::{Deserialize, Serialize};
use tenure_core::Timestamp;

use crate::error::Error;
use crate::git::Git;
use crate::objects::{Objects, Oid};

/// The one file of a lock's tree.
pub const FILE: &str = "lock.json";
/// The trailer with the token.
pub const TOKEN: &str = "Token";
const AUTHOR: &str = "grite <grit@localhost>";

/// A lock as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Payload {
    /// Who holds it: an actor's id. A name, never a credential.
    pub owner: String,
    /// New with every grant, kept by renewals.
    pub nonce: String,
    /// Held while `now <` this; 0 says that it was released.
    pub expires_unix_ms: u64,
    /// What is held, as its holder named it.
    pub resource: String,
}

impl Payload {
    /// Reads a `lock.json`.
    pub fn parse(json: &[u8]) -> Result<Payload, String> {
        serde_json::from_slice(json).map_err(|why| why.to_string())
    }

    /// The bytes of `lock.json`.
    pub fn to_json(&self) -> Vec<u8> {
        // Four plain fields cannot fail to serialise.
        serde_json::to_vec_pretty(self).unwrap_or_default()
    }

    /// Given back, not run out.
    pub fn is_released(&self) -> bool {
        self.expires_unix_ms == 0
    }

    /// Held at this moment (L4).
    pub fn is_live(&self, now: Timestamp) -> bool {
        now.unix_ms() < self.expires_unix_ms
    }

    /// Free for others: released, or run out longer ago than clocks may differ.
    pub fn is_free(&self, now: Timestamp, skew_ms: u64) -> bool {
        self.is_released() || now.unix_ms() >= self.expires_unix_ms.saturating_add(skew_ms)
    }

    /// The same lock, given back.
    pub fn released(&self) -> Payload {
        Payload { expires_unix_ms: 0, ..self.clone() }
    }
}

/// A commit to be written: a payload with its place in history.
#[derive(Debug, Clone)]
pub struct Commit<'a> {
    /// The payload.
    pub payload: &'a Payload,
    /// The commit it replaces.
    pub parent: Option<&'a Oid>,
    /// The fencing number of the grant it belongs to.
    pub token: Option<u64>,
    /// When.
    pub now: Timestamp,
}

impl Commit<'_> {
    /// Writes the lock's blob, tree and commit; gives the tree and the commit.
    pub fn write(&self, git: &Git, objects: &Objects) -> Result<(Oid, Oid), Error> {
        let blob = objects.blob(git, &self.payload.to_json())?;
        let tree = objects.tree_of_one(git, FILE, &blob)?;
        let commit = objects.commit(git, &self.text("Lock", &tree))?;
        Ok((tree, commit))
    }

    /// Writes a guard commit: the granted lock's tree again, in the guard's own history.
    pub fn write_guard(&self, git: &Git, objects: &Objects, tree: &Oid) -> Result<Oid, Error> {
        objects.commit(git, &self.text("Guard", tree))
    }

    fn text(&self, subject: &str, tree: &Oid) -> String {
        let parent = self.parent.map(|id| format!("parent {id}\n")).unwrap_or_default();
        let when = self.now.unix_ms() / 1_000;
        let trailer = self.token.map(|token| format!("\n\n{TOKEN}: {token}\n")).unwrap_or_default();
        let resource = &self.payload.resource;
        format!(
            "tree {tree}\n{parent}author {AUTHOR} {when} +0000\ncommitter {AUTHOR} {when} +0000\n\n{subject}: {resource}{trailer}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::Hash;

    fn payload() -> Payload {
        Payload {
            owner: "4c0a62fb9cd5f1e544b2abf2c6fa822e".into(),
            nonce: "da2de8ad-ef30-4749-aca3-6f81648b715d".into(),
            expires_unix_ms: 1_794_768_578_984,
            resource: "issue:8057324b".into(),
        }
    }

    #[test]
    fn a_lock_and_its_release_have_the_ids_that_the_other_program_gives_them() {
        let dir = tempfile::tempdir().expect("a directory");
        let objects = Objects { dir: dir.path().to_owned(), hash: Hash::Sha1, shared: false };
        let git = Git::in_dir(dir.path());
        let lock = payload();
        let commit =
            Commit { payload: &lock, parent: None, token: None, now: Timestamp::from_unix_ms(1_794_768_278_000) };
        let (tree, id) = commit.write(&git, &objects).expect("written");
        assert_eq!(tree.as_str(), "89e5526cbcaaa5fc5ee2577b8e94e085306f61f7");
        assert_eq!(id.as_str(), "f9664aa61e6405c2bb7946da06f2136463fde067");
        let gone = lock.released();
        let now = Timestamp::from_unix_ms(1_794_768_300_000);
        let tombstone = Commit { payload: &gone, parent: Some(&id), token: None, now };
        let (tree, id) = tombstone.write(&git, &objects).expect("written");
        assert_eq!(tree.as_str(), "b5a591fcd38fdafc3bd50519179d194b9eab8bc5");
        assert_eq!(id.as_str(), "18d84b6708a6aaeefad0b67e856fec4dcf588a47");
    }

    #[test]
    fn a_payload_is_read_as_strictly_as_the_other_program_reads_it() {
        let with =
            |expires: &str| format!(r#"{{"owner":"o","nonce":"n","expires_unix_ms":{expires},"resource":"r","x":1}}"#);
        assert!(Payload::parse(with("17").as_bytes()).is_ok());
        assert!(Payload::parse(with("18446744073709551615").as_bytes()).is_ok());
        for bad in ["\"17\"", "1.5", "-1", "1e3", "null", "18446744073709551616"] {
            assert!(Payload::parse(with(bad).as_bytes()).is_err(), "{bad}");
        }
        assert!(Payload::parse(br#"{"owner":"o","nonce":"n","resource":"r"}"#).is_err());
    }

    #[test]
    fn a_lock_is_free_for_others_only_after_the_margin_and_at_once_when_released() {
        let lock = Payload { expires_unix_ms: 1_000, ..payload() };
        let at = Timestamp::from_unix_ms;
        assert!(lock.is_live(at(999)) && !lock.is_live(at(1_000)));
        assert!(!lock.is_free(at(5_999), 5_000) && lock.is_free(at(6_000), 5_000));
        assert!(lock.released().is_free(at(0), 5_000));
        assert!(!Payload { expires_unix_ms: u64::MAX, ..lock }.is_free(at(u64::MAX - 1), 5_000));
    }
}
