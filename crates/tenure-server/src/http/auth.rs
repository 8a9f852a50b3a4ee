//! Owns who is asking: the key a request shows, the names it may act as, what its role allows.
//!
//! A holder is a name, never a credential. Without keys every name is believed; with keys a name must be one of the key's.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use tenure_core::Holder;
use tenure_core::access::Caller as Looker;

use super::App;
use super::error::{Code, Problem};
use crate::config::Access;
use crate::keys::{Key, Role};

/// Names the holder that acts.
pub(crate) const HOLDER_HEADER: &str = "X-Tenure-Holder";
/// Where a key may stand instead of `Authorization: Bearer`.
pub(crate) const KEY_HEADER: &str = "x-api-key";

/// Where clients of the Conductor API show theirs.
pub(crate) const TOKEN_HEADER: &str = "x-authorization";

/// Who looks without a name.
const NOBODY: &str = "anonymous";

/// Under whose name things are done that need one when nobody gave one.
const NAMELESS: &str = "operator";

/// Who asks.
pub(crate) struct Caller {
    /// The key shown; nothing where none is needed.
    key: Option<Key>,
    /// The name in the header.
    holder: Option<Holder>,
    /// The header that names the holder, as this door writes it.
    header: &'static str,
}

impl FromRequestParts<App> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Caller, Problem> {
        Caller::of(&parts.headers, &app.0.config.access, HOLDER_HEADER)
    }
}

impl Caller {
    /// Who asks through a door that names the holder in `header`.
    pub(crate) fn of(headers: &HeaderMap, access: &Access, header: &'static str) -> Result<Caller, Problem> {
        let key = match access {
            Access::Loopback | Access::Anyone => None,
            Access::Keys(keys) => {
                let shown = shown_key(headers).ok_or_else(|| {
                    Problem::unauthorized("this server needs an API key: send it as Authorization: Bearer <key>")
                })?;
                let known = keys.find(shown);
                Some(known.ok_or_else(|| Problem::unauthorized("the API key is not known here"))?.clone())
            }
        };
        let holder = header_text(headers, header)?.map(|name| parse_holder(header, name)).transpose()?;
        Ok(Caller { key, holder, header })
    }

    /// The holder that acts: the one in the header, or `named` in the body; both, if they agree.
    pub(crate) fn acting(&self, named: Option<&str>) -> Result<Holder, Problem> {
        self.require(Role::Agent)?;
        // Most clients say it in both places.
        let is_said = |name: &&str| self.holder.as_ref().is_some_and(|holder| holder.as_str() == *name);
        let named = named.filter(|name| !is_said(name)).map(|name| parse_holder("holder", name)).transpose()?;
        if let (Some(named), Some(header)) = (&named, &self.holder)
            && named != header
        {
            return Err(Problem::field(
                "holder",
                format!("the body says {named}, the header {} {header}", self.header),
            ));
        }
        let default = || self.key.as_ref().and_then(Key::default_holder);
        let Some(holder) = named.or_else(|| self.holder.clone()).or_else(default) else {
            return Err(Problem::field(
                self.header,
                format!("the request names no holder: say who acts in the header {}", self.header),
            ));
        };
        self.allowed(holder)
    }

    /// The same name, if the key may act under it.
    fn allowed(&self, holder: Holder) -> Result<Holder, Problem> {
        if self.has_name(&holder) { Ok(holder) } else { Err(foreign(&holder)) }
    }

    /// That who asks may speak for `name` too: a request can name another than the one who sends it. Administrators may speak
    /// for everyone.
    pub(crate) fn speaking_for(&self, name: &Holder) -> Result<(), Problem> {
        if self.is_trusted() || self.has_name(name) { Ok(()) } else { Err(foreign(name)) }
    }

    /// Who looks. A name that the key may not use is not believed: clients send theirs with everything, and the key of an
    /// observer need not have any.
    pub(crate) fn looking(&self) -> Result<Looker, Problem> {
        self.require(Role::Observer)?;
        let own = self.name().filter(|name| self.speaking_for(name).is_ok());
        let holder = own.map_or_else(|| parse_holder(self.header, NOBODY), Ok)?;
        Ok(Looker { holder, is_admin: self.is_admin() })
    }

    /// Who looks, if access lists limit what it sees.
    pub(crate) fn looking_by_lists(&self) -> Result<Option<Looker>, Problem> {
        let looker = self.looking()?;
        Ok((!self.is_trusted()).then_some(looker))
    }

    /// Where there are no keys every name is believed.
    fn has_name(&self, name: &Holder) -> bool {
        self.key.as_ref().is_none_or(|key| key.may_act_as(name))
    }

    /// An administrator, or anyone where there are no keys: neither names nor access lists stand in the way.
    pub(crate) fn is_trusted(&self) -> bool {
        self.key.is_none() || self.is_admin()
    }

    /// Whether an administrator shows its key. Where there are no keys, nobody does.
    pub(crate) fn is_admin(&self) -> bool {
        self.key.as_ref().is_some_and(|key| key.role == Role::Admin)
    }

    /// The name in the header, or the one that the key stands for.
    fn name(&self) -> Option<Holder> {
        self.holder.clone().or_else(|| self.key.as_ref().and_then(Key::default_holder))
    }

    /// Who changes something under no name of its own.
    pub(crate) fn working(&self) -> Result<(), Problem> {
        self.require(Role::Agent)
    }

    /// Who looks; nothing more is needed.
    pub(crate) fn reading(&self) -> Result<(), Problem> {
        self.require(Role::Observer)
    }

    /// Who runs the server.
    pub(crate) fn administering(&self) -> Result<(), Problem> {
        self.require(Role::Admin)
    }

    /// The name under which an administrator acts: the key's own, unless the header says another of its names.
    pub(crate) fn administrator(&self) -> Result<Holder, Problem> {
        self.administering()?;
        match (&self.holder, &self.key) {
            (None, None) => parse_holder(self.header, NAMELESS),
            (None, Some(key)) => parse_holder(self.header, &key.name),
            (Some(holder), _) => self.allowed(holder.clone()),
        }
    }

    fn require(&self, role: Role) -> Result<(), Problem> {
        match &self.key {
            Some(key) if key.role < role => Err(Problem::new(
                Code::Forbidden,
                format!("this needs a key with the role {}; this one is for an {}", role.as_str(), key.role.as_str()),
            )),
            _ => Ok(()),
        }
    }
}

fn foreign(name: &Holder) -> Problem {
    let detail = format!("this API key may not act as {name}; its entry in the keys file lists the names it may use");
    Problem::new(Code::Forbidden, detail)
}

fn parse_holder(field: &str, name: &str) -> Result<Holder, Problem> {
    Holder::parse(name).map_err(|why| Problem::field(field, why.to_string()))
}

/// The key that a request shows.
pub(crate) fn shown_key(headers: &HeaderMap) -> Option<&str> {
    let bearer = || {
        let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
        let (scheme, key) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then_some(key.trim())
    };
    let named = |name: &str| headers.get(name)?.to_str().ok();
    bearer().or_else(|| named(KEY_HEADER)).or_else(|| named(TOKEN_HEADER))
}

/// The text of a header that may come once.
pub(crate) fn header_text<'a>(headers: &'a HeaderMap, name: &'static str) -> Result<Option<&'a str>, Problem> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(Problem::field(name, "the header comes more than once"));
    }
    let text = std::str::from_utf8(value.as_bytes()).map_err(|_| Problem::field(name, "the header is not UTF-8"))?;
    Ok(Some(text))
}
