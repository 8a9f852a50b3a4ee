//! Owns reading the guard's history: one commit for every grant, oldest last, each with the lock as it was granted.

use crate::error::Error;
use crate::git::Git;
use crate::objects::Oid;
use crate::record::{Payload, TOKEN};
use crate::view::read_payloads;

/// How far back a token is looked for: further back its lease is over.
const DEPTH_MAX: &str = "--max-count=20000";

/// One grant, as the guard remembers it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// Its fencing number.
    pub token: u64,
    /// The lock as it was granted.
    pub payload: Payload,
}

/// The grants that a guard ref remembers, newest first.
pub fn history(git: &Git, guard: &str) -> Result<Vec<Grant>, Error> {
    let format = format!("--format=%H %(trailers:key={TOKEN},valueonly,separator=%x2C)");
    let listed = git.run(&["log", "--first-parent", DEPTH_MAX, &format, guard, "--"], b"")?;
    if !listed.ok() {
        return Ok(Vec::new());
    }
    let parse = |line: &str| {
        let (oid, token) = line.split_once(' ')?;
        Some((Oid::parse(oid)?, token.parse().ok()?))
    };
    let commits: Vec<(Oid, u64)> = listed.text().lines().filter_map(parse).collect();
    let mut payloads = read_payloads(git, &commits.iter().map(|(oid, _)| oid).collect::<Vec<_>>())?;
    let grant = |(oid, token): &(Oid, u64)| Some(Grant { token: *token, payload: payloads.remove(oid)?.ok()? });
    Ok(commits.iter().filter_map(grant).collect())
}

/// The token of the grant with this nonce.
pub(crate) fn token_of(git: &Git, guard: &str, nonce: &str) -> Result<Option<u64>, Error> {
    let grants = history(git, guard)?;
    Ok(grants.into_iter().find(|grant| grant.payload.nonce == nonce).map(|grant| grant.token))
}
