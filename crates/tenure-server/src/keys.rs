//! Owns API keys: making them, keeping them hashed, and knowing whose they are.
//!
//! A key is `tnr_<id>_<secret>`. The id is public and finds the entry; the secret has 256 random bits, so one SHA-256 is
//! enough to keep it: a slow password hash protects guessable secrets, and this one cannot be guessed. The clear text is shown once,
//! when the key is made; the file holds the hash. A key is never a holder: it says which names its bearer may act as.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;

use rand::TryRngCore;
use rand::rngs::OsRng;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tenure_core::Holder;

const PREFIX: &str = "tnr";
const ID_BYTES: usize = 6;
const SECRET_BYTES: usize = 32;
const HASH_PREFIX: &str = "sha256:";

/// What a key allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// To look.
    Observer,
    /// To look, and to hold leases under the names of the key.
    Agent,
    /// Also to take leases away.
    Admin,
}

impl Role {
    /// Its name in the file.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Observer => "observer",
            Role::Agent => "agent",
            Role::Admin => "admin",
        }
    }
}

/// One key as the file has it.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Key {
    /// Finds it; not a secret.
    pub id: String,
    /// What people call it; for an administrator also a name to act as.
    pub name: String,
    /// What it allows.
    pub role: Role,
    /// The names it may act as: exact, or a beginning followed by `*`.
    #[serde(default)]
    pub holders: Vec<String>,
    /// The hash of the whole key.
    hash: String,
}

impl fmt::Debug for Key {
    /// Without the hash: it is no secret, but logs are no place for it either.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "key {} ({}, {})", self.name, self.id, self.role.as_str())
    }
}

impl Key {
    /// Whether its bearer may act under this name.
    pub fn may_act_as(&self, holder: &Holder) -> bool {
        let is_listed = self.holders.iter().any(|pattern| match pattern.strip_suffix('*') {
            Some(beginning) => holder.as_str().starts_with(beginning),
            None => pattern == holder.as_str(),
        });
        is_listed || self.own_name().is_some_and(|own| own == *holder)
    }

    /// The name of its bearer where none is said: the only one that is listed, or an administrator's own.
    pub fn default_holder(&self) -> Option<Holder> {
        match self.holders.as_slice() {
            [name, same @ ..] if !name.ends_with('*') && same.iter().all(|other| other == name) => {
                Holder::parse(name).ok()
            }
            _ => self.own_name(),
        }
    }

    /// An administrator signs what it does with the key's name, so it may hold leases under it too.
    fn own_name(&self) -> Option<Holder> {
        if self.role == Role::Admin { Holder::parse(&self.name).ok() } else { None }
    }
}

