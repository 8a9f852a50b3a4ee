//! Owns asking the helper that runs queries: one process for each, ended when its time is over.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tenure_core::flow::command::Answer;
use tenure_core::task::to_json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;

use crate::query::{Answered, Asked, MEMORY_BYTES_MAX, RESULT_BYTES_MAX, SECONDS_MAX};

/// The helper has to start and to be heard, too.
const PATIENCE: Duration = Duration::from_secs(2 * SECONDS_MAX);
/// The word that makes the program the helper.
pub(crate) const WORD: &str = "answer-query";

/// The output of a step that transforms its input.
pub(super) async fn transform(program: Option<&Path>, input: Value) -> Result<Answer, Box<str>> {
    let program = program.ok_or("this server was built into another program, which gave it no helper for queries")?;
    let query = input.get("queryExpression").and_then(Value::as_str).ok_or("the input has no queryExpression")?;
    let asked = serde_json::to_vec(&Asked { query: query.to_owned(), input }).unwrap_or_default();
    let answered = match tokio::time::timeout(PATIENCE, ask(program, &asked)).await {
        Ok(Ok(answered)) => answered,
        Ok(Err(error)) => return Err(format!("the helper for queries could not be run: {error}").into()),
        Err(_) => Answered::Failed(too_much()),
    };
    match answered {
        Answered::Values(values) => {
            Ok(Answer::Output(to_json(&json!({ "result": values.first(), "resultList": values }))))
        }
        Answered::Failed(why) => Err(why.into()),
    }
}

async fn ask(program: &Path, asked: &[u8]) -> std::io::Result<Answered> {
    let mut command = Command::new(program);
    command.arg(WORD).env_clear().current_dir("/").kill_on_drop(true);
    let mut helper = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let (Some(mut to), Some(from)) = (helper.stdin.take(), helper.stdout.take()) else {
        return Err(std::io::Error::other("it has no pipes"));
    };
    let send = async move {
        // A helper that ended before it heard everything has said why, or was ended.
        to.write_all(asked).await.ok();
    };
    let mut text = Vec::new();
    let read = async { from.take(2 * RESULT_BYTES_MAX as u64).read_to_end(&mut text).await };
    let ((), read) = tokio::join!(send, read);
    read?;
    helper.wait().await?;
    // What ran out of time or memory was ended before it could answer.
    Ok(serde_json::from_slice(&text).unwrap_or_else(|_| Answered::Failed(too_much())))
}

fn too_much() -> String {
    format!("the query takes more than {SECONDS_MAX} s of time or {MEMORY_BYTES_MAX} bytes of memory")
}
