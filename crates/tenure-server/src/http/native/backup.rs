//! Owns the way a backup leaves a running server: as the answer to a request, so that it ends where the administrator is
//! and the server writes to no place that somebody else chose.

use std::fs::File;
use std::io::{self, Read};

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use bytes::Bytes;

use crate::http::App;
use crate::http::auth::Caller;
use crate::http::error::{Code, Problem};
use crate::http::reply;
use crate::http::status::ProblemBody;

/// How much of the file is in memory at a time.
const PIECE_BYTES: usize = 256 * 1_024;

/// Everything committed so far, as one SQLite file. Put as `tables.db` into an empty data directory it is restored by the next start.
#[utoipa::path(get, path = "/v1/backup", tag = "server",
    responses((status = 200, description = "a SQLite file", content_type = "application/vnd.sqlite3", body = Vec<u8>),
              (status = "4XX", body = ProblemBody), (status = 503, body = ProblemBody)))]
pub(crate) async fn download(State(app): State<App>, caller: Caller) -> Result<Response, Problem> {
    caller.administering()?;
    let copied = app.engine().read(|reader| Ok(copy(reader))).await?;
    let (file, length) = copied.map_err(|error| {
        tracing::error!(%error, "a backup could not be made");
        Problem::new(Code::Unavailable, format!("the backup could not be made: {error}"))
    })?;
    let pieces = futures_util::stream::try_unfold(file, |file| async {
        let read = tokio::task::spawn_blocking(move || piece(file)).await;
        read.map_err(io::Error::other)?
    });
    let mut response = reply::typed(StatusCode::OK, "application/vnd.sqlite3", Body::from_stream(pieces));
    // So that a reader knows a file that was cut off from a whole one.
    response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    Ok(response)
}

/// A copy without a name: it is gone when it has been sent, or when the server ends.
fn copy(reader: &dyn tenure_store::Reader) -> Result<(File, u64), Box<dyn std::error::Error + Send + Sync>> {
    let dir = tempfile::Builder::new().prefix("tenure-backup-").tempdir()?;
    let path = dir.path().join("tables.db");
    reader.backup(&path)?;
    let file = File::open(&path)?;
    let length = file.metadata()?.len();
    Ok((file, length))
}

fn piece(mut file: File) -> io::Result<Option<(Bytes, File)>> {
    let mut bytes = vec![0; PIECE_BYTES];
    let read = file.read(&mut bytes)?;
    bytes.truncate(read);
    Ok((read > 0).then(|| (bytes.into(), file)))
}