/// Why keys cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    /// The file could not be read.
    #[error("the keys file {path} cannot be read: {source}")]
    Read {
        /// Which.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// The file is not what it should be.
    #[error("the keys file is not valid: {0}")]
    Format(String),
    /// Nobody could come in.
    #[error("the keys file holds no key: make one with `tenure key new`")]
    Empty,
    /// An entry is not usable.
    #[error("key {name:?}: {why}")]
    BadKey {
        /// Its name.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The system gave no random bytes.
    #[error("the system gave no random bytes: {0}")]
    Random(String),
}

/// All keys of a server.
#[derive(Debug, Default)]
pub struct Keys(HashMap<String, (Key, [u8; 32])>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    key: Vec<Key>,
}

#[derive(Serialize)]
struct FileOfOne<'a> {
    key: [&'a Key; 1],
}

/// Reads a keys file.
pub fn load(path: &Path) -> Result<Keys, KeysError> {
    let read = |source| KeysError::Read { path: path.display().to_string(), source };
    parse(&std::fs::read_to_string(path).map_err(read)?)
}

/// Reads the text of a keys file: TOML, one `[[key]]` each.
pub fn parse(text: &str) -> Result<Keys, KeysError> {
    let file: File = toml::from_str(text).map_err(|error| KeysError::Format(error.message().to_owned()))?;
    let mut keys = HashMap::with_capacity(file.key.len());
    for key in file.key {
        let bad = |why| KeysError::BadKey { name: key.name.clone(), why };
        let hash =
            key.hash.strip_prefix(HASH_PREFIX).and_then(from_hex).ok_or_else(|| bad("its hash is not a sha256"))?;
        check_names(&key).map_err(bad)?;
        if let Some((other, _)) = keys.insert(key.id.clone(), (key, hash)) {
            return Err(KeysError::BadKey { name: other.name, why: "another key has the same id" });
        }
    }
    if keys.is_empty() { Err(KeysError::Empty) } else { Ok(Keys(keys)) }
}

/// Makes a key: its clear text, to be shown once, and its entry, to be appended to the keys file.
pub fn generate(name: &str, role: Role, holders: Vec<String>) -> Result<(String, String), KeysError> {
    let mut bytes = [0; ID_BYTES + SECRET_BYTES];
    OsRng.try_fill_bytes(&mut bytes).map_err(|error| KeysError::Random(error.to_string()))?;
    let (id, secret) = bytes.split_at(ID_BYTES);
    let id = to_hex(id);
    let clear = format!("{PREFIX}_{id}_{}", to_hex(secret));
    let hash = format!("{HASH_PREFIX}{}", to_hex(&Sha256::digest(&clear)));
    let key = Key { id, name: name.to_owned(), role, holders, hash };
    check_names(&key).map_err(|why| KeysError::BadKey { name: name.to_owned(), why })?;
    let entry = toml::to_string(&FileOfOne { key: [&key] }).map_err(|error| KeysError::Format(error.to_string()))?;
    Ok((clear, entry))
}

impl Keys {
    /// Whose key this is; nothing if it is nobody's.
    pub fn find(&self, clear: &str) -> Option<&Key> {
        let id = clear.strip_prefix(PREFIX)?.strip_prefix('_')?.split('_').next()?;
        let (key, hash) = self.0.get(id)?;
        let given: [u8; 32] = Sha256::digest(clear).into();
        is_equal(&given, hash).then_some(key)
    }
}

fn check_names(key: &Key) -> Result<(), &'static str> {
    if Holder::parse(&key.name).is_err() {
        return Err("a key's name has 1 to 256 bytes, no control characters and no blanks at its ends");
    }
    if key.role == Role::Agent && key.holders.is_empty() {
        return Err("an agent's key names the holders it may act as");
    }
    for pattern in &key.holders {
        let name = pattern.strip_suffix('*').unwrap_or(pattern);
        if name.contains('*') {
            return Err("one of its holders has a * that is not its end: a * stands for how a name goes on");
        }
        if pattern != "*" && Holder::parse(name).map_or(true, |holder| holder.as_str() != name) {
            return Err("one of its holders cannot be a holder's name");
        }
    }
    Ok(())
}

