//! Owns finding a repository of the plainest shape without asking git: two processes less in every command.
//!
//! Only what git would answer in the same words counts as plain: no variable that steers git, a `.git` of the caller's
//! own on the way up, settings without quotes or includes, and nothing about us in the settings of the user or the
//! machine. Everything else is git's to answer.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::objects::{Hash, Objects};
use crate::repo::Config;

/// Variables of git that have nothing to do with where a repository is or what its settings are.
const HARMLESS: [&str; 13] = [
    "GIT_AUTHOR_",
    "GIT_COMMITTER_",
    "GIT_EDITOR",
    "GIT_SEQUENCE_EDITOR",
    "GIT_PAGER",
    "GIT_ASKPASS",
    "GIT_SSH",
    "GIT_SSL_",
    "GIT_HTTP_",
    "GIT_TERMINAL_PROMPT",
    "GIT_TRACE",
    "GIT_OPTIONAL_LOCKS",
    "GIT_REFLOG_ACTION",
];
/// Words in the settings of the user or the machine that could matter here.
const WORDS: [&str; 9] = [
    "include",
    "tenure",
    "sharedrepository",
    "[remote",
    "extensions",
    "objectdirectory",
    "hookspath",
    "logallrefupdates",
    "fsync",
];
/// Extensions that change nothing of what is done here, beside the two that are read.
const EXTENSIONS: [&str; 5] = ["objectformat", "refstorage", "partialclone", "preciousobjects", "noop"];

/// Where things are, as far as they are plain.
pub(crate) struct Found {
    pub(crate) git_dir: PathBuf,
    pub(crate) common_dir: PathBuf,
    pub(crate) hash: Hash,
    pub(crate) config: Config,
}

impl Found {
    pub(crate) fn objects(&self, shared: bool) -> Objects {
        Objects { dir: self.common_dir.join("objects"), hash: self.hash, shared }
    }
}

/// Finds the repository of a directory; none: ask git.
pub(crate) fn find(dir: &Path) -> Option<Found> {
    if !is_unsteered(std::env::vars_os().filter_map(|(name, _)| name.into_string().ok())) || !others_are_silent()? {
        return None;
    }
    let git_dir = git_dir(&dir.canonicalize().ok()?)?;
    let common_dir = match fs::read_to_string(git_dir.join("commondir")) {
        Ok(text) => git_dir.join(text.trim_end()).canonicalize().ok()?,
        Err(none) if none.kind() == std::io::ErrorKind::NotFound => git_dir.clone(),
        Err(_) => return None,
    };
    if !is_git_dir(&common_dir) {
        return None;
    }
    let config = plain_config(&fs::read_to_string(common_dir.join("config")).ok()?)?;
    let known = |key: &str| key.strip_prefix("extensions.").is_none_or(|name| EXTENSIONS.contains(&name));
    if !config.keys().all(known) || !matches!(config.last("core.repositoryformatversion"), Some("0" | "1")) {
        return None;
    }
    let hash = match config.last("extensions.objectformat") {
        None | Some("sha1") => Hash::Sha1,
        Some("sha256") => Hash::Sha256,
        Some(_) => return None,
    };
    Some(Found { git_dir, common_dir, hash, config })
}

fn is_unsteered(mut names: impl Iterator<Item = String>) -> bool {
    names.all(|name| !name.starts_with("GIT_") || HARMLESS.iter().any(|harmless| name.starts_with(harmless)))
}

/// Whether the settings of the user and the machine say nothing that matters here.
fn others_are_silent() -> Option<bool> {
    let home = PathBuf::from(std::env::var_os("HOME")?);
    let user = std::env::var_os("XDG_CONFIG_HOME").map_or_else(|| home.join(".config"), PathBuf::from);
    let path = std::env::var_os("PATH")?;
    let program = std::env::split_paths(&path).map(|dir| dir.join("git")).find(|program| program.is_file())?;
    let prefix = program.parent()?.parent()?;
    let files =
        [home.join(".gitconfig"), user.join("git/config"), "/etc/gitconfig".into(), prefix.join("etc/gitconfig")];
    let is_silent = |file: &PathBuf| match fs::read_to_string(file) {
        Ok(text) => {
            let text = text.to_ascii_lowercase();
            WORDS.iter().all(|word| !text.contains(word))
        }
        Err(none) => none.kind() == std::io::ErrorKind::NotFound,
    };
    Some(files.iter().all(is_silent))
}

