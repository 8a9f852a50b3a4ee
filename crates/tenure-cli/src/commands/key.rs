//! `tenure key`: API keys for servers that can be reached from elsewhere.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use clap::Subcommand;
use serde_json::json;
use tenure_server::keys::{self, Role};

use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::output::Output;

/// Make API keys.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Make a key, show it once, and keep its hash in the keys file
    New(NewArgs),
}

#[derive(Debug, clap::Args)]
struct NewArgs {
    /// What people call it
    name: String,
    /// What it allows
    #[arg(long, value_enum, default_value_t = RoleName::Agent)]
    role: RoleName,
    /// A name it may act as, or a beginning followed by *; may be repeated [default for agents and administrators: the key's name]
    #[arg(long = "holder", value_name = "NAME")]
    holders: Vec<String>,
    /// The keys file to append to; made if it is not there. Without it the entry is printed
    #[arg(long, value_name = "FILE", env = "TENURE_KEYS")]
    keys: Option<PathBuf>,
}

/// What a key allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum RoleName {
    /// To look
    Observer,
    /// To look, and to hold leases under its names
    Agent,
    /// Also to take leases away and to back up
    Admin,
}

impl From<RoleName> for Role {
    fn from(name: RoleName) -> Role {
        match name {
            RoleName::Observer => Role::Observer,
            RoleName::Agent => Role::Agent,
            RoleName::Admin => Role::Admin,
        }
    }
}

pub(crate) fn run(args: &Args, output: Output) -> Outcome {
    let Verb::New(args) = &args.verb;
    let role = Role::from(args.role);
    let mut holders = args.holders.clone();
    if holders.is_empty() && role == Role::Agent {
        holders.push(args.name.clone());
    }
    let (key, entry) = keys::generate(&args.name, role, holders.clone())
        .map_err(|error| Failure::new(Exit::USAGE, "bad_key", error.to_string()))?;
    if let Some(file) = &args.keys {
        append(file, &entry).map_err(|error| cannot_write(file, &error))?;
    }
    let data =
        json!({ "name": args.name, "role": role, "holders": holders, "key": key, "entry": entry, "file": args.keys });
    output.result(&data, || {
        let kept = match &args.keys {
            Some(file) => format!("  Kept, hashed, in: {}", file.display()),
            None => format!("Put this into the file that 'tenure serve --keys' reads:\n\n{entry}"),
        };
        let may = if holders.is_empty() { String::new() } else { format!(", acts as {}", holders.join(" ")) };
        format!("{} ({}{may})\n  Key: {key}\n  It is shown only now.\n{kept}", args.name, role.as_str())
    });
    Ok(Exit::OK)
}

/// Appends in one write, so that two commands at once do not mix their lines. Only the owner may read the file.
fn append(file: &Path, entry: &str) -> std::io::Result<()> {
    let mut file = std::fs::OpenOptions::new().create(true).append(true).mode(0o600).open(file)?;
    let gap = if file.metadata()?.len() == 0 { "" } else { "\n" };
    file.write_all(format!("{gap}{entry}").as_bytes())?;
    file.sync_all()
}

fn cannot_write(file: &Path, error: &std::io::Error) -> Failure {
    let exit = if error.kind() == std::io::ErrorKind::PermissionDenied { Exit::DENIED } else { Exit::FAILURE };
    Failure::new(exit, "cannot_write", format!("the keys file {} cannot be written: {error}", file.display()))
        .hint("no key was made")
}
