//! Owns who asks through this door: `X-Agent-ID` is the name, `X-API-Key` the key. A key is never a name and never shown.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use sha2::{Digest, Sha256};
use tenure_core::Holder;
use tenure_core::access::Caller;
use tenure_core::ledger::agents::Speaker;

use super::Door;
use super::error::No;
use crate::http::auth;

const NAME_HEADER: &str = "X-Agent-ID";

/// Someone who looks; a name is welcome, not needed.
pub(crate) struct Looker(pub(crate) Caller);

/// Someone who acts under a name.
pub(crate) struct Actor {
    pub(crate) caller: Caller,
    /// A digest of the key that was shown.
    credential: Option<Box<str>>,
    /// Whose names may stand in the request beside its own.
    who: auth::Caller,
}

/// An administrator: where there are keys, one with that role.
pub(crate) struct Admin(pub(crate) Caller);

impl FromRequestParts<Door> for Looker {
    type Rejection = No;

    async fn from_request_parts(parts: &mut Parts, door: &Door) -> Result<Looker, No> {
        Ok(Looker(known(parts, door)?.looking()?))
    }
}

impl FromRequestParts<Door> for Actor {
    type Rejection = No;

    async fn from_request_parts(parts: &mut Parts, door: &Door) -> Result<Actor, No> {
        let who = known(parts, door)?;
        let caller = Caller { holder: who.acting(None)?, is_admin: who.is_admin() };
        let key = auth::shown_key(&parts.headers).filter(|key| !key.is_empty());
        let credential = key.map(|key| format!("{:x}", Sha256::digest(key)).into());
        Ok(Actor { caller, credential, who })
    }
}

impl FromRequestParts<Door> for Admin {
    type Rejection = No;

    async fn from_request_parts(parts: &mut Parts, door: &Door) -> Result<Admin, No> {
        let who = known(parts, door)?;
        Ok(Admin(Caller { holder: who.administrator()?, is_admin: true }))
    }
}

impl Actor {
    /// A name that the request gives for who acts, or whose leases and life it is about: only one that the key may use.
    pub(crate) fn named(&self, name: Holder) -> Result<Holder, No> {
        self.who.speaking_for(&name)?;
        Ok(name)
    }

    /// The same for a name that is only shown.
    pub(crate) fn check_name(&self, field: &str, text: &str) -> Result<(), No> {
        match Holder::parse(text) {
            Ok(name) => self.named(name).map(drop),
            // What cannot be a name can still look like one.
            Err(why) if !self.who.is_trusted() => Err(No::field(field, why.to_string())),
            Err(_) => Ok(()),
        }
    }

    /// The one who speaks for an agent.
    pub(crate) fn speaker(&self, name: Holder) -> Result<Speaker, No> {
        let name = self.named(name)?;
        Ok(Speaker { name, credential: self.credential.clone(), is_admin: self.caller.is_admin })
    }
}

fn known(parts: &Parts, door: &Door) -> Result<auth::Caller, No> {
    Ok(auth::Caller::of(&parts.headers, &door.app.0.config.access, NAME_HEADER)?)
}
