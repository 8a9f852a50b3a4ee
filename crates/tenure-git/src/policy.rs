//! Owns the shared settings file `grite/config.toml` and what a lock policy asks for. Changes one line of the file at
//! a time and leaves everything else in it as it is.

use std::fs;

use serde::Deserialize;
use tenure_core::Timestamp;

use crate::actor::{create_dir, write_whole};
use crate::error::Error;
use crate::issue::{self, ISSUES};
use crate::name::{LOCKS, LockName};
use crate::record;
use crate::repo::Repo;
use crate::status::{Listed, Status};
use crate::view::GUARD;

/// What a clone asks of those who work in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Policy {
    /// Nothing.
    Off,
    /// Say who holds what is touched.
    #[default]
    Warn,
    /// Only touch what one holds.
    Require,
}

impl Policy {
    /// As it is written; anything unknown is the default, as in the other program.
    pub fn parse(text: &str) -> Option<Policy> {
        match text.to_ascii_lowercase().as_str() {
            "off" => Some(Policy::Off),
            "warn" => Some(Policy::Warn),
            "require" => Some(Policy::Require),
            _ => None,
        }
    }

    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Policy::Off => "off",
            Policy::Warn => "warn",
            Policy::Require => "require",
        }
    }
}

/// The part of the settings file that this door reads.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Settings {
    pub(crate) default_actor: Option<String>,
    lock_policy: Option<String>,
}

impl Repo {
    pub(crate) fn settings(&self) -> Result<Settings, Error> {
        let file = self.config_file();
        let text = match fs::read_to_string(&file) {
            Ok(text) => text,
            Err(none) if none.kind() == std::io::ErrorKind::NotFound => return Ok(Settings::default()),
            Err(source) => return Err(Error::Io { path: file, source }),
        };
        toml::from_str(&text)
            .map_err(|why| Error::Config { place: file.display().to_string(), why: why.message().to_owned() })
    }

    /// The policy of this clone.
    pub fn policy(&self) -> Result<Policy, Error> {
        let text = self.settings()?.lock_policy;
        Ok(text.as_deref().and_then(Policy::parse).unwrap_or_default())
    }

    /// Sets the policy of this clone.
    pub fn set_policy(&self, policy: Policy) -> Result<(), Error> {
        let _alone = self.lock_actors()?;
        self.write_setting("lock_policy", policy.as_str())
    }

    /// Changes a setting; the caller keeps others from doing so at the same time.
    pub(crate) fn write_setting(&self, key: &str, value: &str) -> Result<(), Error> {
        let file = self.config_file();
        self.settings()?;
        let old = fs::read_to_string(&file).unwrap_or_default();
        let new = with_setting(&old, key, value);
        // A key can be spelled in ways that a line does not show; better say so than break the file.
        if toml::from_str::<Settings>(&new).is_err() {
            let why = format!("{key} cannot be set here: change it by hand to {value:?}");
            return Err(Error::Config { place: file.display().to_string(), why });
        }
        create_dir(file.parent().unwrap_or(&self.common_dir))?;
        write_whole(&file, &new)
    }
}

/// Replaces the line of a top-level key, or adds it in front.
fn with_setting(old: &str, key: &str, value: &str) -> String {
    let line = format!("{key} = {}", toml::Value::from(value));
    let top = old.lines().take_while(|line| !line.trim_start().starts_with('['));
    let spelled = [key.to_owned(), format!("\"{key}\""), format!("'{key}'")];
    let is_key = |line: &str| {
        let rest = spelled.iter().find_map(|key| line.trim_start().strip_prefix(key.as_str()));
        rest.is_some_and(|rest| rest.trim_start().starts_with('='))
    };
    let Some(at) = top.enumerate().find(|(_, line)| is_key(line)).map(|(at, _)| at) else {
        return format!("{line}\n{old}");
    };
    let replace = |(number, old): (usize, &str)| if number == at { line.clone() } else { old.to_owned() };
    old.lines().enumerate().map(replace).map(|line| line + "\n").collect()
}

/// What the locks say about one thing that is touched.
#[derive(Debug, Clone)]
pub struct Touched {
    /// What is touched.
    pub name: LockName,
    /// The caller's own lock that covers it.
    pub covered_by: Option<Listed>,
    /// Locks of others that stand against touching it.
    pub held_by: Vec<Listed>,
}

impl Touched {
    /// Whether this may be touched under a policy.
    pub fn is_fine(&self, policy: Policy) -> bool {
        match policy {
            Policy::Off | Policy::Warn => true,
            Policy::Require => self.covered_by.is_some() && self.held_by.is_empty(),
        }
    }
}