/// Takes the same time wherever the two differ.
fn is_equal(one: &[u8; 32], other: &[u8; 32]) -> bool {
    one.iter().zip(other).fold(0, |differences, (a, b)| differences | (a ^ b)) == 0
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(name: &str) -> Holder {
        Holder::parse(name).expect("a name")
    }

    #[test]
    fn a_new_key_opens_and_nothing_like_it_does() {
        let (clear, entry) = generate("ci", Role::Agent, vec!["ci-*".to_owned()]).expect("a key");
        assert!(!entry.contains(&clear), "the file holds no secret");
        let keys = parse(&entry).expect("a file");
        assert_eq!(keys.find(&clear).map(|key| key.name.as_str()), Some("ci"));
        let (other, _) = generate("ci", Role::Agent, vec!["ci-*".to_owned()]).expect("a key");
        let changed = format!("{}0", clear.get(..clear.len() - 1).expect("a text"));
        let same_id =
            format!("{}_{}", clear.rsplit_once('_').expect("parts").0, other.rsplit_once('_').expect("parts").1);
        for wrong in
            [&other, &same_id, "", "tnr_", "tnr__", "x"].into_iter().chain((changed != clear).then_some(&*changed))
        {
            assert!(keys.find(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn a_key_acts_under_its_names_only() {
        let (_, entry) = generate("k", Role::Agent, vec!["ci-*".to_owned(), "solo".to_owned()]).expect("a key");
        let keys = parse(&entry).expect("a file");
        let (key, _) = keys.0.values().next().expect("one");
        assert_eq!(key.default_holder(), None, "it has several");
        for (name, may) in
            [("ci-1", true), ("ci-", true), ("solo", true), ("solo2", false), ("c", false), ("CI-1", false)]
        {
            assert_eq!(key.may_act_as(&holder(name)), may, "{name}");
        }
    }

    #[test]
    fn an_administrator_acts_under_the_name_of_its_key_too() {
        for (holders, default) in [
            (&[][..], "boss"),
            (&["ada"], "ada"),
            (&["ada", "ada"], "ada"),
            (&["a*"], "boss"),
            (&["ada", "bob"], "boss"),
        ] {
            let holders = holders.iter().map(|name| (*name).to_owned()).collect();
            let (clear, entry) = generate("boss", Role::Admin, holders).expect("a key");
            let keys = parse(&entry).expect("a file");
            let key = keys.find(&clear).expect("the key");
            assert!(key.may_act_as(&holder("boss")) && !key.may_act_as(&holder("boss-1")), "{entry}");
            assert_eq!(key.default_holder(), Some(holder(default)), "{entry}");
        }
        let (clear, entry) = generate("eyes", Role::Observer, Vec::new()).expect("a key");
        let keys = parse(&entry).expect("a file");
        let eyes = keys.find(&clear).expect("the key");
        assert!(!eyes.may_act_as(&holder("eyes")) && eyes.default_holder().is_none(), "only administrators do");
    }

    #[test]
    fn names_that_mean_nothing_are_refused_also_in_a_file_made_by_hand() {
        let (_, entry) = generate("k", Role::Agent, vec!["ci-*".to_owned()]).expect("a key");
        for (pattern, why) in [
            ("a*b", "a * that is not its end"),
            ("*a", "a * that is not its end"),
            ("a**", "a * that is not its end"),
            ("**", "a * that is not its end"),
            ("", "cannot be a holder's name"),
            (" a", "cannot be a holder's name"),
            ("a *", "cannot be a holder's name"),
        ] {
            let made = generate("k", Role::Agent, vec![pattern.to_owned()]).map(drop);
            for refused in [made, parse(&entry.replace("ci-*", pattern)).map(drop)] {
                let text = refused.expect_err(pattern).to_string();
                assert!(text.contains(why), "{pattern}: {text}");
            }
        }
        for name in ["", " ", "a ", "a\tb"] {
            let made = generate(name, Role::Observer, Vec::new()).map(drop);
            let by_hand = entry.replace("name = \"k\"", &format!("name = {name:?}"));
            for refused in [made, parse(&by_hand).map(drop)] {
                let text = refused.expect_err(name).to_string();
                assert!(text.contains("a key's name has 1 to 256 bytes"), "{name:?}: {text}");
            }
        }
        assert!(generate("k", Role::Agent, vec!["*".to_owned()]).is_ok(), "every name");
    }

    #[test]
    fn a_file_that_would_not_protect_is_refused() {
        let (_, entry) = generate("k", Role::Admin, Vec::new()).expect("a key");
        assert!(matches!(parse(""), Err(KeysError::Empty)));
        assert!(matches!(parse(&format!("{entry}{entry}")), Err(KeysError::BadKey { .. })), "one id twice");
        assert!(matches!(parse(&entry.replace("sha256:", "plain:")), Err(KeysError::BadKey { .. })));
        assert!(matches!(parse(&entry.replace("admin", "root")), Err(KeysError::Format(_))));
        assert!(matches!(parse(&format!("{entry}expires = 1\n")), Err(KeysError::Format(_))));
        assert!(matches!(generate("k", Role::Agent, Vec::new()), Err(KeysError::BadKey { .. })));
        assert!(matches!(generate("k", Role::Agent, vec!["a\n*".to_owned()]), Err(KeysError::BadKey { .. })));
    }
}
