//! `tenure backup`: a copy of everything, from a running server or from the data of one that is stopped.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;
use tenure_store::{Options, Sqlite, Store};

use super::offline;
use crate::connect::{self, Connect};
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::refused;

/// Write everything a server has into one file.
///
/// From a running server, without stopping it, or with --data from the data directory of one that is stopped. To
/// restore, put the file as tables.db into an empty data directory and start a server on it. 'tenure check FILE' checks
/// it.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    connect: Connect,

    /// The file to write; it must not exist
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The data directory of a server that is stopped
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

/// What is not whole yet has this behind its name: a backup that was broken off must not look like one.
const UNFINISHED: &str = ".partial";

pub(crate) async fn run(args: &Args, output: Output) -> Outcome {
    let unfinished = unfinished(&args.file)?;
    let done = match &args.data {
        Some(dir) => copy(dir, &unfinished),
        None => download(args, &unfinished).await,
    };
    let done =
        done.and_then(|()| std::fs::rename(&unfinished, &args.file).map_err(|why| cannot_write(&args.file, &why)));
    if done.is_err() {
        let _ = std::fs::remove_file(&unfinished);
    }
    done?;
    let bytes = std::fs::metadata(&args.file).map_or(0, |data| data.len());
    output.result(&json!({ "file": args.file, "bytes": bytes }), || {
        format!("Backup written\n  File: {}\n  Bytes: {bytes}", args.file.display())
    });
    Ok(Exit::OK)
}

/// Where the copy is made: beside the file, which must not be there. What an earlier try has left is cleared away.
fn unfinished(file: &Path) -> Result<PathBuf, Failure> {
    if file.symlink_metadata().is_ok() {
        return Err(cannot_write(file, &std::io::ErrorKind::AlreadyExists.into()));
    }
    let mut name = file.as_os_str().to_owned();
    name.push(UNFINISHED);
    let unfinished = PathBuf::from(name);
    match std::fs::remove_file(&unfinished) {
        Err(why) if why.kind() != std::io::ErrorKind::NotFound => Err(cannot_write(&unfinished, &why)),
        _ => Ok(unfinished),
    }
}

fn copy(dir: &Path, file: &Path) -> Result<(), Failure> {
    // To open a store makes one where there is none, and a copy of that looks like a backup.
    if !["tables.db", "journal.1", "journal.db"].iter().any(|name| dir.join(name).exists()) {
        let message = format!("there is no data directory with a store at {}", dir.display());
        return Err(Failure::new(Exit::NOT_FOUND, "not_found", message));
    }
    let store = Sqlite::open(dir, Options::default()).map_err(|error| offline::explain(&error))?;
    store.reader().backup(file).map_err(|error| offline::explain(&error))
}

async fn download(args: &Args, unfinished: &Path) -> Result<(), Failure> {
    let client = args.connect.client(connect::user_at_host(), Duration::ZERO)?;
    let failed = |error: std::io::Error| cannot_write(unfinished, &error);
    // Made before anything is asked for: if it cannot be, the server need not work for it.
    let mut file = File::create_new(unfinished).map_err(failed)?;
    client.backup(|piece| file.write_all(piece)).await.map_err(|error| refused::explain(&error))?;
    file.sync_all().map_err(failed)
}

fn cannot_write(file: &Path, error: &std::io::Error) -> Failure {
    let exit = match error.kind() {
        std::io::ErrorKind::AlreadyExists => Exit::CONFLICT,
        std::io::ErrorKind::PermissionDenied => Exit::DENIED,
        _ => Exit::FAILURE,
    };
    Failure::new(exit, "cannot_write", format!("{} cannot be written: {error}", file.display()))
}
