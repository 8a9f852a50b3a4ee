//! Owns how a command gets to the repository: which directory, which judge, which actor, what time.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use tenure_core::Timestamp;
use tenure_git::actor::{Actor, Source, Wanted};
use tenure_git::{Error, Locks, Mode, Repo};

use super::explain;
use crate::failure::Failure;
use crate::output::Output;

/// What every command on a repository takes.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Where {
    /// Act as this actor: its id, the start of it, or its label [env: TENURE_ACTOR]
    #[arg(long, global = true, value_name = "ACTOR")]
    actor: Option<String>,
    /// Act as the actor of this folder [env: GRITE_HOME]
    #[arg(long, global = true, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// The remote that judges [default: git config tenure.remote, else origin]
    #[arg(long, global = true, value_name = "NAME")]
    remote: Option<String>,
    /// Only this clone: ask no remote
    #[arg(long, global = true, conflicts_with = "remote")]
    local: bool,
    /// Print nothing but errors
    #[arg(long, short, global = true)]
    pub(crate) quiet: bool,
    /// Accepted and without effect: there is no daemon
    #[arg(long, global = true, hide = true)]
    no_daemon: bool,
}

impl Where {
    fn wanted(&self) -> Wanted {
        let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let name = self.actor.clone().or_else(|| set("TENURE_ACTOR"));
        Wanted { name, data_dir: self.data_dir.clone().or_else(|| set("GRITE_HOME").map(PathBuf::from)) }
    }

    fn mode(&self) -> Mode {
        match &self.remote {
            _ if self.local => Mode::Local,
            Some(name) => Mode::Remote(name.clone()),
            None => Mode::Auto,
        }
    }
}

/// A repository, as one command deals with it.
pub(crate) struct Door {
    pub(crate) repo: Repo,
    pub(crate) mode: Mode,
    pub(crate) quiet: bool,
    wanted: Wanted,
}

/// The wall clock; before 1970 everything looks held, which is the careful side.
pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_unix_ms(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

impl Door {
    pub(crate) fn open(place: &Where) -> Result<Door, Failure> {
        let dir = std::env::current_dir().map_err(anyhow::Error::from)?;
        let repo = Repo::discover(&dir).map_err(explain)?;
        Ok(Door { repo, mode: place.mode(), quiet: place.quiet, wanted: place.wanted() })
    }

    /// Who acts; the first act in a worktree makes an actor.
    pub(crate) fn actor(&self) -> Result<(Actor, Source), Failure> {
        self.repo.actor(&self.wanted, now()).map_err(explain)
    }

    /// Who looks, if anybody: looking makes no actor.
    pub(crate) fn looker(&self) -> Result<Option<(Actor, Source)>, Failure> {
        self.repo.existing_actor(&self.wanted).map_err(explain)
    }

    /// The locks, for somebody who acts.
    pub(crate) fn locks_to_act(&self) -> Result<Locks<'_>, Failure> {
        self.locks_as(&self.actor()?.0.id)
    }

    /// The locks, for somebody who looks.
    pub(crate) fn locks_to_look(&self) -> Result<Locks<'_>, Failure> {
        let id = self.looker()?.map(|(actor, _)| actor.id).unwrap_or_default();
        self.locks_as(&id)
    }

    /// The locks, for this actor.
    pub(super) fn locks_as(&self, id: &str) -> Result<Locks<'_>, Failure> {
        Locks::open(&self.repo, &self.mode, id, &now).map_err(explain)
    }

    /// Says once in a clone that nobody but this clone knows of its locks.
    pub(crate) fn say_if_alone(&self, locks: &Locks<'_>, output: Output) {
        let said = self.repo.common_dir.join("tenure").join("said-no-remote");
        if locks.remote().is_some() || self.mode == Mode::Local || self.quiet || said.exists() {
            return;
        }
        output.note("Note: this repository has no remote, so its locks are for this clone and its worktrees only.");
        let _ = std::fs::create_dir_all(self.repo.common_dir.join("tenure")).and_then(|()| std::fs::write(&said, ""));
    }

    /// A result for people is left out with `--quiet`; JSON is printed anyway.
    pub(crate) fn result(&self, output: Output, data: &serde_json::Value, text: impl FnOnce() -> String) {
        if output.json || !self.quiet {
            output.result(data, text);
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        explain(error)
    }
}