/// Goes up to the first `.git`, by git's own rules where they are simple.
fn git_dir(from: &Path) -> Option<PathBuf> {
    let device = fs::metadata(from).ok()?.dev();
    for dir in from.ancestors() {
        let about = fs::metadata(dir).ok()?;
        // A bare repository, or another file system: git knows better.
        if about.dev() != device || is_git_dir(dir) {
            return None;
        }
        let entry = dir.join(".git");
        let Ok(kind) = fs::symlink_metadata(&entry) else { continue };
        let git_dir = match kind.is_dir() {
            true => entry.clone(),
            false if kind.is_file() => {
                let text = fs::read_to_string(&entry).ok()?;
                dir.join(text.strip_prefix("gitdir: ")?.trim_end()).canonicalize().ok()?
            }
            false => return None,
        };
        // Somebody else's repository is refused by git unless it is allowed.
        let me = nix::unistd::geteuid().as_raw();
        let is_mine = about.uid() == me && kind.uid() == me && fs::metadata(&git_dir).ok()?.uid() == me;
        return (is_mine && git_dir.join("HEAD").is_file()).then_some(git_dir);
    }
    None
}

fn is_git_dir(dir: &Path) -> bool {
    dir.join("HEAD").is_file() && dir.join("objects").is_dir() && dir.join("refs").is_dir()
}

/// Reads settings that need no unquoting; none: ask git.
fn plain_config(text: &str) -> Option<Config> {
    let mut entries = Vec::new();
    let mut section = String::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with(['#', ';'])) {
        if let Some(head) = line.strip_prefix('[') {
            section = plain_section(head.strip_suffix(']')?)?;
            continue;
        }
        if line.contains(['"', '\\', '#', ';']) || section.is_empty() {
            return None;
        }
        let (key, value) = match line.split_once('=') {
            Some((key, value)) => (key.trim(), value.trim()),
            None => (line, "true"),
        };
        entries.push((format!("{section}.{}", key.to_ascii_lowercase()), value.to_owned()));
    }
    Some(Config::of(entries))
}

/// `name` or `name "part"`.
fn plain_section(head: &str) -> Option<String> {
    let is_name =
        |name: &str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    let (name, part) = match head.split_once(' ') {
        None => (head, None),
        Some((name, part)) => (name, Some(part.trim().strip_prefix('"')?.strip_suffix('"')?)),
    };
    let name = name.to_ascii_lowercase();
    if !is_name(&name) || name.starts_with("include") || part.is_some_and(|part| part.contains(['"', '\\'])) {
        return None;
    }
    Some(part.map_or_else(|| name.clone(), |part| format!("{name}.{part}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_settings_are_read_and_others_are_left_to_git() {
        let text = "[core]\n\tbare = false\n; c\n[remote \"Ori gin\"]\n\tURL = /a b\n[tenure]\n\tskew\n";
        let config = plain_config(text).expect("plain");
        assert_eq!(config.last("core.bare"), Some("false"));
        assert_eq!(config.last("remote.Ori gin.url"), Some("/a b"));
        assert_eq!(config.last("tenure.skew"), Some("true"));
        for other in [
            "[include]\npath = x\n",
            "[includeIf \"gitdir:x\"]\npath = x\n",
            "[a]\nb = \"c\"\n",
            "[a]\nb = c # d\n",
            "[a]\nb = c\\\nd\n",
            "b = c\n",
            "[a] b = c\n",
            "[a.b]\nc = d\n",
        ] {
            assert!(plain_config(other).is_none(), "{other}");
        }
    }

    #[test]
    fn a_variable_that_steers_git_is_left_to_git() {
        let unsteered = |name: &str| is_unsteered([name.to_owned(), "PATH".to_owned()].into_iter());
        assert!(unsteered("GIT_AUTHOR_NAME") && unsteered("HOME") && unsteered("GIT_SSH_COMMAND"));
        for steering in [
            "GIT_DIR",
            "GIT_COMMON_DIR",
            "GIT_OBJECT_DIRECTORY",
            "GIT_CONFIG_GLOBAL",
            "GIT_CONFIG_COUNT",
            "GIT_CEILING_DIRECTORIES",
        ] {
            assert!(!unsteered(steering), "{steering}");
        }
    }
}
