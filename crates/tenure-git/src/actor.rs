//! Owns who an agent is in a clone: actors, kept where other programs keep them (`<git dir>/grite/actors/<id>/`), and
//! which of them a caller acts as. An actor is a name, never a credential: whoever can write the folder can be it.
//!
//! The order: the name given by the caller, a data directory given by the caller, the default of this worktree. Every
//! worktree has a default of its own, so two agents in two worktrees are two holders. Nothing here falls back to
//! another actor than the one that is named; hooks do, and say so.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use tenure_core::Timestamp;
use uuid::Uuid;

use crate::error::Error;
use crate::repo::Repo;

/// The shortest prefix of an id that may stand for it.
const PREFIX_MIN: usize = 4;
/// Labels are short names.
const LABEL_BYTES_MAX: usize = 64;

/// An actor of this repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Actor {
    /// 32 hex digits.
    pub id: String,
    /// How people call it.
    pub label: Option<String>,
    /// Milliseconds since 1970.
    pub created_ts: Option<u64>,
    /// Its folder.
    pub dir: PathBuf,
}

/// How a caller says who it is.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// An id, a unique prefix of one, or a label.
    pub name: Option<String>,
    /// A folder with an actor's `config.toml`.
    pub data_dir: Option<PathBuf>,
}

/// Where an actor came from, in the words of the other program where it has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Named by the caller.
    Flag,
    /// A data directory.
    Env,
    /// The default of the main worktree.
    RepoDefault,
    /// The default of a linked worktree.
    Worktree,
}

#[derive(Deserialize)]
struct ActorFile {
    actor_id: String,
    label: Option<String>,
    created_ts: Option<u64>,
}

impl Repo {
    fn grite_dir(&self) -> PathBuf {
        self.common_dir.join("grite")
    }

    /// The settings that this door shares with the other program.
    pub fn config_file(&self) -> PathBuf {
        self.grite_dir().join("config.toml")
    }

    fn actors_dir(&self) -> PathBuf {
        self.grite_dir().join("actors")
    }

    fn is_main_worktree(&self) -> bool {
        self.git_dir == self.common_dir
    }

    /// Where a linked worktree keeps its default.
    fn worktree_default_file(&self) -> PathBuf {
        self.git_dir.join("tenure").join("actor")
    }

    /// All actors, by id. A folder that is none is left out.
    pub fn actors(&self) -> Result<Vec<Actor>, Error> {
        let mut actors = Vec::new();
        for entry in fs::read_dir(self.actors_dir()).into_iter().flatten().flatten() {
            let is_id = entry.file_name().to_str().is_some_and(is_id);
            if let (true, Ok(actor)) = (is_id, read(&entry.path())) {
                actors.push(actor);
            }
        }
        actors.sort_by(|a, b| a.id.cmp(&b.id));
        Ok(actors)
    }

    /// The actor that an id, a unique prefix or a label means.
    pub fn find_actor(&self, name: &str) -> Result<Actor, Error> {
        let actors = self.actors()?;
        if let Some(actor) = actors.iter().find(|actor| actor.id == name) {
            return Ok(actor.clone());
        }
        let is_prefix = name.len() >= PREFIX_MIN && name.bytes().all(|byte| byte.is_ascii_hexdigit());
        let fits = |actor: &&Actor| {
            actor.label.as_deref() == Some(name) || (is_prefix && actor.id.starts_with(&name.to_ascii_lowercase()))
        };
        let mut found = actors.iter().filter(fits);
        match (found.next(), found.next()) {
            (Some(actor), None) => Ok(actor.clone()),
            (None, _) => Err(Error::Actor(format!("no actor {name:?} in this repository"))),
            (Some(one), Some(other)) => {
                let ids = [one, other].into_iter().chain(found).map(|actor| actor.id.as_str());
                let ids = ids.collect::<Vec<_>>().join(", ");
                Err(Error::Actor(format!("{name:?} fits several actors; name one by its id: {ids}")))
            }
        }
    }

    /// The actor a caller acts as, if there is one already.
    pub fn existing_actor(&self, wanted: &Wanted) -> Result<Option<(Actor, Source)>, Error> {
        if let Some(name) = &wanted.name {
            return Ok(Some((self.find_actor(name)?, Source::Flag)));
        }
        if let Some(dir) = &wanted.data_dir {
            // Whole, for whoever gets it from us and goes elsewhere.
            return Ok(Some((read(&self.git.dir().join(dir))?, Source::Env)));
        }
        let (id, source) = match self.is_main_worktree() {
            true => (self.settings()?.default_actor, Source::RepoDefault),
            false => (self.worktree_default()?, Source::Worktree),
        };
        let Some(id) = id else { return Ok(None) };
        if !is_id(&id) {
            return Err(Error::Actor(format!("the default actor {id:?} is not an actor's id")));
        }
        let actor = read(&self.actors_dir().join(&id))
            .map_err(|_| Error::Actor(format!("the default actor {id} does not exist in this repository")))?;
        Ok(Some((actor, source)))
    }

