//! Owns where things are: the directories and settings as git has them, and who judges. Guesses nothing: what
//! [`crate::shortcut`] cannot tell for certain, git is asked.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::Error;
use crate::git::Git;
use crate::limits::{REMOTE_TIMEOUT_DEFAULT, SKEW_MS_DEFAULT, SKEW_MS_MAX};
use crate::objects::{Hash, Objects};
use crate::remote::Remote;
use crate::shortcut::{self, Found};

/// A repository as git sees it from one directory.
#[derive(Debug, Clone)]
pub struct Repo {
    /// git in the caller's directory.
    pub git: Git,
    /// This worktree's own git directory.
    pub git_dir: PathBuf,
    /// The git directory that all worktrees share.
    pub common_dir: PathBuf,
    /// Where new objects go.
    pub objects: Objects,
    /// Found without asking git: nothing in the environment or the settings is out of the ordinary.
    pub(crate) is_plain: bool,
    config: Config,
}

/// The settings that matter here, in git's order: the last one counts.
#[derive(Debug, Clone, Default)]
pub(crate) struct Config(Vec<(String, String)>);

impl Config {
    pub(crate) fn of(entries: Vec<(String, String)>) -> Config {
        Config(entries)
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(key, _)| key.as_str())
    }

    /// Group members must be able to write what is written here.
    fn is_shared(&self) -> bool {
        !matches!(self.last("core.sharedrepository"), None | Some("umask" | "false" | "0" | "no"))
    }

    fn parse(listed: &[u8]) -> Config {
        let text = String::from_utf8_lossy(listed);
        let entry = |item: &str| match item.split_once('\n') {
            Some((key, value)) => (key.to_owned(), value.to_owned()),
            // A key without a value is git's way to say true.
            None => (item.to_owned(), "true".to_owned()),
        };
        Config(text.split('\0').filter(|item| !item.is_empty()).map(entry).collect())
    }

    pub(crate) fn last(&self, key: &str) -> Option<&str> {
        self.0.iter().rfind(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    fn all(&self, key: &str) -> Vec<&str> {
        self.0.iter().filter(|(name, _)| name == key).map(|(_, value)| value.as_str()).collect()
    }
}

/// Who judges.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Mode {
    /// The remote, if there is one: `tenure.remote`, else `origin`. Without any: this repository.
    #[default]
    Auto,
    /// This remote.
    Remote(String),
    /// This repository alone, whatever remotes it has.
    Local,
}

impl Repo {
    /// Finds the repository of a directory, as git does (`GIT_DIR` included).
    pub fn discover(dir: &Path) -> Result<Repo, Error> {
        let Some(found) = shortcut::find(dir) else { return Repo::ask_git(dir) };
        let objects = found.objects(found.config.is_shared());
        let Found { git_dir, common_dir, config, .. } = found;
        Ok(Repo { git: Git::in_dir(dir), git_dir, common_dir, objects, is_plain: true, config })
    }

    /// Has git find the repository of a directory.
    pub fn ask_git(dir: &Path) -> Result<Repo, Error> {
        let git = Git::in_dir(dir);
        let config = git.spawn(&["config", "--null", "--list"], &[])?;
        let asked = ["rev-parse", "--path-format=absolute", "--show-object-format", "--git-dir", "--git-common-dir"];
        let found = git.run(&[asked.as_slice(), &["--git-path", "objects"]].concat(), b"")?;
        if !found.ok() {
            return Err(Error::NotARepository { detail: found.complaint() });
        }
        let text = found.text();
        let lines: Vec<&str> = text.lines().collect();
        let [format, git_dir, common_dir, objects] = lines[..] else {
            return Err(Error::Git { command: "rev-parse".into(), detail: format!("unexpected answer {text:?}") });
        };
        let listed = config.wait_with_output().map_err(|source| Error::Io { path: dir.to_owned(), source })?;
        let config = Config::parse(&listed.stdout);
        let hash = if format == "sha256" { Hash::Sha256 } else { Hash::Sha1 };
        let objects = Objects { dir: objects.into(), hash, shared: config.is_shared() };
        Ok(Repo { git, git_dir: git_dir.into(), common_dir: common_dir.into(), objects, is_plain: false, config })
    }

    /// The value of a setting of git.
    pub fn setting(&self, key: &str) -> Option<&str> {
        self.config.last(key)
    }

