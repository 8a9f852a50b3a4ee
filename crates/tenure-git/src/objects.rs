//! Owns object ids and writing loose objects. One lock is three small objects; three git processes for them would
//! cost more than everything else, so they are written as git's loose files directly. Reading stays with git.
//!
//! A repository whose files must be shared with a group gets its objects through `git hash-object` instead: git
//! knows the modes.

use std::fmt;
use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use sha2::Digest;

use crate::error::Error;
use crate::git::Git;

/// The id of an object, in hex.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Oid(String);

impl Oid {
    /// Reads 40 or 64 hex digits; all zeros is no id.
    pub fn parse(text: &str) -> Option<Oid> {
        let hex = text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let is_id = matches!(text.len(), 40 | 64) && hex && text.bytes().any(|byte| byte != b'0');
        is_id.then(|| Oid(text.to_ascii_lowercase()))
    }

    /// In hex.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn bytes(&self) -> Vec<u8> {
        let digit = |byte: u8| (byte as char).to_digit(16).unwrap_or_default() as u8;
        self.0.as_bytes().chunks_exact(2).map(|pair| pair.iter().fold(0, |acc, byte| acc << 4 | digit(*byte))).collect()
    }
}

impl fmt::Display for Oid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Oid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The hash a repository names its objects by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hash {
    /// 40 hex digits.
    Sha1,
    /// 64 hex digits.
    Sha256,
}

impl Hash {
    /// «No object» in the commands of git.
    pub fn zero(self) -> &'static str {
        match self {
            Hash::Sha1 => "0000000000000000000000000000000000000000",
            Hash::Sha256 => "0000000000000000000000000000000000000000000000000000000000000000",
        }
    }

    /// The id of an object with its header.
    fn id(self, whole: &[u8]) -> Oid {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        match self {
            Hash::Sha1 => Oid(hex(&sha1::Sha1::digest(whole))),
            Hash::Sha256 => Oid(hex(&sha2::Sha256::digest(whole))),
        }
    }
}

/// Where new objects go.
#[derive(Debug, Clone)]
pub struct Objects {
    /// The `objects` directory.
    pub dir: PathBuf,
    /// How they are named.
    pub hash: Hash,
    /// Group members must be able to write here: leave the modes to git.
    pub shared: bool,
}

impl Objects {
    /// Writes a blob.
    pub fn blob(&self, git: &Git, content: &[u8]) -> Result<Oid, Error> {
        self.write(git, "blob", content)
    }

    /// Writes a tree with one file.
    pub fn tree_of_one(&self, git: &Git, file: &str, blob: &Oid) -> Result<Oid, Error> {
        let mut content = format!("100644 {file}\0").into_bytes();
        content.extend(blob.bytes());
        self.write(git, "tree", &content)
    }

    /// Writes a commit from its text.
    pub fn commit(&self, git: &Git, text: &str) -> Result<Oid, Error> {
        self.write(git, "commit", text.as_bytes())
    }

    fn write(&self, git: &Git, kind: &str, content: &[u8]) -> Result<Oid, Error> {
        let mut whole = format!("{kind} {}\0", content.len()).into_bytes();
        whole.extend_from_slice(content);
        let id = self.hash.id(&whole);
        if self.shared {
            git.done(&["hash-object", "-w", "-t", kind, "--stdin"], content)?;
        } else {
            let broken = |path: &Path, source| Error::Io { path: path.to_owned(), source };
            let (first, rest) = id.as_str().split_at(2);
            let dir = self.dir.join(first);
            store(&dir, rest, &whole).map_err(|source| broken(&dir, source))?;
        }
        Ok(id)
    }
}

/// The file appears whole or not at all: git's own readers rely on it.
fn store(dir: &Path, name: &str, whole: &[u8]) -> std::io::Result<()> {
    let file = dir.join(name);
    if file.exists() {
        return Ok(());
    }
    if !dir.exists() {
        fs::create_dir_all(dir)?;
    }
    // git's own prefix: its housekeeping removes what a killed writer leaves.
    let temporary = dir.join(format!("tmp_obj_{}", uuid::Uuid::new_v4().simple()));
    let mut out = fs::OpenOptions::new().write(true).create_new(true).mode(0o444).open(&temporary)?;
    out.write_all(&zlib_stored(whole))?;
    drop(out);
    fs::rename(&temporary, &file).inspect_err(|_| {
        let _ = fs::remove_file(&temporary);
    })
}

/// A zlib stream that stores instead of compressing: these objects are a few hundred bytes.
fn zlib_stored(content: &[u8]) -> Vec<u8> {
    const BLOCK: usize = 0xffff;
    let mut out = vec![0x78, 0x01];
    let mut blocks = content.chunks(BLOCK).peekable();
    while let Some(block) = blocks.next() {
        out.push(u8::from(blocks.peek().is_none()));
        let length = block.len() as u16;
        out.extend(length.to_le_bytes());
        out.extend((!length).to_le_bytes());
        out.extend_from_slice(block);
    }
    out.extend(adler32(content).to_be_bytes());
    out
}

fn adler32(content: &[u8]) -> u32 {
    const MODULUS: u32 = 65_521;
    let step = |(a, b): (u32, u32), byte: &u8| {
        let a = (a + u32::from(*byte)) % MODULUS;
        (a, (b + a) % MODULUS)
    };
    let (a, b) = content.iter().fold((1, 0), step);
    b << 16 | a
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_the_published_one() {
        assert_eq!(adler32(b"Wikipedia"), 0x11e6_0398);
    }

    #[test]
    fn an_id_is_hex_of_the_right_length_and_not_nothing() {
        assert!(Oid::parse(&"a1".repeat(20)).is_some() && Oid::parse(&"a1".repeat(32)).is_some());
        for bad in ["", "a1", &"0".repeat(40), &"g1".repeat(20), &"a1".repeat(21)] {
            assert!(Oid::parse(bad).is_none(), "{bad}");
        }
    }
}
