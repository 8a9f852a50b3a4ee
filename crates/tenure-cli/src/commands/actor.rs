//! `tenure actor`: who an agent is in a clone.

use serde_json::{Value, json};
use tenure_git::actor::{Actor, Source};

use super::lock::door::now;
use super::lock::{Door, Where, explain, visible};
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::output::Output;

/// Make and choose the names under which agents hold locks in a clone.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    place: Where,

    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Make a new actor; nobody acts as it until it is named
    Init {
        /// A short name for it
        #[arg(long)]
        label: Option<String>,
    },
    /// List the actors of this repository
    List,
    /// Make an actor the default of this worktree
    Use {
        /// Its id, the start of it, or its label
        actor: String,
    },
    /// Show an actor; without a name, the one that acts here
    #[command(alias = "current")]
    Show {
        /// Its id, the start of it, or its label
        actor: Option<String>,
    },
}

pub(crate) fn run(args: &Args, output: Output) -> Outcome {
    let door = Door::open(&args.place)?;
    match &args.command {
        Command::Init { label } => {
            let actor = door.repo.create_actor(label.as_deref(), now()).map_err(explain)?;
            door.result(output, &json(&actor), || format!("Actor made\n{}", about(&actor)));
        }
        Command::List => list(&door, output)?,
        Command::Use { actor } => {
            let actor = door.repo.use_actor(actor).map_err(explain)?;
            door.result(output, &json(&actor), || format!("This worktree acts as\n{}", about(&actor)));
        }
        Command::Show { actor } => show(&door, actor.as_deref(), output)?,
    }
    Ok(Exit::OK)
}

fn list(door: &Door, output: Output) -> Result<(), Failure> {
    let actors = door.repo.actors().map_err(explain)?;
    let current = door.looker().ok().flatten().map(|(actor, _)| actor.id);
    let all: Vec<Value> = actors.iter().map(json).collect();
    door.result(output, &json!({ "actors": all, "current": current }), || {
        let row = |actor: &Actor| {
            let mark = if Some(&actor.id) == current.as_ref() { '*' } else { ' ' };
            format!("{mark} {}  {}", actor.id, visible(actor.label.as_deref().unwrap_or("")))
        };
        let rows: Vec<String> = actors.iter().map(|actor| row(actor).trim_end().to_owned()).collect();
        if rows.is_empty() { "No actors yet".to_owned() } else { rows.join("\n") }
    });
    Ok(())
}

fn show(door: &Door, name: Option<&str>, output: Output) -> Result<(), Failure> {
    let (actor, source) = match name {
        Some(name) => (door.repo.find_actor(name).map_err(explain)?, None),
        None => match door.looker()? {
            Some((actor, source)) => (actor, Some(word(source))),
            None => {
                let none =
                    Failure::new(Exit::NOT_FOUND, "not_found", "not found: nobody has acted in this worktree yet");
                return Err(none.hint("the first lock makes an actor, or 'tenure actor init' and 'tenure actor use'"));
            }
        },
    };
    let mut data = json(&actor);
    if let Some(members) = data.as_object_mut() {
        members.insert("source".to_owned(), json!(source));
    }
    door.result(output, &data, || about(&actor));
    Ok(())
}

fn word(source: Source) -> &'static str {
    match source {
        Source::Flag => "flag",
        Source::Env => "env",
        Source::RepoDefault => "repo_default",
        Source::Worktree => "worktree_default",
    }
}

fn json(actor: &Actor) -> Value {
    json!({
        "actor_id": actor.id,
        "label": actor.label,
        "created_ts": actor.created_ts,
        "data_dir": actor.dir.display().to_string(),
    })
}

fn about(actor: &Actor) -> String {
    let label = actor.label.as_deref().map(|label| format!("\n  Label: {}", visible(label))).unwrap_or_default();
    format!("  Actor: {}{label}", actor.id)
}
