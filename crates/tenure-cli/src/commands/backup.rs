//! `tenure backup`: a copy of everything, from a running server or from the data of one that is stopped.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;
use tenure_store::{Options, Sqlite, Store, partial_name};

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

pub(crate) async fn run(args: &Args, output: Output) -> Outcome {
    match &args.data {
        Some(dir) => copy(dir, &args.file)?,
        None => download(args).await?,
    }
    let bytes = std::fs::metadata(&args.file).map_or(0, |data| data.len());
    output.result(&json!({ "file": args.file, "bytes": bytes }), || {
        format!("Backup written\n  File: {}\n  Bytes: {bytes}", args.file.display())
    });
    Ok(Exit::OK)
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

async fn download(args: &Args) -> Result<(), Failure> {
    let failed = |error: std::io::Error| cannot_write(&args.file, &error);
    if args.file.symlink_metadata().is_ok() {
        return Err(failed(std::io::ErrorKind::AlreadyExists.into()));
    }
    let partial = partial_name(&args.file);
    let done = receive(args, &partial).await.and_then(|()| std::fs::rename(&partial, &args.file).map_err(failed));
    if done.is_err() {
        let _ = std::fs::remove_file(&partial);
    }
    done
}

/// Writes what the server sends. What an earlier try has left is written over.
async fn receive(args: &Args, partial: &Path) -> Result<(), Failure> {
    let client = args.connect.client(connect::user_at_host(), Duration::ZERO)?;
    let failed = |error: std::io::Error| cannot_write(partial, &error);
    // Made before anything is asked for: if it cannot be, the server need not work for it.
    let mut file = File::create(partial).map_err(failed)?;
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