/// Looks up everything that is touched. `me` is none for a caller without an identity: it holds nothing.
pub fn touched(status: &Status, me: Option<&str>, names: &[LockName]) -> Vec<Touched> {
    let look = |name: &LockName| Touched {
        name: name.clone(),
        covered_by: status.live.iter().find(|lock| is_mine(lock, me) && lock.name.covers(name)).cloned(),
        held_by: status.live.iter().filter(|lock| !is_mine(lock, me) && lock.name.overlaps(name)).cloned().collect(),
    };
    names.iter().map(look).collect()
}

/// The locks of others that stand against a push: the whole repository, or any act on it.
pub fn against_push(status: &Status, me: Option<&str>) -> Vec<Listed> {
    status.live.iter().filter(|lock| !is_mine(lock, me) && lock.name.kind() == Some("repo")).cloned().collect()
}

fn is_mine(lock: &Listed, me: Option<&str>) -> bool {
    me == Some(lock.owner.as_str())
}

/// What a ref is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Work on files.
    Branch,
    /// A tag, notes, or what others keep: no work on files.
    Other,
    /// A lock, the guard or an issue: commits with this one file.
    Record(&'static str),
    /// What the other program keeps beside its locks.
    Foreign,
    /// Among the refs of either program, and written by neither.
    Stray,
}

/// What the ref of this name is for.
pub fn purpose(reference: &str) -> Purpose {
    let is_hex = |text: &str, digits: usize| text.len() == digits && text.bytes().all(|b| b.is_ascii_hexdigit());
    let below = |root: &str| reference.strip_prefix(root);
    if below("refs/heads/").is_some() {
        return Purpose::Branch;
    }
    if reference == GUARD || below(LOCKS).is_some_and(|hash| is_hex(hash, 16)) {
        return Purpose::Record(record::FILE);
    }
    if below(ISSUES).is_some_and(|id| is_hex(id, 32)) {
        return Purpose::Record(issue::FILE);
    }
    if reference == "refs/grite/wal" || below("refs/grite/snapshots/").is_some() {
        return Purpose::Foreign;
    }
    match below("refs/grite/").or(below("refs/tenure/")) {
        Some(_) => Purpose::Stray,
        None => Purpose::Other,
    }
}

/// One line about a lock of somebody else.
pub fn line(lock: &Listed, now: Timestamp) -> String {
    let seconds = lock.expires_unix_ms.saturating_sub(now.unix_ms()) / 1_000;
    format!("{} is locked by {} (expires in {seconds}s)", lock.name, lock.owner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_is_changed_and_everything_else_stays() {
        let old = "# mine\nlock_policy = \"require\" # keep\nverify = true\n\n[snapshot]\nlock_policy = \"inner\"\n";
        let new = with_setting(old, "default_actor", "ab");
        assert_eq!(new, format!("default_actor = \"ab\"\n{old}"));
        let again = with_setting(&new, "default_actor", "cd");
        assert_eq!(again, format!("default_actor = \"cd\"\n{old}"));
        let policy = with_setting(old, "lock_policy", "off");
        assert_eq!(policy, "# mine\nlock_policy = \"off\"\nverify = true\n\n[snapshot]\nlock_policy = \"inner\"\n");
        assert_eq!(with_setting("", "a", "b"), "a = \"b\"\n");
    }

    #[test]
    fn a_key_in_quotes_is_the_same_key() {
        for old in ["\"a\" = 1\n", "'a'=1\n", " \"a\"  = 1\n"] {
            assert_eq!(with_setting(old, "a", "b"), "a = \"b\"\n", "{old}");
        }
        assert_eq!(with_setting("\"aa\" = 1\n", "a", "b"), "a = \"b\"\n\"aa\" = 1\n");
    }

    #[test]
    fn refs_are_known_by_what_is_written_there() {
        for (reference, purpose) in [
            ("refs/heads/refs/tenure/x", Purpose::Branch),
            ("refs/notes/commits", Purpose::Other),
            ("refs/grite/locks/4fa20104a646a633", Purpose::Record("lock.json")),
            ("refs/tenure/guard", Purpose::Record("lock.json")),
            ("refs/tenure/issues/0123456789abcdef0123456789abcdef", Purpose::Record("issue.json")),
            ("refs/grite/wal", Purpose::Foreign),
            ("refs/grite/snapshots/1700000000000", Purpose::Foreign),
            ("refs/grite/locks/4fa20104a646a633/x", Purpose::Stray),
            ("refs/tenure/remotes/origin/guard", Purpose::Stray),
            ("refs/tenure/guards", Purpose::Stray),
        ] {
            assert_eq!(super::purpose(reference), purpose, "{reference}");
        }
    }

    #[test]
    fn a_policy_is_read_whatever_its_case() {
        assert_eq!(Policy::parse("REQUIRE"), Some(Policy::Require));
        assert_eq!(Policy::parse("bogus"), None);
    }
}