    /// The actor a caller acts as; the first act in a worktree makes one. Two first acts at once agree on it.
    pub fn actor(&self, wanted: &Wanted, now: Timestamp) -> Result<(Actor, Source), Error> {
        if let Some(found) = self.existing_actor(wanted)? {
            return Ok(found);
        }
        let _alone = self.lock_actors()?;
        if let Some(found) = self.existing_actor(wanted)? {
            return Ok(found);
        }
        let actor = self.write_actor(None, now)?;
        self.set_default(&actor)?;
        let source = if self.is_main_worktree() { Source::RepoDefault } else { Source::Worktree };
        Ok((actor, source))
    }

    /// Makes a new actor. Nobody acts as it until it is named or made a default.
    pub fn create_actor(&self, label: Option<&str>, now: Timestamp) -> Result<Actor, Error> {
        // Whoever asks for the same label at the same moment must see that it is taken.
        let _alone = self.lock_actors()?;
        if let Some(label) = label {
            self.check_label(label)?;
        }
        self.write_actor(label, now)
    }

    fn write_actor(&self, label: Option<&str>, now: Timestamp) -> Result<Actor, Error> {
        let id = Uuid::new_v4().simple().to_string();
        let dir = self.actors_dir().join(&id);
        let mut text = format!("actor_id = \"{id}\"\n");
        if let Some(label) = label {
            text.push_str(&format!("label = {}\n", toml::Value::from(label)));
        }
        text.push_str(&format!("created_ts = {}\n", now.unix_ms()));
        create_dir(&dir)?;
        write_whole(&dir.join("config.toml"), &text)?;
        Ok(Actor { id, label: label.map(str::to_owned), created_ts: Some(now.unix_ms()), dir })
    }

    fn check_label(&self, label: &str) -> Result<(), Error> {
        let fits = (1..=LABEL_BYTES_MAX).contains(&label.len()) && label.trim() == label;
        if !fits || label.chars().any(char::is_control) || is_id(label) {
            let rule =
                format!("1 to {LABEL_BYTES_MAX} bytes, no control characters, no blanks at its ends, and not an id");
            return Err(Error::BadInput(format!("{label:?} cannot be a label: {rule}")));
        }
        match self.actors()?.iter().find(|actor| actor.label.as_deref() == Some(label)) {
            Some(taken) => Err(Error::BadInput(format!("the label {label:?} belongs to actor {}", taken.id))),
            None => Ok(()),
        }
    }

    /// Makes an actor the default of this worktree.
    pub fn use_actor(&self, name: &str) -> Result<Actor, Error> {
        let actor = self.find_actor(name)?;
        let _alone = self.lock_actors()?;
        self.set_default(&actor)?;
        Ok(actor)
    }

    fn set_default(&self, actor: &Actor) -> Result<(), Error> {
        if self.is_main_worktree() {
            return self.write_setting("default_actor", &actor.id);
        }
        let file = self.worktree_default_file();
        create_dir(file.parent().unwrap_or(&self.git_dir))?;
        write_whole(&file, &format!("{}\n", actor.id))
    }

    fn worktree_default(&self) -> Result<Option<String>, Error> {
        let file = self.worktree_default_file();
        match fs::read_to_string(&file) {
            Ok(text) => Ok(Some(text.trim().to_owned())),
            Err(none) if none.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(Error::Io { path: file, source }),
        }
    }

    /// A file of this clone that is only ever locked, with its path.
    pub(crate) fn lock_file(&self, name: &str) -> Result<(PathBuf, fs::File), Error> {
        let folder = self.common_dir.join("tenure");
        create_dir(&folder)?;
        let path = folder.join(name);
        let opened = fs::OpenOptions::new().create(true).truncate(false).write(true).open(&path);
        let file = opened.map_err(|source| Error::Io { path: path.clone(), source })?;
        Ok((path, file))
    }

    /// One at a time chooses an identity or changes a setting; the kernel frees it however the process ends.
    pub(crate) fn lock_actors(&self) -> Result<fs::File, Error> {
        let (path, file) = self.lock_file("actors.lock")?;
        file.lock().map_err(|source| Error::Io { path, source })?;
        Ok(file)
    }
}

/// 32 lower-case hex digits: the only ids that are ever joined to a path.
fn is_id(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

fn read(dir: &Path) -> Result<Actor, Error> {
    let path = dir.join("config.toml");
    let text =
        fs::read_to_string(&path).map_err(|_| Error::Actor(format!("Actor config not found: {}", path.display())))?;
    let file: ActorFile = toml::from_str(&text)
        .map_err(|why| Error::Config { place: path.display().to_string(), why: why.message().to_owned() })?;
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if file.actor_id.is_empty() || file.actor_id.len() > LABEL_BYTES_MAX || !file.actor_id.chars().all(fits) {
        return Err(Error::Actor(format!("{} has an actor_id that cannot be one", path.display())));
    }
    Ok(Actor { id: file.actor_id, label: file.label, created_ts: file.created_ts, dir: dir.to_owned() })
}

pub(crate) fn create_dir(dir: &Path) -> Result<(), Error> {
    fs::create_dir_all(dir).map_err(|source| Error::Io { path: dir.to_owned(), source })
}

/// Readers see the old file or the new one, never half of either.
pub(crate) fn write_whole(path: &Path, text: &str) -> Result<(), Error> {
    let broken = |source| Error::Io { path: path.to_owned(), source };
    let aside = path.with_extension(format!("tmp-{}", Uuid::new_v4().simple()));
    fs::write(&aside, text).map_err(broken)?;
    fs::rename(&aside, path).map_err(broken)
}