    /// How much clocks may differ (`tenure.skew`, seconds or with a unit).
    pub fn skew_ms(&self) -> Result<u64, Error> {
        let Some(text) = self.config.last("tenure.skew") else { return Ok(SKEW_MS_DEFAULT) };
        match parse_span_ms(text) {
            Some(ms) if ms <= SKEW_MS_MAX => Ok(ms),
            _ => Err(bad_setting("tenure.skew", text, "a span of at most one hour, for example 5s")),
        }
    }

    fn timeout(&self) -> Result<Duration, Error> {
        let Some(text) = self.config.last("tenure.timeout") else { return Ok(REMOTE_TIMEOUT_DEFAULT) };
        match parse_span_ms(text) {
            Some(ms) if ms > 0 => Ok(Duration::from_millis(ms)),
            _ => Err(bad_setting("tenure.timeout", text, "a span such as 30s")),
        }
    }

    /// The remote that judges; none when this repository does.
    pub fn judge(&self, mode: &Mode) -> Result<Option<Remote>, Error> {
        let (name, required) = match mode {
            Mode::Local => return Ok(None),
            Mode::Remote(name) => (name.as_str(), true),
            Mode::Auto => match self.config.last("tenure.remote") {
                Some(name) => (name, true),
                None => ("origin", false),
            },
        };
        let url = format!("remote.{name}.url");
        let urls = self.config.all(&url);
        let Some(fetch_url) = urls.first() else {
            if !required && !self.has_remotes() {
                return Ok(None);
            }
            return Err(Error::NoSuchRemote { name: name.to_owned() });
        };
        let push_urls = self.config.all(&format!("remote.{name}.pushurl"));
        if push_urls.len() > 1 || (push_urls.is_empty() && urls.len() > 1) {
            let why = "it pushes to several places, which cannot agree on one holder".to_owned();
            return Err(Error::UnfitRemote { name: name.to_owned(), why });
        }
        // Read where we write: a mirror that lags behind must not be asked who holds what.
        let source = match push_urls.first() {
            Some(push_url) if push_url != fetch_url => (*push_url).to_owned(),
            _ => name.to_owned(),
        };
        Ok(Some(Remote::new(name, source, self.timeout()?)))
    }

    fn has_remotes(&self) -> bool {
        self.config.0.iter().any(|(key, _)| key.starts_with("remote.") && key.ends_with(".url"))
    }
}

fn bad_setting(key: &str, text: &str, wanted: &str) -> Error {
    Error::Config { place: format!("git config {key}"), why: format!("{text:?} is not {wanted}") }
}

/// A span as people write it: `30` (seconds), `30s`, `15m`, `1h`, `2h30m`, `2d`. None if it is not one or too large.
pub fn parse_span_ms(text: &str) -> Option<u64> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.parse::<u64>().ok()?.checked_mul(1_000);
    }
    let (mut rest, mut total, mut last_unit) = (text, 0_u64, u64::MAX);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).filter(|at| *at > 0)?;
        let (number, tail) = rest.split_at(digits);
        let (unit, unit_ms) = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)]
            .into_iter()
            .find(|(unit, _)| tail.starts_with(unit))?;
        if unit_ms >= last_unit {
            return None;
        }
        total = total.checked_add(number.parse::<u64>().ok()?.checked_mul(unit_ms)?)?;
        (rest, last_unit) = (tail.strip_prefix(unit)?, unit_ms);
    }
    (last_unit != u64::MAX).then_some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_seconds_or_has_units_from_large_to_small() {
        for (text, ms) in [
            ("300", 300_000),
            ("30s", 30_000),
            ("15m", 900_000),
            ("1h", 3_600_000),
            ("2h30m", 9_000_000),
            ("2d", 172_800_000),
            ("0", 0),
        ] {
            assert_eq!(parse_span_ms(text), Some(ms), "{text}");
        }
        for bad in
            ["", "m", "-1", "1.5", "1.5h", "abc", "30 m", "30m2h", "5m5m", "18446744073709551615", "30x", "m30", "+5"]
        {
            assert_eq!(parse_span_ms(bad), None, "{bad}");
        }
    }

    #[test]
    fn settings_are_read_as_git_lists_them() {
        let config = Config::parse(b"tenure.skew\n1s\0tenure.skew\n2s\0core.bare\0remote.o.url\nfile:///a\nb\0");
        assert_eq!(config.last("tenure.skew"), Some("2s"));
        assert_eq!(config.last("core.bare"), Some("true"));
        assert_eq!(config.last("remote.o.url"), Some("file:///a\nb"));
    }
}
