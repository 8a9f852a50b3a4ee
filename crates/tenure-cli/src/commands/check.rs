//! `tenure check`: is what a server left behind whole, and does its history make sense?

use std::path::PathBuf;

use serde_json::json;
use tenure_store::CheckReport;

use super::offline;
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::output::Output;

/// Check a data directory that no server uses, or a backup file.
///
/// Reads every record and event: are the files whole, do journal and tables agree, did two holders ever have the same
/// at the same time, did every token grow?
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The data directory or the backup file
    #[arg(value_name = "PATH", default_value = offline::DEFAULT_DATA, env = "TENURE_DATA")]
    path: PathBuf,
}

pub(crate) fn run(args: &Args, output: Output) -> Outcome {
    let report = tenure_store::check(&args.path).map_err(|error| offline::explain(&error))?;
    if report.is_ok() {
        output.result(&facts(&report), || format!("{} is sound\n{}", args.path.display(), lines(&report)));
        return Ok(Exit::OK);
    }
    let message = format!("{} problems in {}", report.problems_found, args.path.display());
    let problems = report.problems.iter().map(|problem| format!("\n  - {problem}")).collect::<String>();
    let failure = Failure::new(Exit::FAILURE, "unsound", &message).human(format!("Error: {message}{problems}"));
    Err(failure.detail("report", facts(&report)).hint(
        "keep a copy of the files before you change anything; a backup is restored as tables.db of an empty directory",
    ))
}

fn facts(report: &CheckReport) -> serde_json::Value {
    json!({
        "batches": report.head.seq,
        "last_cursor": report.head.cursor,
        "first_cursor": report.first_cursor,
        "events": report.events,
        "records": report.records,
        "leases": report.leases,
        "unfolded": report.unfolded,
        "problems": report.problems,
        "problems_found": report.problems_found,
    })
}

fn lines(report: &CheckReport) -> String {
    format!(
        "  Live leases: {}\n  Events: {} (kept from {})\n  Batches: {} ({} not folded yet)",
        report.leases, report.events, report.first_cursor.0, report.head.seq, report.unfolded
    )
}
