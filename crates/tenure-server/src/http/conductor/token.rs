//! Owns `/token`: a key is its own token. Clients that sign in get back what they have shown, if it is known here.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;
use serde_json::json;

use super::body::Body;
use super::fault::Fault;
use crate::config::Access;
use crate::http::error::Problem;
use crate::http::{App, reply};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SignIn {
    key_id: String,
    key_secret: String,
}

/// Exchanges a key for a token. Where no keys are needed every token is as good as any.
pub(crate) async fn exchange(State(app): State<App>, body: Body) -> Result<Response, Fault> {
    let asked: SignIn = body.json()?;
    let token = match &app.0.config.access {
        Access::Loopback | Access::Anyone => "open".to_owned(),
        Access::Keys(keys) => {
            let unknown = || Problem::unauthorized("the key is not known here; keySecret is the API key itself");
            keys.find(&asked.key_secret).ok_or_else(unknown)?;
            asked.key_secret
        }
    };
    let _ = asked.key_id;
    Ok(reply::json(StatusCode::OK, &json!({ "token": token })))
}
